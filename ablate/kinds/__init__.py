"""Kinds of every family, one file each."""
