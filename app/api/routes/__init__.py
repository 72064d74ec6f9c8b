"""HTTP operations, one module per resource; start reading at `services`."""
