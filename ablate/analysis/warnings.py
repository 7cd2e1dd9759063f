"""What supports a study's answer and what limits it: a record for each, from which TRUST and the checks are made."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from ablate.analysis.changes import setting_titles
from ablate.analysis.fairness import MatchedBudgets, Tuning
from ablate.analysis.numbers import few, listed, percent, plural
from ablate.analysis.rows import VariantRow
from ablate.analysis.runs import Failure, VariantRuns, baselines_of
from ablate.analysis.times import Target
from ablate.metrics import CURVE_METRIC
from ablate.roles import TrialRole
from ablate.spec.paths import value_at
from ablate.spec.suite import on_data
from ablate.stats import Tails
from ablate.stats.hidden_noise import draw_variance
from ablate.store.records import StudyRecord, TrialRecord, TrialState

Level = Literal["ok", "weak", "void"]
LEVELS: tuple[Level, ...] = ("void", "weak", "ok")
Key = Literal[
    "evidence",
    "unlearnt",
    "beaten",
    "selected",
    "failed",
    "ended early",
    "diverged",
    "baseline diverged",
    "other task",
    "target",
    "edge",
    "timing",
    "table",
    "changed",
    "draw",
    "assumption",
    "missing",
    "elsewhere",
]
"""What a warning is about; of two of one level, a reader should know the earlier one first."""
WHICH = "{variants}"
"""Stands for the variants of a warning in its clause, which the answer calls by what they change."""
DRAW_SHARE = 0.1
"""Of the margin, beyond which there is a warning on the draw of validation data."""
WINDOWS = "task.validation_windows"


@dataclass(frozen=True, slots=True)
class StudyWarning:
    """One thing that supports an answer, or limits it.

    Attributes:
        key: What it is about.
        level: `ok`; `weak`: the answer holds with this limit; `void`: it does not hold for the variants concerned.
        text: A clause of one line, for TRUST, with `WHICH` for its variants; empty where only the checks say it.
        full: Whole sentences, for the checks; empty where the clause says it all.
        variants: Names of the variants that it concerns; empty if it concerns all.
        replaces_headline: Whether it leaves no answer at all.
    """

    key: Key
    level: Level
    text: str
    full: str = ""
    variants: tuple[str, ...] = ()
    replaces_headline: bool = False

    @property
    def word(self) -> str:
        """How the level is written: what is void for single variants is an exception from the answer."""
        return "except" if self.level == "void" and not self.replaces_headline else self.level


def target_limits(record: StudyRecord, rows: Sequence[VariantRow]) -> Iterator[StudyWarning]:
    """What limits the comparison of times to a target: runs that never reach it, and a target that needs no model."""
    target = Target.of(record)
    if target is None:
        return
    here = {name: values for name, values in record.trivial.items() if on_data("", "") not in name}
    known = [values[CURVE_METRIC] for values in here.values() if CURVE_METRIC in values]
    if known and target.reach >= min(known):
        text = f"the target {target.reach:g} is not below the best trivial baseline ({min(known):.4g})"
        yield StudyWarning("target", "weak", text, f"{text[0].upper()}{text[1:]}, so reaching it shows little.")
    if late := [row for row in rows if row.unreached]:
        named = few([f"{row.unreached} of {plural(len(row.finished), 'run')} of {row.name}" for row in late])
        unreached, runs = sum(row.unreached for row in late), sum(len(row.finished) for row in late)
        text = f"{unreached} of {plural(runs, 'run')} ended above the target {target.reach:g}: {WHICH}"
        full = (
            f"Censored: {named} ended above the target {target.reach:g}. They count with the time at which they ended, "
            "and the true one is longer: such a variant can be shown to be worse, and nothing else. A longer training, "
            "or a target that all reach, gives intervals."
        )
        yield StudyWarning("target", "weak", text, full, tuple(row.name for row in late))


def trust_lines(warnings: Iterable[StudyWarning]) -> tuple[StudyWarning, ...]:
    """Those with a clause: the evidence, then what limits it, the most serious first."""
    keys = get_args(Key)
    said = [warning for warning in warnings if warning.text]
    return tuple(
        sorted(said, key=lambda said: (said.key != "evidence", LEVELS.index(said.level), keys.index(said.key)))
    )


def support(
    record: StudyRecord,
    progress: Mapping[TrialState, int],
    rows: Sequence[VariantRow],
    unit: str,
    tuning: Tuning | None,
    matching: MatchedBudgets,
) -> StudyWarning:
    """What the answer rests on: trials, paired seeds, what is tuned and what is equal."""
    if record.judged is not None:
        return StudyWarning("evidence", "ok", f"{record.judged.evidence}; judged, not trained here")
    tasks = record.space.get("tasks")
    on_tasks = f" on {len(tasks)} tasks" if tasks else ""
    said = [f"{progress[TrialState.FINISHED]:,}/{plural(sum(progress.values()), 'trial')}{on_tasks}"]
    pairs = [row.difference.n for row in rows if row.difference is not None]
    if pairs:
        fewest, most = min(pairs), max(pairs)
        said.append(plural(most, f"paired {unit}") if fewest == most else f"{fewest} to {most} paired {unit}s")
    if unit == "window":
        said.append("one trained model")
    untuned = sum(tuned.values is None for tuned in tuning.of.values()) if tuning is not None else 0
    if tuning is not None:
        paths = listed(setting_titles(tuning.grid).values())
        said.append(f"{paths} still being tuned" if untuned else f"{paths} tuned for every variant")
    if matching.path is not None:
        said.append(f"equal {matching.equal}")
    missing = progress[TrialState.WAITING] + progress[TrialState.RUNNING]
    if missing:
        said.append(f"{missing:,} still missing")
    return StudyWarning("evidence", "weak" if missing or untuned else "ok", ", ".join(said))


def limits_of_table(record: StudyRecord) -> Iterator[StudyWarning]:
    """Warnings on runs that were trained elsewhere: how they were read, what limits the answer, what is not known."""
    if record.judged is None:
        return
    yield StudyWarning("table", "ok", "", f"Judged, not trained here. {_sentence(record.judged.evidence)}")
    for level, text in record.judged.limits:
        yield StudyWarning("table", level, text, _sentence(text))
    for note in record.judged.notes:
        yield StudyWarning("table", "ok", "", note)
    shared = "equal seeds shared batches (if they did not, pairing gains nothing), whether "
    full = (
        f"A table does not say whether {shared * (record.unit == 'seed')}every variant was tuned (if not, a verdict is "
        "on these settings alone), nor whether runs were selected or left out (if they were, every verdict is "
        "optimistic)."
    )
    yield StudyWarning("table", "ok", "", full)
    if not all(record.pairs(variant.name) for variant in record.variants if variant.name != record.baseline):
        full = (
            "Welch's t-test compares means that are not paired. Its 5 % are up to 6 % where the side with fewer runs "
            "scatters three times as much as the other."
        )
        yield StudyWarning("table", "ok", "", full)


def _sentence(clause: str) -> str:
    return f"{clause}{'' if clause.endswith(('.', '?')) else '.'}"  # it may begin with a name: no capital


def missing_trials(progress: Mapping[TrialState, int], tuning: Tuning | None) -> Iterator[StudyWarning]:
    """A warning if trials have not ended, or if variants are still being tuned."""
    trials = progress[TrialState.WAITING] + progress[TrialState.RUNNING]
    untuned = [name for name, tuned in tuning.of.items() if tuned.values is None] if tuning else []
    if trials:
        full = f"This answer is provisional: {trials:,} {'trial is' if trials == 1 else 'trials are'} still missing."
        yield StudyWarning("missing", "weak", "", full)
    elif untuned:
        are = "is" if len(untuned) == 1 else "are"
        full = f"This answer is provisional: {listed(untuned)} {are} still being tuned."
        yield StudyWarning("missing", "weak", "", full, tuple(untuned))


def lost_trials(
    failures: Sequence[Failure], rows: Sequence[VariantRow], baseline: VariantRow, unit: str
) -> Iterator[StudyWarning]:
    """Warnings if trials failed or diverged: of variants that are then not compared, or of the baseline."""
    if failures:
        names = tuple(dict.fromkeys(failure.variant for failure in failures))
        failed = f"{plural(len(failures), 'trial')} failed"
        full = f"{failed} ({listed(names)}): the comparisons with these variants lack {unit}s."
        yield StudyWarning("failed", "weak", f"{failed} ({WHICH})", full, names)
    if others := [row for row in rows if row.diverged and row.name != baseline.name]:
        counts = [f"{row.name} at {len(row.diverged)} of {plural(len(row.planned), unit)}" for row in others]
        full = (
            f"Training diverged: {listed(counts)}. These variants have no mean, because the {unit}s that finished are "
            "a biased selection."
        )
        yield StudyWarning("diverged", "weak", "", full, tuple(row.name for row in others))
    if lost := len(baseline.diverged):
        full = (
            f"Training of the baseline diverged at {lost} of {plural(len(baseline.planned), unit)}. No variant is "
            f"compared with it at these {unit}s."
        )
        yield StudyWarning("baseline diverged", "weak", f"the baseline diverged at {plural(lost, unit)}", full)


def ended_early(early: Mapping[str, str]) -> Iterator[StudyWarning]:
    """A warning if results of the user's trainer are of an earlier step than others (`early_ends`)."""
    if not early:
        return
    named = [f"{name} ({clause})" for name, clause in early.items()]
    full = (
        f"Unequal training, without an error: {listed(named)}. A trainer that did not mean to stop there should exit "
        "with a code other than 0: its trial has failed then, and is tried again."
    )
    yield StudyWarning("ended early", "weak", f"unequal training: {few(named)}", full, tuple(early))


