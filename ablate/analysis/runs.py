"""The trials of a study by variant and seed, and what they say: metrics, cost, speed, failures.

Which trials: those that are compared, or the fresh seeds that confirm. A variant that was declared before results is
judged by the study's seeds. One that was chosen by them looks better than it is on those very seeds: it has a verdict
only from seeds that took no part in the choice.

Speed is known where steps of a variant and of the baseline were timed in turns (`ablate study --time`). The clocks of
trials say nothing about that: each trial ran beside other work, at another time (`ablate.analysis.times`).
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from ablate.analysis.numbers import listed, plural
from ablate.analysis.times import Target, costs_by_round, rates_by_seed
from ablate.designs.ladder import RUNG
from ablate.metrics import CACHE, COSTS, DECODE, INFERENCE, PREFILL, TIMED
from ablate.spec.code import stage_identity, timed_identity
from ablate.spec.design import BASELINE
from ablate.spec.fairness import BUDGET
from ablate.spec.suite import on_data
from ablate.spec.task import task_hash
from ablate.stats import Direction, SeedPlan, seeds_declared
from ablate.store.records import (
    WINDOWS,
    CurvePoint,
    Declaration,
    Recording,
    SpeedTiming,
    StudyRecord,
    TrialRecord,
    TrialState,
    VariantRecord,
)

Curve = Sequence[CurvePoint]


class StudyReader(Protocol):
    """The part of a store's interface that reports use."""

    def study(self, name: str) -> StudyRecord:
        """The study of this name.

        Raises:
            NotFoundError: There is none.
        """

    def trials(self, keys: Sequence[str]) -> dict[str, TrialRecord]:
        """The trials that exist, by key."""

    def curves(self, keys: Sequence[str]) -> dict[str, tuple[CurvePoint, ...]]:
        """The curves of the trials that exist, by key, in the order of their steps."""

    def timings(self, keys: Sequence[str]) -> dict[str, tuple[SpeedTiming, ...]]:
        """How fast the variants of trials train, by key, as far as they were timed."""

    def evaluations(self, keys: Sequence[str]) -> dict[str, tuple[CurvePoint, ...]]:
        """The points with a finite validation loss of the trials that have some, by key, by step."""

    def recordings(self, key: str) -> tuple[Recording, ...]:
        """What was recorded of a trial, by step."""

    def codes(self, identities: Sequence[str]) -> Mapping[str, Mapping[str, Any]]:
        """What identities of code stand for."""


class FinalResults:
    """The methods of a `StudyReader` over trials that left final metrics alone; a subclass has `study`."""

    _trials: Mapping[str, TrialRecord]

    def trials(self, keys: Sequence[str]) -> dict[str, TrialRecord]:
        """The trials that exist, by key."""
        return {key: self._trials[key] for key in keys if key in self._trials}

    def curves(self, keys: Sequence[str]) -> dict[str, tuple[CurvePoint, ...]]:
        """None."""
        return {}

    def evaluations(self, keys: Sequence[str]) -> dict[str, tuple[CurvePoint, ...]]:
        """None."""
        return {}

    def timings(self, keys: Sequence[str]) -> dict[str, tuple[SpeedTiming, ...]]:
        """None: nothing was timed side by side."""
        return {}

    def recordings(self, key: str) -> tuple[Recording, ...]:
        """None."""
        return ()

    def codes(self, identities: Sequence[str]) -> Mapping[str, Mapping[str, Any]]:
        """None: the code that trained them is not known."""
        return {}


