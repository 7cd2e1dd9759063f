"""Kinds of every family; similar ones share a file."""
