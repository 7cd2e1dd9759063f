"""Benchmarks: each file prints a table of measured ratios with the machine and the spread. None asserts a time.

`make bench` runs all of them; `python -m benchmarks NAME ...` runs some; `python -m benchmarks --list` lists them. With
`--smoke` each runs at its smallest size, which only shows that it works.
"""
