"""The kinds of schedule, one file each."""
