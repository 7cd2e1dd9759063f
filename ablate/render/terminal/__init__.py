"""What commands print besides reports: the live display, plans, the kinds."""
