"""`python -m ablate.cli`."""

from ablate.cli.app import main

main()
