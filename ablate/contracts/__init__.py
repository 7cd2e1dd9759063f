"""The contract of each family: rules that every kind keeps, checked by running the kind. Tests check all kinds,
`ablate check-kind` those of users."""
