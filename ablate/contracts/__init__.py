"""What every member of a family keeps, found out by trying it. Tests run these over all kinds, and so may users."""