@dataclass(frozen=True, slots=True)
class VariantRuns:
    """The trials of one variant by seed, and quantities derived from them.

    Attributes:
        states: Planned seed to the state of its trial.
        finished: Trials that finished with a finite objective.
        diverged: Trials that diverged, or finished with an objective that is not a number.
        pruned: Trials that their design ended early: no results.
        failed: Trials that ended in an error: no results either.
        windows: Where nothing was trained, so that windows are paired instead of seeds: metric to
            window to value. Empty elsewhere.
        stages: Seed to the trials, of stages of the study, that a trial's weights come from; the last one first.
        timed: Cost to its value in each round of the timing (`costs_by_round`); empty if it was not timed.
        target: The metric that is the time to a target, which is compared as a ratio; empty if the objective is none.
        unreached: Seeds that ended above the target; their time is that at which they ended, and the true one longer.
        unknown: Why the time to the target is not known, as a clause; empty if it is.
        rules: The metrics of the trivial baselines of its task, by name.
        unplanned: How many of the fixed number of seeds that the study declares its design has not asked for: results
            may have decided that.
    """

    states: dict[int, TrialState]
    finished: dict[int, TrialRecord]
    diverged: dict[int, TrialRecord]
    pruned: dict[int, TrialRecord]
    failed: dict[int, TrialRecord] = field(default_factory=dict)
    windows: dict[str, dict[int, float]] = field(default_factory=dict)
    timed: dict[str, dict[int, float]] = field(default_factory=dict)
    stages: dict[int, tuple[TrialRecord, ...]] = field(default_factory=dict)
    target: str = ""
    unreached: frozenset[int] = frozenset()
    unknown: str = ""
    rules: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    unplanned: int = 0

    def whole(self, seed: int) -> tuple[TrialRecord, ...]:
        """The finished trial of a seed with the stages before it."""
        return (self.finished[seed], *self.stages.get(seed, ()))

    @property
    def data(self) -> frozenset[str]:
        """Fingerprints of the data that its finished trials saw."""
        return frozenset(trial.data_fingerprint for trial in self.finished.values())

    @property
    def rates(self) -> dict[int, float]:
        """Round of the timing to training tokens a second; empty if it was not timed."""
        return self.timed.get("tokens_per_second", {})

    @property
    def has_ended(self) -> bool:
        """Whether no trial of it waits or runs."""
        return not any(state.is_open for state in self.states.values())

    def values(self, metric: str) -> dict[int, float]:
        """Seed to final metric of the finished trials that have it; window to metric where windows are paired."""
        if metric in self.windows:
            return self.windows[metric]
        return {seed: trial.metrics[metric] for seed, trial in self.finished.items() if metric in trial.metrics}

    def compared(self, metric: str) -> dict[int, float]:
        """The same on the scale on which differences are judged: logarithms of times to a target."""
        values = self.values(metric)
        return {seed: math.log(value) for seed, value in values.items()} if metric == self.target else values


def read_runs(store: StudyReader, record: StudyRecord, metric: str) -> dict[str, VariantRuns]:
    """Variant name to its trials in the order of seeds; `metric` is the objective's. Curves are left where they are."""
    keys = [planned.key for planned in record.planned]
    trials = store.trials(keys)
    runs = {variant.name: VariantRuns({}, {}, {}, {}, rules=_rules(record, variant)) for variant in record.variants}
    for planned in sorted(record.planned, key=lambda planned: planned.seed):  # looks take them in this order
        run, trial = runs[planned.variant], trials.get(planned.key)
        state = TrialState.WAITING if trial is None else trial.state
        # A trial may have ended in time with a loss that is not a number: that is not a result either.
        if trial is not None and state is TrialState.FINISHED and not math.isfinite(trial.metrics.get(metric, 0.0)):
            state = TrialState.DIVERGED
        run.states[planned.seed] = state
        ended = {
            TrialState.FINISHED: run.finished,
            TrialState.DIVERGED: run.diverged,
            TrialState.PRUNED: run.pruned,
            TrialState.FAILED: run.failed,
        }
        if trial is not None and state in ended:
            ended[state][planned.seed] = trial
    for name, stages in _stages(store, record).items():
        runs[name].stages.update(stages)
    timings = _timings(store, record, runs)
    for quantity, values in costs_by_round(timings, record.baseline).items():
        for name, rounds in values.items():
            runs[name].timed[quantity] = rounds
    if (target := Target.of(record)) is not None:
        runs = _with_times(runs, target, store, record, {timing.device for timing in timings.values()})
    if pairs_windows(record):
        for run in runs.values():
            for trial in run.finished.values():
                run.windows.update(_windows(store, trial.key))
        return runs
    return {
        name: replace(run, unplanned=max(0, _fixed_seeds(record, name) - len(run.states))) if run.states else run
        for name, run in runs.items()
    }


def _fixed_seeds(record: StudyRecord, name: str) -> int:
    """How many seeds a variant gets by the declaration of the study; 0 where results decide that."""
    if record.traits.chooses or record.judged is not None:
        return 0
    rung = _rung(name, record)
    seeds = (on_rung(record, rung) if rung else record).space.get("design", {}).get("seeds")
    return seeds if isinstance(seeds, int) else 0


