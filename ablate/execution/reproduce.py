"""Train a stored trial again, from its record alone, and compare the two learning curves."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

from ablate.errors import DataError, EngineError, SpaceError
from ablate.execution.attempt import curve_point
from ablate.execution.engine import Engine
from ablate.execution.protocol import Broken, Done, Happened, Job, JobMember
from ablate.locations import temporary_folder
from ablate.planning.plan import stored_code
from ablate.spec.code import CodeReader
from ablate.spec.task import TaskSpec
from ablate.spec.variant import VariantSpec
from ablate.store import Store
from ablate.store.records import SETTLED, TRANSFER, CurvePoint, Environment, TrialRecord
from ablate.trained.weights import SUFFIX, check_code, stored_variant, weights_file
from ablate.training.events import Diverged, Measurement, Tick

TOLERANCE = 1e-4
"""The largest difference of a validation loss, in its unit, that still counts as equal: what the order of a sum does
to float32 over a short run. A long run may carry it further."""

_POLL_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class Reproduction:
    """A trial and the result of training it again.

    Attributes:
        trial: As the store has it.
        variant: Name of its variant; empty if no study has it any more.
        again: The curve of the new run.
        diverged: Of the new run; None if it finished.
        environment: Of the new run.
    """

    trial: TrialRecord
    variant: str
    stored: tuple[CurvePoint, ...]
    again: tuple[CurvePoint, ...]
    diverged: Diverged | None
    environment: Environment

    @property
    def verdict(self) -> Literal["identical", "equal", "different"]:
        """`identical`: every loss to the last bit; `equal`: every validation loss within `TOLERANCE`."""
        if not self._same_shape:
            return "different"
        if [(point.train_loss, point.val_loss) for point in self.stored] == [
            (point.train_loss, point.val_loss) for point in self.again
        ]:
            return "identical"
        largest = self.largest_difference
        return "equal" if largest is not None and largest <= TOLERANCE else "different"

    @property
    def largest_difference(self) -> float | None:
        """Of the validation losses at the steps that both curves have; None if they share none."""
        again = {point.step: point.val_loss for point in self.again}
        pairs = [(point.val_loss, again.get(point.step)) for point in self.stored]
        return max((abs(new - old) for old, new in pairs if old is not None and new is not None), default=None)

    @property
    def _same_shape(self) -> bool:
        """Whether both ended alike, measured at the same steps, and have numbers at the same points."""
        ends = [self.trial.stopped_at, self.diverged.step if self.diverged else None]
        shapes = [[(point.step, point.val_loss is None) for point in curve] for curve in (self.stored, self.again)]
        return ends[0] == ends[1] and shapes[0] == shapes[1]


def reproduce(
    prefix: str,
    store: Store,
    cache: Path,
    engine: Engine,
    environment: Environment,
    say: Callable[[str], None],
    moved: Callable[[int, int], None],
    *,
    accept_changed_code: bool,
) -> Reproduction:
    """Train a trial again. The store is only read.

    Args:
        prefix: The beginning of its key.
        cache: Folder of prepared data.
        say: Receives what happens to the data.
        moved: Receives the steps done and the number of steps, at intervals.
        accept_changed_code: Whether kinds of the user's may have changed since the trial ran.

    Raises:
        NotFoundError: No trial has a key that begins so, or more than one.
        PluginError: It uses a kind of a plugin that is not loaded, or that has changed.
        SpaceError: The trial was judged, not trained here, or has no end to compare with, or this version cannot read
            its spec.
        DataError: Its data is no longer available.
        EngineError: Training raised, or lost its worker.
    """
    trial = store.trial(prefix)
    record = store.variant(trial.variant_hash)
    name = f"trial {trial.key[:12]}"
    if not record.spec:
        raise SpaceError(
            "this run was judged, not trained here, so that it cannot be trained again",
            where=name,
            remedy="Train it again where its table comes from.",
        )
    if trial.state not in SETTLED:
        raise SpaceError(
            "there is no whole curve to compare with",
            where=name,
            expected="a trial that finished or diverged",
            got=f"one that is {trial.state.value}",
            remedy="Run its study to the end first: `ablate study FILE`.",
        )
    variant = stored_variant(record.spec, name, homes={}, trained_with=_trained_with(trial))
    if variant.training.population is not None:
        raise SpaceError(
            "a member of a population continued from the weights of other members, and cannot be trained without them",
            where=name,
            remedy="Run its study again in another store.",
        )
    stored = store.curves([trial.key])[trial.key]
    with TemporaryDirectory(prefix="ablate-", dir=temporary_folder()) as folder:
        retraining = _Retraining(store, cache, engine, Path(folder), say, moved, accept_changed_code)
        again, diverged = retraining.train(trial, variant)
    return Reproduction(trial, record.name, stored, again, diverged, environment)


@dataclass(slots=True)
class _Retraining:
    """Trains trials again, and before them those whose weights they start from, where these were not kept.

    Attributes:
        folder: For the weights of those.
        accept: Whether the code of kinds may have changed.
        jobs: How many were trained.
    """

    store: Store
    cache: Path
    engine: Engine
    folder: Path
    say: Callable[[str], None]
    moved: Callable[[int, int], None]
    accept: bool
    jobs: int = 0

    def train(
        self, trial: TrialRecord, variant: VariantSpec, weights: str = ""
    ) -> tuple[tuple[CurvePoint, ...], Diverged | None]:
        """Train a trial again, and keep its weights if a file is named for them."""
        name = f"trial {trial.key[:12]}"
        _find_data(variant.task, self.cache, trial.data_fingerprint, name, self.say)
        reader = CodeReader()
        trained_by = stored_code(self.store.codes([trial.code]), trial.code)
        check_code(variant.code(reader), trained_by, name, self.say, accept=self.accept)
        weights_before = self.initial_weights(trial, variant, name)
        self.jobs += 1
        member = JobMember(
            variant.model_dump_json(),
            trial.seed,
            weights,
            initial_weights=weights_before,
            code=reader.of(variant).identity,
        )
        job = Job(self.jobs, (member,), trial.data_fingerprint)
        return _train(job, self.engine, name, lambda step: self.moved(step, variant.training.steps))

    def initial_weights(self, trial: TrialRecord, variant: VariantSpec, name: str) -> str:
        """The file or folder of the weights that a trial started from; empty if it started from random ones."""
        start = variant.training.init_from
        if start is None:
            return ""
        if start.stage is None:
            return start.source
        recordings = self.store.recordings(trial.key)
        transfers = [recording.values[TRANSFER] for recording in recordings if TRANSFER in recording.values]
        source = transfers[0].get("source") if transfers else None
        if not isinstance(source, str):
            raise SpaceError(
                "it started from the weights of another trial, which its record does not name",
                where=name,
                remedy="Run its study again in another store; it trains that stage again too.",
            )
        before = self.store.trial(Path(source).stem)
        kept = Path(weights_file(before.key, self.store.where))
        if kept.exists():
            return str(kept)
        self.say(f"The weights that it started from were not kept: trial {before.key[:12]} is trained again first")
        stage = stored_variant(
            self.store.variant(before.variant_hash).spec,
            f"trial {before.key[:12]}",
            homes={},
            trained_with=_trained_with(before),
        )
        file = str(self.folder / f"{before.key}{SUFFIX}")
        _, diverged = self.train(before, stage, file)
        if diverged is not None:
            raise EngineError(
                "the trial whose weights it starts from did not end as it did before",
                where=f"trial {before.key[:12]}",
                expected="the weights after its last step",
                got=f"a divergence at step {diverged.step}",
            )
        return file


def _find_data(task: TaskSpec, cache: Path, fingerprint: str, name: str, say: Callable[[str], None]) -> None:
    """Make sure that the cache holds the data of a trial, even if its source has changed since."""
    try:
        task.open(cache, fingerprint)
    except DataError:
        prepared = task.prepare(cache, say)
        if prepared != fingerprint:
            raise DataError(
                "its data is not what it was when the trial ran",
                where=name,
                expected=f"the data fingerprint {fingerprint[:12]}",
                got=f"{prepared[:12]}, which is what the same source gives now",
                remedy="Restore the text (and, for the standard library, the Python) that the trial saw.",
            ) from None


def _train(
    job: Job, engine: Engine, name: str, moved: Callable[[int], None]
) -> tuple[tuple[CurvePoint, ...], Diverged | None]:
    curve: list[CurvePoint] = []
    diverged: Diverged | None = None
    engine.submit(job)
    while True:
        for message in engine.poll(_POLL_SECONDS):
            match message:
                case Happened(event=Tick() as tick):
                    moved(tick.step)
                case Happened(event=Measurement() as point):
                    curve.append(curve_point(point, 0))
                    moved(point.step)
                case Happened(event=Diverged() as event):
                    diverged = event
                case Done():
                    return tuple(curve), diverged
                case Broken(_, reason, trace, log):
                    error = EngineError(f"training it again failed: {reason}", where=name)
                    error.add_note(trace or log)
                    raise error


def _trained_with(trial: TrialRecord) -> str:
    versions = trial.environment.versions if trial.environment else {}
    return f"ablate-blocks {versions['ablate-blocks']}" if "ablate-blocks" in versions else "not recorded"
