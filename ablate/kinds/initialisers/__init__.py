"""The kinds of initialiser: the rule for initial weights, and its source."""
