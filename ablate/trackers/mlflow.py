"""MLflow: an experiment for each study, a run for each trial."""

from __future__ import annotations

import logging
import os
import re
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Self

from ablate.portable_names import NameRule, is_character, portable_name
from ablate.trackers import RunWriter, TrackedRun, Tracker, TrackerSession, flat

if TYPE_CHECKING:
    from mlflow import MlflowClient

_IDENTITY, _STATE, _NOTE = "ablate.identity", "ablate.state", "mlflow.note.content"
_MOST_PARAMS = 100
"""The most parameters that MLflow takes in one request."""
_LONGEST_NOTE = 8000
KEY = NameRule(
    re.compile(r"[\w ./:-]").match,  # type: ignore[arg-type]
    250,
    refuses=lambda name: re.search(r"^/|/$|//|(^|/)\.{1,2}(/|$)|^$", name) is not None,
)
"""The name of a metric or parameter: characters of MLflow's own pattern, and no path that has a shorter form."""
VALUE = NameRule(is_character, 500)
"""The value of a parameter, as every MLflow server takes it."""
RUN = NameRule(is_character, 250)
"""The name of a run: its column in PostgreSQL holds so many characters."""
_STATUS = {"finished": "FINISHED", "pruned": "KILLED"}


class Mlflow(Tracker):
    """MLflow: an experiment for each study, on the server or in the database at URI."""

    kind: Literal["mlflow"] = "mlflow"
    extra = "mlflow"
    argument_name = "URI"

    def connect(self) -> TrackerSession:
        """A client of the server or of the database. MLflow's own telemetry is off unless the environment asks."""
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
        from mlflow import MlflowClient

        for name in ("mlflow", "alembic"):
            logging.getLogger(name).setLevel(logging.WARNING)
        return _Server(MlflowClient(tracking_uri=self.argument))

    @classmethod
    def offline(cls, folder: Path) -> Self:
        """A database of SQLite."""
        return cls(argument=f"sqlite:///{folder / 'mlflow.db'}")


class _Server(TrackerSession):
    def __init__(self, client: MlflowClient) -> None:
        self._client = client
        self._experiments: dict[str, str] = {}

    def holds(self, run: TrackedRun) -> bool:
        """Whether a run has the tags of this one and of an end."""
        return bool(self._runs(run, f" and tags.`{_STATE}` != ''"))

    def begin(self, run: TrackedRun) -> RunWriter:
        """A new run; an earlier one of the same trial goes to MLflow's deleted runs."""
        for earlier in self._runs(run):
            self._client.delete_run(earlier)
        tags = {**run.tags, _IDENTITY: run.identity}
        name = portable_name("/".join(run.name), RUN)
        made = self._client.create_run(self._experiment(run.study), run_name=name, tags=tags)
        try:
            return _Run(self._client, made.info.run_id, run)
        except BaseException:
            self._client.set_terminated(made.info.run_id, "FAILED")
            raise

    def _runs(self, run: TrackedRun, also: str = "") -> list[str]:
        runs = self._client.search_runs([self._experiment(run.study)], f"tags.`{_IDENTITY}` = '{run.identity}'{also}")
        return [run.info.run_id for run in runs]

    def _experiment(self, study: str) -> str:
        if study not in self._experiments:
            known = self._client.get_experiment_by_name(study)
            self._experiments[study] = known.experiment_id if known else self._client.create_experiment(study)
        return self._experiments[study]


class _Run(RunWriter):
    def __init__(self, client: MlflowClient, identity: str, run: TrackedRun) -> None:
        from mlflow.entities import Param

        self._client, self._identity = client, identity
        params = [Param(portable_name(name, KEY), portable_name(str(value), VALUE)) for name, value in flat(run.config)]
        for begin in range(0, len(params), _MOST_PARAMS):
            client.log_batch(identity, params=params[begin : begin + _MOST_PARAMS])

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """One request for all values of a step."""
        from mlflow.entities import Metric

        now = int(1000 * time.time())
        metrics = [Metric(portable_name(name, KEY), value, now, step) for name, value in values.items()]
        self._client.log_batch(self._identity, metrics=metrics)

    def end(self, state: str, results: Mapping[str, float], text: str) -> None:
        """The results as metrics `result/NAME`, the text as the description of the run; last that it has ended."""
        self.log(0, {f"result/{name}": value for name, value in results.items()})
        if text:
            self._client.set_tag(self._identity, _NOTE, text[:_LONGEST_NOTE])
        self._client.set_terminated(self._identity, _STATUS.get(state, "FAILED"))
        self._client.set_tag(self._identity, _STATE, state)

    def drop(self) -> None:
        """The points so far stay, in a run that was killed."""
        self._client.set_terminated(self._identity, "KILLED")