def tuning_edges(tuning: Tuning | None, rows: Sequence[VariantRow], baseline: VariantRow) -> Iterator[StudyWarning]:
    """A warning if tuned values lie at an edge of their grid where a better value could turn a verdict.

    A better value outside can only help the variant that lies at the edge. So a variant that is not worse anyway stays
    so, and the baseline's edge does not matter to a variant that is worse anyway.
    """
    if tuning is None:
        return
    judged = [(row, row.verdict) for row in rows if row.verdict is not None]
    helped = any(not verdict.is_worse and verdict.word != "diverged" for _, verdict in judged)
    named = [baseline.name] if baseline.name in tuning.edges and helped else []
    named += [row.name for row, verdict in judged if row.name in tuning.edges and not verdict.is_acceptable]
    if named:
        paths = dict.fromkeys(path for name in named for path in tuning.of[name].edges)
        turned = "its verdict" if len(named) == 1 else "their verdicts"
        full = (
            f"The best {listed(paths)} lies at an edge of the tuning grid for {listed(named)}: a better value may lie "
            f"outside and turn {'verdicts' if named[0] == baseline.name else turned}. Widen the grid."
        )
        yield StudyWarning("edge", "weak", f"best value at the edge of the tuning grid: {WHICH}", full, (*named,))


