"""Method of PABIDOT: the fit of a numeric matrix, its moments, and the choice of a transform."""
