"""The plan of a study, its budgets, its memory and its duration, before anything is trained."""
