"""One module for each service, named by its identifier: parameters, steps, `plan`, `swap` and declaration."""
