"""The answer to a study's question: a headline, rows grouped by verdict, how far to trust it, what to do next.

Every output (terminal, reports, JSON, dashboard, notebook) shows this record, in this order. Numbers keep the sign of
the metric: variant minus baseline.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from ablate.analysis.columns import shared_decimals
from ablate.analysis.continuing import NextStep, next_steps
from ablate.analysis.effects import EffectRow
from ablate.analysis.ladder import climb_lines
from ablate.analysis.numbers import bound_text, decimals_for, fixed, percent
from ablate.analysis.report import StudyReport
from ablate.analysis.rows import VariantRow
from ablate.analysis.scaling import Scaling
from ablate.analysis.suite import Suite, suite_of
from ablate.analysis.text import few, listed, plural
from ablate.analysis.warnings import StudyWarning, trust_lines
from ablate.errors import NotFoundError
from ablate.spec.design import BASELINE

GroupKey = Literal[
    "better", "can go", "as good", "must stay", "worse", "not known", "unproven", "running", "lost", "no answer"
]

TITLES: dict[GroupKey, str] = {
    "better": "Better, by more than the margin",
    "can go": "Can go, one at a time",
    "as good": "As good: not worse by the margin or more",
    "must stay": "Must stay",
    "worse": "Worse, by more than the margin",
    "not known": "Not known: more seeds are needed",
    "unproven": "Selected by results, not confirmed on fresh seeds",
    "running": "Still running: no verdict before all seeds have ended",
    "lost": "Not compared",
    "no answer": "No answer yet: the models have learnt too little",
}
"""Groups of an answer in the order in which they are shown, with their headings."""
SMALLER = 0.01
"""Share of the parameters from which a block that has fewer is called smaller."""
SUSPICIOUS = 10
"""Margins by which a better variant suggests that something is wrong with the baseline."""
_WITHHELD = {
    "tun": "tuning",
    "tail": "rare seeds",
    "scatter": "rare seeds",
    "timed": "not timed",
    "never reached": "censored",
    "failed": "failures",
    "diverged": "failures",
}
"""What a sentence on an allowance mentions, to why the verdict is withheld, in two words."""
MOST_NAMED = 2
"""Parts that a headline names; it counts more of them."""


@dataclass(frozen=True, slots=True)
class AnswerRow:
    """One variant of an answer.

    Attributes:
        variant: Its name.
        words: What it changes, in words: `the normalisation`, or `softmax attention → SimpleTRON`.
        verdict: `better`, `not needed`, `not worse`, `needed`, `worse`, `undecided`, `diverged`, or why there is none.
        difference: Metric of the variant minus that of the baseline, paired by seed; None if they are not compared.
        low: Lower bound of the two-sided 95 % interval of the difference.
        high: Upper bound of the same.
        bound: The one-sided bound that the verdict rests on, with the sign of `difference`; None if it rests on none.
        bound_text: That bound as text (`≤ +0.11`), or how many more seeds may decide it (`+12 seeds`).
        jointly: Whether the verdict also holds jointly with all others (Holm's procedure).
        parameter_change: (parameters - those of the baseline) / those of the baseline; None if not known.
        warning: What to know about this row alone, in a few words; mostly empty.
        finished: How many of its trials have finished.
        planned: How many are planned.
    """

    variant: str
    words: str
    verdict: str
    difference: float | None
    low: float | None
    high: float | None
    bound: float | None
    bound_text: str
    jointly: bool
    parameter_change: float | None
    warning: str
    finished: int
    planned: int


@dataclass(frozen=True, slots=True)
class AnswerGroup:
    """Rows with the same verdict, sorted by the bound that it rests on, the best first.

    Attributes:
        key: Which verdict.
        title: Heading of the group.
        rows: At least one.
    """

    key: GroupKey
    title: str
    rows: tuple[AnswerRow, ...]


@dataclass(frozen=True, slots=True)
class Answer:
    """What a study found, on one screen.

    Attributes:
        study: Name of the study.
        question: Of the study, as its space states it.
        headline: What can go and what must stay, in one to three short sentences.
        groups: The compared variants by verdict, in the order of `TITLES`.
        scale: On a ladder, a line for each variant: its differences by rung, and what larger models would show.
        trust: Whether to believe it, at most three lines.
        next: Commands that would settle or extend it.
        claims: How many claims have each verdict: `supported`, `refuted`, `undecided`; empty without claims.
        metric: Name of the objective's metric.
        margin: How much worse matters, in its unit.
        worse: 1 where a larger metric is worse, else -1.
        baseline: Mean metric of the baseline over its seeds; None if it has none, or another at each place of a sweep.
        decimals: With how many decimals values and differences are written, in all rows alike.
        unit: What is paired: `seed`, or `window` where nothing was trained.
        pairing: Whether and by what the variants are paired with the baseline: `paired by seed`.
        suite: Of a study with several tasks, the variants on each of them; its groups are by mean score. Else None.
        relative: Whether differences and the margin are shares of the baseline's value: 0.05 is 5 % more.
    """

    study: str
    question: str
    headline: tuple[str, ...]
    groups: tuple[AnswerGroup, ...]
    scale: tuple[str, ...]
    trust: tuple[StudyWarning, ...]
    next: tuple[NextStep, ...]
    claims: dict[str, int]
    metric: str
    margin: float
    worse: int
    baseline: float | None
    decimals: int
    unit: str
    pairing: str
    suite: Suite | None
    relative: bool

    @property
    def rows(self) -> tuple[AnswerRow, ...]:
        """All rows, in the order in which they are shown."""
        return tuple(row for group in self.groups for row in group.rows)


def answer_of(report: StudyReport) -> Answer:
    """Group the variants of a study by verdict and say what follows from them."""
    worse = 1 if report.direction == "minimize" else -1
    compared = compared_rows(report)
    counts = Counter(row.change for row in compared)
    by_group: dict[GroupKey, list[AnswerRow]] = {key: [] for key in TITLES}
    places = _places(report)
    for row in compared:
        words = places.get(row.name) or _added(row.name, report) or row.change.words or row.name
        if counts[row.change] > 1 and row.change.words:
            words += f" ({row.name})"
        by_group[_group_of(row) if report.answer.learnt else "no answer"].append(_row(row, words, report))
    groups = tuple(
        AnswerGroup(key, TITLES[key], tuple(sorted(rows, key=_badness(worse))))
        for key, rows in by_group.items()
        if rows
    )
    trust = trust_lines(report.answer.warnings)
    swept = report.scaling is not None and report.scaling.is_swept
    baseline = None if swept else report.baseline.mean(report.metric)
    return Answer(
        study=report.record.name,
        question=report.record.question or report.record.name,
        headline=_headline(groups, trust, report),
        groups=groups,
        scale=tuple(_scale(groups, report)),
        trust=trust,
        next=next_steps(report) if report.answer.learnt else (),
        claims={
            word: count
            for word in ("supported", "refuted", "undecided")
            if (count := sum(claim.verdict == word for claim in report.answer.claims))
        },
        metric=report.metric,
        margin=report.margin,
        worse=worse,
        baseline=None if baseline is None else baseline.mean,
        decimals=shared_decimals(report),
        unit=report.unit,
        pairing=report.pairing,
        suite=suite_of(report, {row.variant: row.words for group in groups for row in group.rows}),
        relative=report.rule.relative,
    )


def _added(name: str, report: StudyReport) -> str:
    """What a variant puts back into a named one: `plainest + norm=kept`; empty for any other variant."""
    origin, _, setting = name.rpartition(",")
    return f"{origin} + {setting}" if "=" not in origin and any(row.name == origin for row in report.variants) else ""


def verdicts_on_parts(report: StudyReport) -> list[tuple[Mapping[str, Any], str]]:
    """Whether parts of the baseline's block are needed, for a drawing of it.

    Returns:
        `model` of the spec of each variant that removes something with one switch and changes nothing else, with
        `needed`, `dispensable` or `open`. None without models of blocks, or if the models have learnt too little.
    """
    models = {variant.name: variant.spec.get("model", {}) for variant in report.record.variants}
    first, found = models[report.record.baseline], []
    for row in report.variants if report.answer.learnt and "block" in first else ():
        turned = sum(row.settings.get(switch) != kept for switch, kept in report.baseline.settings.items())
        if row.verdict is not None and turned == 1 and row.change.only_removes:
            word = "dispensable" if row.verdict.is_acceptable else "needed" if row.verdict.is_worse else "open"
            found.append((models[row.name], word))
    return found


def _scale(groups: Sequence[AnswerGroup], report: StudyReport) -> Iterator[str]:
    if report.climbs is not None:
        words = {row.variant: row.words for group in groups for row in group.rows}
        largest = report.record.baseline.removeprefix(BASELINE)
        for name, line in climb_lines(report.climbs, shared_decimals(report)):
            yield f"{words.get(name + largest, name)}: {line}"


def compared_rows(report: StudyReport) -> list[VariantRow]:
    """The variants that an answer has a row for; one of a sweep has one, with its comparison at the last place."""
    rows = {row.name: row for row in report.variants if row.name != report.record.baseline}
    if report.scaling is None or not report.scaling.is_swept:
        return list(rows.values())
    last = {_at_last(one, report): one.points[-1] for one in report.scaling.of}
    return [
        replace(rows[name], difference=point.difference, verdict=point.verdict, parameter_change=None)
        for name, point in last.items()
    ]


def compared_row(report: StudyReport, variant: str, where: str) -> VariantRow:
    """The row of a variant that an answer has.

    Args:
        where: The option that names it, for the error.

    Raises:
        NotFoundError: The study compares no such variant.
    """
    rows = {row.name: row for row in compared_rows(report)}
    if variant not in rows:
        raise NotFoundError(
            f"study {report.record.name!r} compares no variant {variant!r}",
            where=where,
            expected=f"one of {listed(rows)}" if rows else "a study with variants",
            got=repr(variant),
        )
    return rows[variant]


def _at_last(scaling: Scaling, report: StudyReport) -> str:
    """The name of a variant at the last place of the axis; at a budget all places share the name."""
    assert report.scaling is not None
    if not report.scaling.is_swept:
        return scaling.variant
    beginning = f"{scaling.variant}@{report.scaling.axis}="
    values = {row.name: row.name.removeprefix(beginning) for row in report.variants if row.name.startswith(beginning)}
    return next(name for name, value in values.items() if float(value) == scaling.points[-1].at)


def _places(report: StudyReport) -> dict[str, str]:
    """The variants of a sweep at its last place to the places at which their verdict holds, in words."""
    if report.scaling is None or not report.scaling.is_swept:
        return {}
    axis = report.scaling.axis
    name = axis.rpartition(".")[2]
    return {
        _at_last(one, report): f"{one.variant} at {name} "
        + ("" if one.outcome in _ELSEWHERE else f"{one.points[0].at:g} to ")
        + f"{one.points[-1].at:g}"
        for one in report.scaling.of
    }


_ELSEWHERE = {"turns": "another verdict elsewhere", "decided": "only at the last place"}
"""What is said of a verdict that does not hold at every place, by the outcome over all of them."""


def _turning(report: StudyReport) -> dict[str, str]:
    """Variants whose verdict at the last place of an axis does not hold at every place, with that in a few words."""
    if report.scaling is None:
        return {}
    found = {_at_last(one, report): one.outcome for one in report.scaling.of}
    return {name: _ELSEWHERE[outcome] for name, outcome in found.items() if outcome in _ELSEWHERE}


def _group_of(row: VariantRow) -> GroupKey:
    if row.chosen:
        return "unproven"
    if row.verdict is None or row.verdict.word == "diverged":
        return "lost"
    if row.verdict.word == "better":
        return "better"
    if row.verdict.is_acceptable:
        return "can go" if row.change.only_removes else "as good"
    if row.verdict.is_worse:
        return "must stay" if row.change.only_removes and not row.change.combines else "worse"
    return "running" if row.running else "not known"


def _badness(worse: int) -> Callable[[AnswerRow], float]:
    """Key that sorts the rows of a group by how bad they are at the worst, in the unit of the metric."""

    def key(row: AnswerRow) -> float:
        value = row.bound if row.bound is not None else row.difference
        return worse * value if value is not None else float("inf")

    return key


def _row(row: VariantRow, words: str, report: StudyReport) -> AnswerRow:
    worse = 1 if report.direction == "minimize" else -1
    paired, verdict = row.shown_difference, row.verdict
    bound, text = None, ""
    if verdict is not None and verdict.bound is not None and verdict.is_decided:
        upper = verdict.is_acceptable
        bound = worse * (verdict.bound.high if upper else verdict.bound.low)
        text = bound_text(bound, upper=upper == (worse > 0), margin=report.margin)
    elif verdict is not None and row.running:
        text = row.progress(report.unit)
    elif verdict is not None and verdict.word == "undecided":
        text = _missing_seeds(row, report.unit)
    elif row.diverged:
        text = f"{len(row.diverged)}/{len(row.planned)} diverged"
    return AnswerRow(
        variant=row.name,
        words=words,
        verdict=row.verdict_word or row.verdict_cell,
        difference=paired.difference if paired else None,
        low=paired.low if paired else None,
        high=paired.high if paired else None,
        bound=bound,
        bound_text=text,
        jointly=row.name in report.answer.together,
        parameter_change=row.parameter_change,
        warning=_warning(row, report),
        finished=len(row.finished),
        planned=len(row.planned),
    )


def _missing_seeds(row: VariantRow, unit: str) -> str:
    """What an undecided comparison lacks, in two words."""
    verdict = row.verdict
    assert verdict is not None
    if verdict.withheld:
        found = (word for cause, word in _WITHHELD.items() if cause in verdict.withheld)
        return next(found, "see --why")
    if row.difference is not None and row.difference.is_flat:
        return "no spread"
    if verdict.further_seeds is None:
        return f">100 {unit}s"
    return f"+{plural(verdict.further_seeds, unit)}"


def _warning(row: VariantRow, report: StudyReport) -> str:
    """What limits the verdict of one row, in a few words."""
    if row.failed:
        return f"{plural(len(row.failed), 'trial')} failed"
    if row.name in report.evidence.unlearnt:
        return "barely learnt"
    if row.longer:
        return row.longer
    if elsewhere := _turning(report).get(row.name):
        return elsewhere
    if row.provisional(report.margin):
        return "still changing"
    low = row.verdict.bound.high if row.verdict is not None and row.verdict.bound is not None else 0.0
    return "check the baseline" if low < -SUSPICIOUS * report.margin else ""


def _headline(groups: Sequence[AnswerGroup], trust: Sequence[StudyWarning], report: StudyReport) -> tuple[str, ...]:
    if void := [line for line in trust if line.level == "void" and line.replaces_headline]:
        return (f"No answer yet: {void[0].text}.",)
    rows = {group.key: group.rows for group in groups}
    if not any(rows.get(key) for key in ("better", "can go", "as good", "must stay", "worse")):
        return (*_best(report), *_effects(report), _nothing_decided(groups, report))
    sentences = [
        *_best(report),
        *_effects(report),
        *_parts(rows.get("can go", ()), "can go", {row.name for row in report.variants if row.change.combines}),
        *_parts(rows.get("must stay", ()), "must stay"),
    ]
    sentences += _changes(rows.get("better", ()), rows.get("as good", ()), rows.get("worse", ()), report)
    if smaller := _smallest(groups):
        change = percent(abs(smaller.parameter_change or 0.0)).lstrip("+")
        new = smaller.words.rpartition("→ ")[2] if smaller.words.startswith("the ") else smaller.words
        what = f"without {smaller.words}" if smaller in rows.get("can go", ()) else new
        fresh = next(len(row.confirmed) for row in report.variants if row.name == smaller.variant)
        proven = f", confirmed on {fresh} fresh seeds" if fresh else "" if smaller.jointly else " (*)"
        fewer = f"{change.replace('%', ' %')} fewer parameters"
        sentences.append(f"Smallest: {what}, {fewer}, {_cost_of(smaller, report)}{proven}.")
    sentences += _selected(rows.get("unproven", ()), report)
    return tuple(sentences)


def _selected(unproven: Sequence[AnswerRow], report: StudyReport) -> Iterator[str]:
    """The smallest block that results have selected, where a design looks for one and no fresh seeds confirm it yet."""
    if report.record.traits.finds_best:
        return
    worse = 1 if report.direction == "minimize" else -1
    fine = [row for row in unproven if row.difference is not None and worse * row.difference < report.margin]
    smallest = min(fine, key=lambda row: row.parameter_change or 0.0, default=None)
    if smallest is not None and (smallest.parameter_change or 0.0) <= -SMALLER:
        change = percent(abs(smallest.parameter_change or 0.0)).lstrip("+").replace("%", " %")
        yield f"Smallest selected, not confirmed: {smallest.words}, {change} fewer parameters."


def _best(report: StudyReport) -> Iterator[str]:
    """Which point of a search is the best, and whether fresh seeds have confirmed it."""
    if not report.record.traits.finds_best:
        return
    means = {
        row.name: mean.mean for row in report.variants if (mean := row.mean(report.metric)) and mean.mean is not None
    }
    if len(means) > 1:
        name = (min if report.direction == "minimize" else max)(means, key=means.__getitem__)
        (row,) = (row for row in report.variants if row.name == name)
        decimals, paired = shared_decimals(report), row.shown_difference
        if row.confirmed and row.awaits:
            fresh = f"of its fresh seeds {row.awaits}"
        elif row.confirmed and paired is not None and paired.difference is not None:
            distance = fixed(paired.difference, decimals, sign=True)
            fresh = f"{distance} from the baseline on {plural(len(row.confirmed), 'fresh seed')}"
        else:
            fresh = "not confirmed on fresh seeds"
        value = f"{report.metric} {fixed(means[name], decimals)} on the seeds that chose it"
        yield f"Best of {len(means)} points: {name}, {value}; {fresh}."


def _effects(report: StudyReport) -> Iterator[str]:
    """The largest effects of a factorial study, averaged over its other switches, and what they cannot be told from."""
    effects = report.effects
    if effects is None or effects.chosen:
        return
    digits = decimals_for(report.margin, ())

    def text(row: EffectRow) -> str:
        aliases = f" (or {few(row.aliases)}: aliased)" if row.aliases else ""
        return f"{row.name} {fixed(row.estimate, digits, sign=True)}{aliases}"

    def shown(rows: Sequence[EffectRow], most: int) -> list[str]:
        large = [row for row in rows if abs(row.estimate) >= report.margin]
        return [text(row) for row in sorted(large, key=lambda row: -abs(row.estimate))[:most]]

    said = listed(shown(effects.main, 3)) if shown(effects.main, 3) else f"none reaches the margin {report.margin:g}"
    pair = "".join(f"; largest interaction: {row}" for row in shown(effects.interactions, 1))
    so_far = " so far" if any(row.running for row in report.variants) else ""
    yield f"Average effects on {report.metric}{so_far}: {said}{pair}."


def _nothing_decided(groups: Sequence[AnswerGroup], report: StudyReport) -> str:
    if not groups:
        return "The study has no variant besides its baseline, so there is nothing to compare."
    keys = {group.key for group in groups}
    if keys == {"unproven"}:
        return "No verdict: results selected these variants, and no fresh seeds have confirmed them."
    counts = [(group.key, len(group.rows)) for group in groups]
    return "No verdict yet: " + listed(f"{count} {key}" for key, count in counts) + "."


def _parts(rows: Sequence[AnswerRow], what: str, combined: Container[str] = ()) -> Iterator[str]:
    """A sentence on the parts that can go, or on those that must stay.

    Args:
        rows: Of the group.
        what: What is said of them.
        combined: The variants that take several parts away.
    """
    if not rows:
        return
    if len(rows) <= MOST_NAMED and sum(len(row.words) for row in rows) < 60:
        names = f" {'or' if what == 'can go' else 'and'} ".join(row.words for row in rows)
        alone = ", one at a time" if what == "can go" and len(rows) > 1 else ""
        named = rows[0].words == rows[0].variant  # names are written as they are
        yield f"{names if named else names[0].upper() + names[1:]} {what}{alone}."
    else:
        alone = ", one at a time" if what == "can go" and len(rows) > 1 else ""
        noun = "combination of parts" if any(row.variant in combined for row in rows) else "part"
        yield f"{plural(len(rows), noun)} {what}{alone}."


def _cost_of(row: AnswerRow, report: StudyReport) -> str:
    """The bound on an acceptable variant in words: `at most 0.033 worse`."""
    assert row.bound is not None
    size = row.bound_text.split()[-1].lstrip("+-")
    is_worse = row.bound * (1 if report.direction == "minimize" else -1) > 0
    return f"at most {size} worse" if is_worse else f"at least {size} better"


def _changes(
    better: Sequence[AnswerRow], good: Sequence[AnswerRow], worse: Sequence[AnswerRow], report: StudyReport
) -> Iterator[str]:
    """A sentence that counts the changes which do more than remove parts."""
    counts = [(len(better), "better"), (len(good), f"as good within {report.margin:g}"), (len(worse), "worse")]
    shown = [(count, word) for count, word in counts if count]
    if shown:
        (first, word), *rest = shown
        noun = "change" if report.record.judged is None else "variant"
        said = f"{plural(first, noun)} {'is' if first == 1 else 'are'} {word}"
        yield ", ".join([said, *(f"{count} {'is' if count == 1 else 'are'} {word}" for count, word in rest)]) + "."


def _smallest(groups: Sequence[AnswerGroup]) -> AnswerRow | None:
    """The variant with the fewest parameters that is at least not worse; of several alike the one with the best bound.

    None if none has fewer parameters than the baseline by `SMALLER`.
    """
    fine = [row for group in groups if group.key in ("better", "can go", "as good") for row in group.rows]
    smaller = [row for row in fine if (row.parameter_change or 0.0) <= -SMALLER]
    return min(smaller, key=lambda row: round(row.parameter_change or 0.0, 2), default=None)
