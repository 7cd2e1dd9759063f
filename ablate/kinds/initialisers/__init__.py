"""The kinds of initialiser, one file each: the rule by which weights start, and its source."""
