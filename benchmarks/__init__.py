"""Benchmarks: each file prints one table of measured ratios, with the machine and the spread. None asserts a time.

`make bench` runs them all; `python -m benchmarks NAME ...` runs some; `python -m benchmarks --list` names them.
"""
