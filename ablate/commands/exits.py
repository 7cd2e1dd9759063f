"""Exit codes of the commands, besides 0 (fine) and 2 (the user's mistake)."""

REFUTED = 1
DIFFERENT = 1
FAILED = 3
INTERRUPTED = 130
