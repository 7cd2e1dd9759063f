"""The kinds of initialiser, one file each: the rule for initial weights, and its source."""
