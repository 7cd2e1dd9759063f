"""Engines: take trials from a design, run them, hand the results to the store."""
