"""`ablate calibrate`: minimum detectable difference by number of seeds, at the noise of a study."""

from __future__ import annotations

from ablate.cli.options import DEFAULT_STORE, JsonOption, StoreOption, StudyArgument
from ablate.render.terminal.console import make_console, print_json


def calibrate(
    study: StudyArgument,
    store: StoreOption = DEFAULT_STORE,
    json_: JsonOption = False,
) -> None:
    """Show the smallest difference that each number of seeds can detect, at the noise of a study's own trials."""
    from ablate.analysis.calibration import read_calibration
    from ablate.render.terminal.calibration import calibration_json, print_calibration
    from ablate.store import open_store

    with open_store(store, create=False) as opened:
        calibration = read_calibration(opened, study)
    if json_:
        print_json(calibration_json(calibration))
    else:
        print_calibration(calibration, make_console())
