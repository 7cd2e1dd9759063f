"""Training of one pack: optimizer, loop, evaluation. It does no I/O: it is handed a task and yields events."""
