"""A job's report as one self-contained HTML page, made of plain JSON values alone."""
