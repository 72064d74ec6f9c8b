"""Experiments of the sources' papers, run again: one module per experiment."""
