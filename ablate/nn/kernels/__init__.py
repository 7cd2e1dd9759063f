"""Numerical kernels that several mixers share; each has a slow, obvious reference in the tests."""
