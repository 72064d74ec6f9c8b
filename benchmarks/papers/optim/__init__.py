"""Experiments on the claims of the Optim data privacy providers' manual."""
