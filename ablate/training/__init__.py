"""Training of one pack: optimizer, loop, evaluation. It does no I/O: it receives an opened task and yields events."""
