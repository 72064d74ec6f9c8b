"""The commands that work on tables of this machine, without a service: run, measures, frontier, verify.

They ask for what a request would, by options that are derived from the same models, and do it by the
functions that a worker runs: the same seed gives the same bytes. Exit codes are in `app.cli.failures`.
"""
