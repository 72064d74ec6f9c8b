"""Connections to a database: engines, errors, statements, waits in the event loop. Start at `engines`."""