def _rules(record: StudyRecord, variant: VariantRecord) -> Mapping[str, Mapping[str, float]]:
    """The metrics of the trivial baselines of a variant's task, by name; of the study's unless its variants differ."""
    if not any(on_data("", "") in name for name in record.trivial):
        return record.trivial
    end = on_data("", task_hash(json.dumps(variant.spec.get("task", {}))))
    return {name.removesuffix(end): of for name, of in record.trivial.items() if name.endswith(end)}


def _stages(store: StudyReader, record: StudyRecord) -> dict[str, dict[int, tuple[TrialRecord, ...]]]:
    """Variant to the stages before its trials; without the variants that start from no stage of the study."""
    variants = (*record.variants, *record.scout_variants)
    start = {variant.name: identity for variant in variants if (identity := _start(variant))}
    if not start:
        return {}
    hashes = {variant.name: variant.hash for variant in variants}
    planned = [trial for trial in (*record.planned, *record.scout_trials) if trial.variant in hashes]
    trials = store.trials([trial.key for trial in planned])
    known: dict[tuple[str, int], tuple[str, TrialRecord]] = {}
    for stage in planned:
        if stage.key in trials:
            trial = trials[stage.key]
            identity = stage_identity(hashes[stage.variant], trial.data_fingerprint)
            known[identity, stage.seed] = (stage.variant, trial)

    def before(variant: str, seed: int) -> tuple[TrialRecord, ...]:
        if (stage := known.get((start.get(variant, ""), seed))) is None:
            return ()
        return (stage[1], *before(stage[0], seed))

    seeds = [(trial.variant, trial.seed) for trial in record.planned if trial.variant in start]
    found = {(variant, seed): stages for variant, seed in seeds if (stages := before(variant, seed))}
    return {name: {seed: one for (of, seed), one in found.items() if of == name} for name in {of for of, _ in found}}


def _start(variant: VariantRecord) -> str:
    """The identity of what a variant starts from; empty if that is random."""
    return str((variant.spec.get("training", {}).get("init_from") or {}).get("identity", ""))


def _timings(store: StudyReader, record: StudyRecord, runs: Mapping[str, VariantRuns]) -> dict[str, SpeedTiming]:
    """Variant to its timing beside the baseline of the study; empty if none was timed."""
    digest = next((variant.hash for variant in record.variants if variant.name == record.baseline), "")
    code = next((planned.code for planned in record.planned if planned.variant == record.baseline), "")
    baseline = timed_identity(digest, code)  # one of other code was as fast as another model
    keys = {trial.key: name for name, run in runs.items() for trial in run.finished.values()}
    return {
        keys[key]: timing
        for key, known in store.timings(list(keys)).items()
        for timing in known
        if timing.baseline == baseline
    }


def _with_times(
    runs: Mapping[str, VariantRuns], target: Target, store: StudyReader, record: StudyRecord, devices: set[str]
) -> dict[str, VariantRuns]:
    """The trials with the time to a target as one more metric, where it is known."""
    evaluated = store.evaluations([trial.key for run in runs.values() for trial in run.finished.values()])
    found = {}
    for name, run in runs.items():
        rates, unknown = dict.fromkeys(run.states, 1.0), ""
        if target.measure == "seconds" and not (unknown := _why_untimed(name, run, record, devices)):
            rates = rates_by_seed(run.rates, sorted(run.states))
        times: dict[int, float] = {}
        reached = set()
        for seed, trial in run.finished.items() if not unknown else ():
            time, there = target.time(evaluated[trial.key], rates[seed]) if trial.key in evaluated else (None, False)
            if time is None:
                why = "was at the target before its first step" if there else "has no evaluations"
                unknown = f"seed {seed} of {name} {why}"
                break
            times[seed] = time
            if there:
                reached.add(seed)
        known = {} if unknown else times
        finished = {
            seed: replace(trial, metrics={**trial.metrics, target.name: known[seed]}) if seed in known else trial
            for seed, trial in run.finished.items()
        }
        unreached = frozenset(known) - reached
        found[name] = replace(run, finished=finished, target=target.name, unreached=unreached, unknown=unknown)
    return found


def untimed(study: str, names: Sequence[str] = ()) -> str:
    """Why a quantity that is timed is not known, as a clause: the timing lacks these variants; without names, all."""
    who = f"{' and '.join(names)} {'was' if len(names) == 1 else 'were'} not" if names else "no variant was"
    return f"{who} timed; `ablate resume {study} --time` does"


