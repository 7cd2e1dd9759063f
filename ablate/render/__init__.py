"""Turns the results of `ablate.analysis` into text, tables, figures and files; computes nothing."""
