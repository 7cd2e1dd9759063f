"""The kinds of growth, one file each."""
