"""Experiments of the paper on LOCALITY."""
