"""Tables of requests and jobs: reception, rows of buffers, columns of jobs, profiles and comparisons."""
