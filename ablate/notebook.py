"""A study as an object for notebooks: its answer, its table, its curves and its figures."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ablate.analysis import StudyReport, read_study
from ablate.analysis.answer import answer_of
from ablate.analysis.findings import Findings, read_findings
from ablate.errors import AblateError, NotFoundError
from ablate.extras import require
from ablate.locations import DEFAULT_STORE
from ablate.render.answer import answer_text
from ablate.render.figures import draw, pictures, save
from ablate.render.figures.style import Spec
from ablate.render.formats.csv import table_rows
from ablate.render.formats.html import answer_and_table
from ablate.store import Store, open_store

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
        name: The name of the study.
        store: An open store, or where it is.
        result: How the run ended that gave this object; None for a study that is only read.

    Attributes:
        name: See above.
        result: See above.
    """

    def __init__(
        self, name: str, store: Store | str | Path = DEFAULT_STORE, *, result: StudyResult | None = None
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
    def _opened(self) -> Iterator[Store]:
        if isinstance(self._store, Store):
            yield self._store
        else:
            with open_store(self._store, create=False) as store:
                yield store


def _figures(findings: Findings) -> list[str]:
    require("figures", "a figure")
    return [picture.name for picture in pictures(findings)]
