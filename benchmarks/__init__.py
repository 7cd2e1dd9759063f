"""Benchmarks: each file prints one table of measured ratios, with the machine and the spread. None asserts a time.

`make bench` runs them all; `python -m benchmarks NAME ...` runs some; `python -m benchmarks --list` names them. With
`--smoke` each runs at its smallest size, which shows that it still runs and says nothing about time.
"""
