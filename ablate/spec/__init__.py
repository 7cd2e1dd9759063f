"""The schema: frozen specs, space files with line numbers, switches, canonical form and hash."""
