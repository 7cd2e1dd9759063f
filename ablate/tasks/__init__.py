"""Tasks: data, loss and metrics, one file per kind."""
