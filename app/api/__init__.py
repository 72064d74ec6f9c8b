"""HTTP API; start reading at `routes.services`."""
