"""`ablate claims`: the verdicts on the claims of a study."""

from __future__ import annotations

from typing import Annotated

import typer

from ablate.cli.loading import read
from ablate.cli.options import DEFAULT_STORE, REFUTED, JsonOption, StoreOption, StudyArgument
from ablate.render.terminal.console import make_console, print_json, say


def claims(
    study: StudyArgument,
    store: StoreOption = DEFAULT_STORE,
    check: Annotated[bool, typer.Option("--check", help="Exit with 1 if a claim is refuted.")] = False,
    json_: JsonOption = False,
) -> int:
    """Show the verdicts on the claims of a study: supported, refuted or undecided."""
    from ablate.render.as_json import claims_json
    from ablate.render.table import print_caveats, print_claims

    report = read(store, study)
    judged = report.claims
    if json_:
        print_json(claims_json(judged))
    elif judged:
        console = make_console()
        print_caveats(report, console)
        print_claims(judged, console)
    else:
        say(make_console(), f"{study} has no claims. Add them under `claims:` in its space file.")
    return REFUTED if check and any(claim.verdict == "refuted" for claim in judged) else 0
