"""Tables of runs that were trained elsewhere: read, checked for what misleads, and shown to analysis as studies."""
