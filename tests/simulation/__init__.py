"""Deterministic simulation of a job's life: real components, everything around them driven by one seed."""
