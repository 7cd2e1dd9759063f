"""The kinds of design, one file each: which variants are trained, with which seeds, in which order."""