def _why_untimed(name: str, run: VariantRuns, record: StudyRecord, devices: set[str]) -> str:
    """Why the seconds of a variant's training are not known, as a clause; empty if they are."""
    again = f"`ablate resume {record.name} --time` times them again"
    if not devices:
        return untimed(record.name)
    if len(devices) > 1:
        return f"variants were timed on {listed(sorted(devices))}, and seconds are compared on one device; {again}"
    if not run.rates:
        return f"the timing lacks {name}; {again}"
    if len(run.rates) < len(run.states):
        rounds = plural(len(run.rates), "round")
        return f"the timing of {name} has {rounds}, fewer than its {plural(len(run.states), 'seed')}; {again}"
    return ""


def baselines_of(record: StudyRecord) -> dict[str, str]:
    """Variant name to that of the baseline that it is compared with: that at the same value, budget or rung.

    A sweep of the baseline alone compares its values with the first.
    """
    names, path = [variant.name for variant in record.variants], record.space.get("design", {}).get("path")
    ends = {name: _axis_ending(name, record) for name in names}
    if path and all(name == BASELINE + end for name, end in ends.items()):
        return dict.fromkeys(names, record.baseline)
    first = BASELINE if path else record.baseline.removesuffix(_axis_ending(record.baseline, record))
    return {name: first + end if first + end in ends else record.baseline for name, end in ends.items()}


def _axis_ending(name: str, record: StudyRecord) -> str:
    """The end of a name that says where on the axes of its study a variant is; names of judged runs have none."""
    design = record.space.get("design", {})
    axes = (design.get("path"), record.space.get("budgets") and BUDGET, design.get("rungs") and RUNG)
    ends = (name.partition(f"@{axis}=")[1:] for axis in axes if axis)
    return "".join(next(filter(any, ends), ()))


def _rung(name: str, record: StudyRecord) -> int:
    """The rung in the name of a variant of a ladder; 0 without one."""
    return int(name.partition(f"@{RUNG}=")[2] or 0) if record.space.get("design", {}).get("rungs") else 0


def pairs_windows(record: StudyRecord) -> bool:
    """Whether a study pairs validation windows: its baseline is evaluated as it is, once."""
    baseline = next((variant for variant in record.variants if variant.name == record.baseline), None)
    seeds = {planned.seed for planned in record.planned}
    return baseline is not None and not is_trained(baseline) and len(seeds) == 1


def is_trained(variant: VariantRecord) -> bool:
    """Whether the trials of a variant take a step, rather than evaluate a model as it is."""
    return bool(variant.spec.get("training", {}).get("steps", 1))


def _windows(store: StudyReader, key: str) -> dict[str, dict[int, float]]:
    """Metric to window to value, of the last time that they were measured; windows without a finite value left out."""
    recorded = [recording.values[WINDOWS] for recording in store.recordings(key) if WINDOWS in recording.values]
    return {
        metric: {place: value for place, value in enumerate(values) if value is not None}
        for metric, values in (recorded[-1] if recorded else {}).items()
    }


def seed_schedule(record: StudyRecord) -> SeedPlan | None:
    """How a study adds seeds; None if their number is fixed and was so from its first results on."""
    if rung := _rung(record.baseline, record):
        record = on_rung(record, rung)
    now = record.space.get("design", {}).get("seeds")
    return seeds_declared([*(before.seeds_seen for before in record.declared_before), now])


def on_rung(record: StudyRecord, rung: int) -> StudyRecord:
    """A ladder with the seeds that one rung has and had before, and the pairs that had been seen there."""
    end = f"@{RUNG}={rung}"

    def here(space: Mapping[str, Any], name: str) -> Any:
        values = space.get("design", {}).get(name) or ()
        return values[rung - 1] if len(values) >= rung else None

    def seeds(space: Mapping[str, Any]) -> Any:
        return here(space, "seeds_per_rung") or space.get("design", {}).get("seeds")

    def declared(before: Declaration) -> Declaration:
        if not before.space:
            return before
        others = [n for name, n in before.variants.items() if name.endswith(end) and name != BASELINE + end]
        pairs = min(before.variants.get(BASELINE + end, 0), max(others, default=0))
        same = here(before.space, "rungs") == here(record.space, "rungs")
        return replace(before, seeds=seeds(before.space), pairs=pairs if same else 0)

    space = {**record.space, "design": {**record.space.get("design", {}), "seeds": seeds(record.space)}}
    return replace(record, space=space, declared_before=tuple(map(declared, record.declared_before)))


