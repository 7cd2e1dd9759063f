"""`ablate show`: the table and the answer of a study."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ablate.commands.loading import read
from ablate.commands.options import DEFAULT_STORE, JsonOption, StoreOption, StudyArgument
from ablate.errors import AblateError
from ablate.terminal.console import make_console


def show(
    study: StudyArgument,
    store: StoreOption = DEFAULT_STORE,
    svg: Annotated[Path | None, typer.Option("--svg", metavar="FILE", help="Write the table as a picture.")] = None,
    json_: JsonOption = False,
) -> None:
    """Show the table and the answer of a study, finished or not."""
    from ablate.report.as_json import study_json, to_text
    from ablate.report.table import print_study, study_svg

    if svg is not None:
        picture = study_svg(read(store, study))
        try:
            svg.write_text(picture, encoding="utf-8")
        except OSError as error:
            raise AblateError(f"the picture cannot be written ({error.strerror})", where=str(svg)) from None
    if json_:
        print(to_text(study_json(read(store, study))))
    elif svg is None:
        print_study(read(store, study), make_console())