def timed_apart(record: StudyRecord, runs: Mapping[str, VariantRuns]) -> Iterator[StudyWarning]:
    """A warning if steps were timed on several devices, so that equal seconds are not equal.

    Args:
        record: The study.
        runs: Variant name to its trials, of those that tune or time others.
    """
    timing = {planned.variant for planned in record.scout_trials if planned.role is TrialRole.TIMING}
    trials = [trial for name in timing if name in runs for trial in runs[name].finished.values()]
    devices = sorted({trial.environment.device for trial in trials if trial.environment is not None})
    if len(devices) > 1:
        text = f"steps were timed on {len(devices)} devices"
        full = (
            f"Steps were timed on {len(devices)} devices ({listed(devices)}), so that variants do not train equally "
            "long. Run the study into a new store on one of them."
        )
        yield StudyWarning("timing", "weak", text, full)


def changes_after_results(sentences: Iterable[str]) -> Iterator[StudyWarning]:
    """A warning for each sentence on a change after results; the clause is its beginning."""
    for sentence in sentences:
        first = sentence.partition(". ")[0].rstrip(".")
        yield StudyWarning("changed", "weak", f"{first[0].lower()}{first[1:]}", sentence)


def selected_variants(rows: Sequence[VariantRow]) -> Iterator[StudyWarning]:
    """A warning if results selected variants and no fresh seeds have confirmed them."""
    if names := tuple(row.name for row in rows if row.chosen):
        who = f"{plural(len(names), 'variant')} {'was' if len(names) == 1 else 'were'}"
        full = (
            f"{who} chosen by results and not confirmed by fresh seeds. Selection biases their estimates, so they have "
            "no verdict."
        )
        text = f"{len(names)} without a verdict, because they were not tried on fresh seeds"
        yield StudyWarning("selected", "weak", text, full, names)


