"""The kinds of optimizer, one file each."""
