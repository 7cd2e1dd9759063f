"""Training of one pack: optimiser, loop, evaluation. It does no I/O: it is handed a task and yields events."""
