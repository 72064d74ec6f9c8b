"""Tasks of one job in the engine: whole, or divided into units, and repeats of lost or slow ones."""
