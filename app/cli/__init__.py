"""Commands on local tables, without a service: run, measures, frontier, attack, verify.

The options are derived from the request models, and the work is done by the worker's functions: the same
seed gives the same bytes. Start reading at `commands`; exit codes are in `exit_codes`.
"""
