"""Models that measures fit to a table: least squares, forests, and robust covariance."""
