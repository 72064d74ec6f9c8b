"""Compiled kernels that no method owns: sorting, gathering, exact sums, and numba's decorators."""
