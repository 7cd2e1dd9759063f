"""Adapters to Optuna. A separate folder, so that discovering the kinds of design does not import it."""
