"""Benchmarks of blocks on this machine: time, memory, arithmetic."""
