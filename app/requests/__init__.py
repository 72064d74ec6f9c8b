"""Request models of jobs and their validation, shared by the HTTP API and the CLI; start reading at `run`."""
