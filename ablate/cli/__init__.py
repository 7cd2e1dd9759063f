"""The command line: one file a command; `app.py` parses and calls them, `options.py` holds what they share."""

from __future__ import annotations

from ablate.late import late

__getattr__, __dir__ = late(__name__, {"main": "ablate.cli.app"})
