"""Runs a study: the driver takes trials from its design, an engine trains them, the store keeps the results."""
