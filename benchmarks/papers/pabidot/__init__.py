"""Experiments of the paper on PABIDOT."""
