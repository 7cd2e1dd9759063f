"""A study as an object for notebooks: its answer, its table, its curves and its figures."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ablate.analysis import StudyReport, read_study
from ablate.analysis.answer import answer_of
from ablate.analysis.findings import Findings, read_findings
from ablate.analysis.runs import StudyReader
from ablate.analysis.why import Why
from ablate.errors import AblateError, NotFoundError, check_argument, check_texts
from ablate.extras import require
from ablate.locations import DEFAULT_STORE, typed_path
from ablate.render.answer import answer_text
from ablate.render.figures import draw, pictures, save
from ablate.render.figures.style import Spec
from ablate.render.formats.data import table_rows
from ablate.render.formats.html import answer_and_table
from ablate.store import open_store
from ablate.tables.answering import answer_of_table, read_reports, why_of_table
from ablate.tables.description import RunTableSpec, make_description
from ablate.tables.formats import with_origin
from ablate.tables.judging import JudgedTable, judge_frame, judge_named, keep

if TYPE_CHECKING:
    import pandas as pd

    from ablate.execution.driver import StudyResult


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure of a study, which Jupyter shows.

    Attributes:
        spec: As a Vega-Lite specification, for tools that read one.
    """

    spec: Spec

    def save(self, file: str | Path) -> None:
        """Write it as `.svg`, `.png` or `.pdf`."""
        Path(file).write_bytes(save(self.spec, Path(file).suffix.lower().lstrip(".")))

    def _repr_svg_(self) -> str:
        return save(self.spec, "svg").decode()


class Study:
    """A study of a store. Each look reads the store again, so a study that still runs can be watched.

    Args:
        store: An open store, where it is, or whatever reads like one (`JudgedTable`).
        result: How the run ended that gave this object; None for a study that is only read.

    Attributes:
        name: See above.
        result: See above.
    """

    def __init__(
        self, name: str, store: StudyReader | str | Path = DEFAULT_STORE, *, result: StudyResult | None = None
    ) -> None:
        self.name = name
        self.result = result
        self._store = store

    @property
    def report(self) -> StudyReport:
        """Every variant compared with the baseline.

        Raises:
            NotFoundError: The store holds no such study.
        """
        with self._opened() as store:
            return read_study(store, self.name)

    @property
    def answer(self) -> str:
        """The answer on one screen: what can go, what must stay, how far to trust it, what to do next."""
        return answer_text(answer_of(self.report))

    def rows(self) -> list[dict[str, Any]]:
        """The ablation table as plain data: the columns of `ablate report --format csv`, a row for each variant."""
        return list(table_rows(self._findings()))

    def table(self) -> pd.DataFrame:
        """The ablation table; `rows` gives the same without pandas.

        Raises:
            MissingPackageError: pandas is not installed.
        """
        require("notebook", "a table")
        import pandas as pd

        return pd.DataFrame(self.rows())

    def curves(self) -> pd.DataFrame:
        """The learning curves of all trials, a row for each point: variant, seed, step, tokens, losses and so on.

        Raises:
            MissingPackageError: pandas is not installed.
        """
        require("notebook", "a table of curves")
        import pandas as pd

        with self._opened() as store:
            planned = store.study(self.name).planned
            curves = store.curves([trial.key for trial in planned])
        return pd.DataFrame(
            {"variant": trial.variant, "seed": trial.seed, **point._asdict()}
            for trial in planned
            for point in curves[trial.key]
        )

    def figures(self) -> tuple[str, ...]:
        """The names of the figures that this study has something to show on.

        Raises:
            MissingPackageError: vl-convert-python is not installed.
        """
        return tuple(_figures(self._findings()))

    def plot(self, name: str | None = None) -> Figure:
        """A figure of the report; Jupyter shows it.

        Args:
            name: One of `figures`; None: the first, the differences from the baseline where there are any.

        Raises:
            MissingPackageError: vl-convert-python is not installed.
            AblateError: The study has no such figure.
        """
        findings = self._findings()
        known = _figures(findings)
        if not known or name not in (None, *known):
            raise AblateError(
                "this study has no such figure",
                where=f"study {self.name}",
                expected=f"one of {', '.join(known)}" if known else "two variants with results",
                got=None if name is None else repr(name),
            )
        return Figure(draw(name or known[0], findings))

    def __repr__(self) -> str:
        return self.answer

    def _repr_html_(self) -> str | None:
        """The answer and the table, as Jupyter shows them; None while no trial has ended."""
        try:
            return answer_and_table(self._findings())
        except NotFoundError:
            return None

    def _findings(self) -> Findings:
        with self._opened() as store:
            return read_findings(store, self.name)

    @contextmanager
    def _opened(self) -> Iterator[StudyReader]:
        if isinstance(self._store, str | Path):
            with open_store(self._store, create=False) as store:
                yield store
        else:
            yield self._store


class JudgedStudy(Study):
    """Runs that were trained elsewhere, as a study: the first question on a table; `studies` has each of them.

    Attributes:
        studies: Question to its study.
    """

    def __init__(self, table: JudgedTable) -> None:
        super().__init__(next(iter(table.records)), table)
        self._table = table
        self.studies = {name: Study(name, table) for name in table.records}

    @property
    def answer(self) -> str:
        """The one answer to all questions, on one screen."""
        reports = read_reports(self._table)
        return answer_text(answer_of_table(self._table, reports), shown_by=None)

    def why(self, variant: str) -> Why:
        """Why a variant has its verdict; with several questions `QUESTION: VARIANT`.

        Raises:
            NotFoundError: No question compares it.
        """
        return why_of_table(self._table, read_reports(self._table), variant)

    def keep(self, store: str | Path, name: str) -> list[str]:
        """Keep the runs in a store, where `show`, `report` and the dashboard find them; the names of the studies.

        Args:
            store: Where it is; it is made if it is not there.
            name: Of the study; with several questions each is a study `NAME_QUESTION`.

        Raises:
            AblateError: This is not a name for a study, or a study of this name was trained here.
        """
        with open_store(store) as opened:
            return keep(self._table, opened, name)


_OF_TABLE = frozenset(RunTableSpec.model_fields)


def judge(
    table: pd.DataFrame | str | Path | Sequence[str], *, data: str | Path | None = None, **description: Any
) -> JudgedStudy:
    """Judge runs that were trained elsewhere.

    Args:
        table: Rows of runs, a file or a pattern of files, several of them, or descriptions (`.yaml`).
        data: The folder that the files are relative to; None: that of the description, else the working folder.
        **description: Keys of a description: those of its `table` (`variant`, `seed`, `unit`, `step` ...) beside those
            of its questions (`metric`, `direction`, `margin`, `baseline`, `questions` ...).

    Raises:
        AblateError: The table cannot be read, or its numbers are not what they seem.
    """
    reading = {key: description.pop(key) for key in sorted(_OF_TABLE & description.keys())}
    plain = description | {"table": reading}
    if isinstance(table, str | Path):
        table = [str(typed_path(table))]
    if isinstance(table, Sequence):
        names = check_texts("judge: table", table, "a table, a file or a list of files")
        return JudgedStudy(judge_named(names, plain, None if data is None else Path(data)))
    require("judge", "a table of runs", packages=("pandas",))
    import pandas as pd

    check_argument("judge: table", table, pd.DataFrame, "a DataFrame, a file or a list of files")
    return JudgedStudy(judge_frame(with_origin(table, "table"), make_description("judge", plain), "a table in memory"))


def _figures(findings: Findings) -> list[str]:
    require("figures", "a figure")
    return [picture.name for picture in pictures(findings)]
