"""Benchmarks of blocks on this machine: time, memory, arithmetic, and the fastest implementation of each kernel."""
