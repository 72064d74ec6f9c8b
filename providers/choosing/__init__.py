"""Choosing with figures: the best of several seeds, and which service with which parameters."""