def assumption(rows: Sequence[VariantRow], tails: Tails | None, windows: int, unit: str) -> str | None:
    """On what condition verdicts hold, as the end of a sentence on one; None where there is none, or it is not open."""
    if tails is not None:
        how = "worse" if tails.skewness > 0 else "better"
        return f"allows for a few {unit}s that end far {how} than the others"
    bounds = [row.verdict.bound for row in rows if row.verdict is not None and row.verdict.is_decided]
    seeds = [bound.n for bound in bounds if bound is not None]
    if windows or not seeds:
        return None
    return f"assumes symmetric noise, which {min(seeds)} {unit}s are too few to check"


def draw_noise(record: StudyRecord, runs: Mapping[str, VariantRuns]) -> float | None:
    """Standard deviation of a variant's mean difference over draws of validation data as large as this one.

    All variants and seeds of a study share one draw, and an interval over seeds does not show its noise: another draw
    would move every seed's difference alike. Each trial measures its final metrics over parts of the validation data
    too. The noise of the draw is what the differences of these parts vary by, beyond what they vary by from seed to
    seed. The median over the variants, as those that differ much differ on each part by another amount, and are decided
    anyway; None without a variant of two seeds that were measured in parts.

    Args:
        runs: Variant name to its trials.
    """
    metric, baselines = record.objective["metric"], baselines_of(record)
    variances = [
        variance
        for name, run in runs.items()
        if name != baselines[name] and not run.diverged and not run.pruned
        if (variance := draw_variance(list(_gaps(run.finished, runs[baselines[name]].finished, metric)))) is not None
    ]
    return math.sqrt(max(0.0, statistics.median(variances))) if variances else None


def _gaps(
    finished: Mapping[int, TrialRecord], baseline: Mapping[int, TrialRecord], metric: str
) -> Iterator[Sequence[float]]:
    """Differences over the parts of the validation data, seed by seed."""
    for seed in sorted(finished.keys() & baseline.keys()):
        ours, theirs = finished[seed].parts.get(metric, ()), baseline[seed].parts.get(metric, ())
        gaps = [our - other for our, other in zip(ours, theirs, strict=False)]
        if gaps and len(ours) == len(theirs) and all(map(math.isfinite, gaps)):
            yield gaps


def validation_draw(noise: float | None, margin: float, record: StudyRecord) -> Iterator[StudyWarning]:
    """A warning if the draw of validation data matters, with the number of windows that would suffice."""
    if noise is None or noise <= DRAW_SHARE * margin:
        return
    baseline = next(variant for variant in record.variants if variant.name == record.baseline)
    try:
        windows = int(value_at(baseline.spec, WINDOWS))
    except (KeyError, TypeError, ValueError):
        remedy = "More validation data reduces it"
    else:
        enough = _rounded_up(windows * (noise / (DRAW_SHARE * margin)) ** 2)
        remedy = f"`{WINDOWS}: {enough}` reduces it to a tenth of the margin"
    share = percent(noise / margin).lstrip("+")
    full = (
        f"All differences are measured on one draw of validation data. Between draws a difference varies by about "
        f"{noise:.1g} (standard deviation, median over variants), {100 * noise / margin:.0f} % of the margin "
        f"{margin:g}. The intervals do not include this variance. {remedy}."
    )
    yield StudyWarning(
        "draw", "weak", f"another draw of validation data would move differences by {share} of the margin", full
    )


def _rounded_up(windows: float) -> int:
    """To two significant digits."""
    unit = int(10 ** max(0, math.floor(math.log10(windows)) - 1))
    return math.ceil(windows / unit) * unit