def confirming_study(record: StudyRecord) -> StudyRecord:
    """A study with its confirming trials and seeds instead of those that choose.

    So fresh seeds that are added when some have been seen spend error as others do (`ablate.analysis.runs`).
    """
    seeds = len({planned.seed for planned in record.confirm_trials})
    before = tuple(
        replace(earlier, seeds=earlier.confirm or None, pairs=earlier.confirmed)
        for earlier in record.declared_before
        if earlier.pairs is not None
    )
    space = {**record.space, "design": {**record.space.get("design", {}), "seeds": seeds or None}}
    return replace(record, planned=record.confirm_trials, space=space, declared_before=before)


def read_confirming(store: StudyReader, record: StudyRecord) -> Mapping[str, VariantRuns]:
    """Variant name to the trials that confirm it; empty if none are planned."""
    if not record.confirm_trials:
        return {}
    runs = read_runs(store, confirming_study(record), record.objective["metric"])
    return {name: run for name, run in runs.items() if run.states}


MOST_SHOWN = 10
"""Failed trials that are listed with their reasons; the rest are counted."""


@dataclass(frozen=True, slots=True)
class Failure:
    """A trial that failed.

    Attributes:
        variant: Its variant's name.
        seed: Its seed.
        reason: What was recorded: a sentence, and often a traceback below it.
    """

    variant: str
    seed: int
    reason: str

    @property
    def line(self) -> str:
        """The first line of the reason."""
        return first_line(self.reason)


def failures_of(runs: Mapping[str, VariantRuns]) -> tuple[Failure, ...]:
    """The failed trials, variant by variant and seed by seed."""
    return tuple(
        Failure(variant, seed, trial.reason) for variant, run in runs.items() for seed, trial in run.failed.items()
    )


def first_line(reason: str) -> str:
    """The first line of a reason; says so if none was recorded."""
    lines = reason.strip().splitlines()
    return lines[0].strip() if lines else "no reason was recorded"


UNITS = {
    "flops": "FLOP",
    "activation_bytes": "bytes",
    "seconds": "s",
    **dict.fromkeys(("tokens_per_second", PREFILL, DECODE), "tokens/s"),
    CACHE: "bytes",
}
"""Units of the figures of cost that have one."""
WORDS = {
    "flops": "training FLOP",
    "activation_bytes": "activation memory",
    "seconds": "seconds of training",
    "tokens_per_second": "tokens a second",
    PREFILL: "tokens read a second",
    DECODE: "tokens written a second",
    CACHE: "cache of a token",
}
"""What figures of cost are called where a person reads them; all others by their name."""

_COST_OF: Mapping[str, Callable[[VariantRecord, TrialRecord], float | None]] = {
    "parameters": lambda variant, trial: variant.parameters,
    "activation_bytes": lambda variant, trial: variant.activation_bytes,
}


def values_of(quantity: str, variant: VariantRecord, runs: VariantRuns) -> dict[int, float]:
    """Seed to the quantity, over the trials that finished with a finite one.

    For what is timed, the rounds of the timing to it; empty if the variant was not timed (`costs_by_round`).
    """
    if quantity in INFERENCE:
        known = runs.timed.get(quantity, {})
        if quantity in TIMED or not known:
            return known
        return dict.fromkeys(runs.finished, next(iter(known.values())))
    if quantity == "tokens_per_second":
        return runs.rates
    if quantity in TIMED:
        tokens = [sum(trial.tokens for trial in runs.whole(seed)) for seed in runs.finished]
        return {number: math.fsum(tokens) / len(tokens) / rate for number, rate in runs.rates.items() if tokens}
    cost = _COST_OF.get(quantity)
    if quantity == "flops":  # of its stages too
        return {seed: sum(trial.flops for trial in runs.whole(seed)) for seed in runs.finished}
    values = {
        seed: trial.metrics.get(quantity) if cost is None else cost(variant, trial)
        for seed, trial in runs.finished.items()
    }
    return {seed: float(value) for seed, value in values.items() if value is not None and math.isfinite(value)}


def direction_of(quantity: str, record: StudyRecord) -> Direction | None:
    """Which way a quantity is better; None for a metric that is not the study's objective."""
    if quantity == record.objective["metric"]:
        direction: Direction = record.objective["direction"]
        return direction
    return COSTS.get(quantity)


def words_for(quantity: str) -> str:
    """What a quantity is called in a report."""
    return WORDS.get(quantity, quantity)
