"""Code that runs in worker processes, without a database. Start reading at `run_job`."""
