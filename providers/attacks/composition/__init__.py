"""Attacks that combine several releases of one source made with different seeds."""
