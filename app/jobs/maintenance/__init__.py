"""Background work of the service: leases, retention, sweeps and gauges. Start reading at `loop`."""
