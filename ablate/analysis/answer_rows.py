"""The rows of an answer: each compared variant with its verdict, interval and bound, in groups by verdict."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import dataclass, replace
from string import ascii_uppercase
from typing import Literal

from ablate.analysis.judging import deciding_bounds, worst_margin
from ablate.analysis.ladder import ScaleRow
from ablate.analysis.numbers import bound_text, listed, plural
from ablate.analysis.report import StudyReport
from ablate.analysis.rows import VariantRow
from ablate.analysis.runs import baselines_of
from ablate.analysis.scaling import Scaling
from ablate.analysis.trivial import with_article
from ablate.errors import NotFoundError
from ablate.spec.design import BASELINE, split_axis
from ablate.spec.paths import leaves
from ablate.stats import Direction, Verdict
from ablate.stats.bounds import LEAST_PAIRS
from ablate.stats.further import MOST_FURTHER_SEEDS
from ablate.store.records import StudyRecord

GroupKey = Literal[
    "better",
    "can go",
    "ahead",
    "as good",
    "must stay",
    "worse",
    "undecided",
    "unproven",
    "waiting",
    "lost",
    "no answer",
]

TITLES: dict[GroupKey, str] = {
    "better": "Better, by more than the margin",
    "can go": "Can go, one at a time",
    "ahead": "Ahead: better, but not shown to be by the margin",
    "as good": "As good: not worse by the margin or more",
    "must stay": "Must stay",
    "worse": "Worse, by more than the margin",
    "undecided": "Undecided: more seeds are needed",
    "unproven": "Selected by results, not confirmed on fresh seeds",
    "waiting": "Waiting for trials: no verdict before all seeds have ended",
    "lost": "Not compared",
    "no answer": "No answer yet: the models have learnt too little",
}
"""Groups of an answer in the order in which they are shown, with their headings."""
_WORDS = {"needed": "must stay", "not needed": "can go", "not worse": "as good"}
MOST_WORDS, MOST_LONG = 32, 48
"""Characters of a combination on one line and on two; the parts of longer ones are called by letters."""
MOST_ON_TWO_LINES = 2
"""Combinations that may take two lines before letters are used."""
SUSPICIOUS = 10
"""Margins by which a better variant suggests that something is wrong with the baseline."""
_WITHHELD = {
    "no model beats": "no verdict",
    "never reached": "censored",
    "--time": "not timed",
    "failed": "failures",
    "diverged": "failures",
    "tuning seeds": "tuning",
    "tail": "rare seeds",
    "scatter": "rare seeds",
}
"""What a sentence on an allowance mentions, to why the verdict is withheld, in two words."""


OF_VARIANTS: Mapping[str, GroupKey] = {"can go": "as good", "must stay": "worse"}
"""Verdicts on parts, to those on the variants without them, where these are called by their own names."""


@dataclass(frozen=True, slots=True)
class AnswerRow:
    """One variant of an answer.

    Attributes:
        variant: Its name.
        words: What it changes, in words: `the normalisation`, or `softmax attention → SimpleTRON`.
        label: The same for a table: where parts have letters, `A: the normalisation`, or `A + B`.
        verdict: `better`, `not needed`, `not worse`, `needed`, `worse`, `undecided`, `diverged`, or why there is none.
        difference: Metric of the variant minus that of the baseline, paired by seed; None if they are not compared.
        low: Lower end of the two-sided 90 % interval of the difference, whose ends are the one-sided 95 % bounds that
            verdicts rest on, with all that widens them; infinite where nothing bounds it; None without a verdict.
        high: Upper end of the same.
        bound: The end that the verdict rests on, with the sign of `difference`; None if it rests on none.
        includes: Names of the variants whose changes are some of its own, so that it removes their parts and more.
        bound_text: That bound as text (`≤ +0.11`), or how many more seeds may decide it (`+12 seeds`).
        chance: The chance that so many more seeds decide it; None where that is not known.
        jointly: Whether the verdict also holds jointly with all others (Holm's procedure).
        parameter_change: (parameters - those of the baseline) / those of the baseline; None if not known.
        removed: How many parts it takes away; 0 if it does anything else.
        combines: Whether it does several things at once.
        warning: What to know about this row alone, in a few words; mostly empty.
        finished: How many of its trials have finished.
        planned: How many are planned.
    """

    variant: str
    words: str
    label: str
    verdict: str
    difference: float | None
    low: float | None
    high: float | None
    includes: tuple[str, ...]
    bound: float | None
    bound_text: str
    chance: float | None
    jointly: bool
    parameter_change: float | None
    removed: int
    combines: bool
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

    @property
    def word(self) -> str:
        """The verdict; of rows that were not compared `pruned` or `diverged`, if that is the reason for all of them."""
        words = {verdict_word(self.key, row) for row in self.rows}
        return words.pop() if words in ({"pruned"}, {"diverged"}) else self.key


def in_answer(verdict: str) -> str:
    """A verdict, or a sentence that begins with one, in the words of answers and of the legends of figures."""
    word, colon, reason = verdict.partition(":")
    return f"{_WORDS.get(word, word)}{colon}{reason}"


def answer_sentence(row: VariantRow) -> str:
    """The verdict on a variant with its reason, in the words of answers; empty without a verdict."""
    said = row.verdict_sentence or ""
    return f"ahead: {said.partition(': ')[2]}" if said and _group_of(row) == "ahead" else in_answer(said)


def outcome_words(row: ScaleRow) -> str:
    """What becomes of the difference of a variant of a ladder, and why it is open if its interval does not say so."""
    if not row.there:
        return f"not extrapolated: {row.refusal}"
    here = row.outcome == row.verdicts[-1] == "undecided"
    return in_answer(row.outcome) + ": it is undecided on the largest rung, so here too" * here


def verdict_word(key: GroupKey, row: AnswerRow) -> str:
    """What an answer calls the verdict on a row of a group: the group, or why there is no verdict."""
    return row.verdict if key == "lost" else key


def answer_groups(report: StudyReport, *, letters: bool = True) -> tuple[tuple[AnswerGroup, ...], dict[str, str]]:
    """The compared variants of a study, grouped by verdict, and the parts that letters stand for in their labels.

    Args:
        letters: Whether letters may stand for parts.
    """
    worse = worst_margin(report.margin, report.direction)
    compared = compared_rows(report)
    counts = Counter(row.change for row in compared)
    by_group: dict[GroupKey, list[AnswerRow]] = {key: [] for key in TITLES}
    places, removed = _names_at_last(report), removed_settings(compared, report.record)
    dispensable = {item for row in compared if _group_of(row) == "can go" for item in removed[row.name]}
    for row in compared:
        group = _group_of(row) if report.answer.learnt else "no answer"
        if group == "must stay" and removed[row.name] & dispensable:  # some of its parts can go
            group = "worse"
        words = places.get(row.name) or _words(row, group, report)
        if counts[row.change] > 1 and row.change.words:
            words += f" ({row.name})"
        by_group[group].append(_row(row, words, included(row.name, removed), report))
    groups = tuple(
        AnswerGroup(key, TITLES[key].replace("seed", report.unit), tuple(sorted(rows, key=_badness(worse))))
        for key, rows in by_group.items()
        if rows
    )
    if not letters:
        return groups, {}
    return _with_letters(groups, {row.name: row.change.parts for row in compared if row.name != BASELINE}, report)


def _with_letters(
    groups: tuple[AnswerGroup, ...], parts_of: Mapping[str, tuple[str, ...]], report: StudyReport
) -> tuple[tuple[AnswerGroup, ...], dict[str, str]]:
    """The groups with letters for what variants combine, unless all combinations are short, and these parts by letter.

    Letters follow the order of the rows, those of parts that have a row of their own first.
    """
    rows = [row for group in groups for row in group.rows if row.variant in parts_of]
    rows.sort(key=lambda row: len(parts_of[row.variant]) > 1)
    combined = {part for parts in parts_of.values() if len(parts) > 1 for part in parts}
    long = [len(row.words) for row in rows if len(parts_of[row.variant]) > 1 and len(row.words) > MOST_WORDS]
    short = len(long) <= MOST_ON_TWO_LINES and all(length <= MOST_LONG for length in long)
    if short or len(combined) > len(ascii_uppercase) or report.record.traits.finds_best:
        return groups, {}
    ordered = dict.fromkeys(part for row in rows for part in parts_of[row.variant] if part in combined)
    letters = dict(zip(ordered, ascii_uppercase, strict=False))

    def label(row: AnswerRow) -> str:
        known = sorted(letters[part] for part in parts_of.get(row.variant, ()) if part in letters)
        named = f" ({row.variant})" if row.words.endswith(f" ({row.variant})") else ""
        return row.words if not known else " + ".join(known) + named if len(known) > 1 else f"{known[0]}: {row.words}"

    made = (replace(group, rows=tuple(replace(row, label=label(row)) for row in group.rows)) for group in groups)
    return tuple(made), {letter: part for part, letter in letters.items()}


def _words(row: VariantRow, group: GroupKey, report: StudyReport) -> str:
    """What a variant changes; where its group does not say that parts are missing, this does."""
    if row.name == BASELINE and row.change.combines:
        return "all of these (baseline)"
    if report.record.traits.finds_best and row.change.otherwise:
        return row.change.point
    without = "without " if row.change.only_removes and group in ("better", "worse", "unproven", "lost") else ""
    return f"{without}{row.change.words}" if row.change.words else split_axis(row.name)[0]


@dataclass(frozen=True, slots=True)
class AlongCell:
    """A variant at one place of an axis, compared with the baseline of that place.

    Attributes:
        difference: Metric of the variant minus that of the baseline there; None if they are not compared.
        low: Lower end of its 90 % interval, as that of an `AnswerRow`.
        high: Upper end of the same.
        verdict: As that of an `AnswerRow`; empty where the variant was not planned.
        alike: Whether it equals the baseline there at every seed.
    """

    difference: float | None
    low: float | None
    high: float | None
    verdict: str
    alike: bool


@dataclass(frozen=True, slots=True)
class Along:
    """The variants of a study at each of its training lengths, or at each value that it sweeps.

    Attributes:
        axis: `width` of a sweep of `model.width`; `training` of budgets.
        places: The values, as text, in ascending order.
        rows: Words of each variant to its cell at each place.
    """

    axis: str
    places: tuple[str, ...]
    rows: dict[str, tuple[AlongCell, ...]]


def along(report: StudyReport, groups: Iterable[AnswerGroup]) -> Along | None:
    """The variants along the axis of a study; None if it has none, or is a ladder, which has laws instead."""
    scalings = report.scaling
    if scalings is None or report.climbs is not None:
        return None
    words = {row.variant: row.words for group in groups for row in group.rows}
    order = {name: number for number, name in enumerate(words)}
    rows = {
        words.get(scaling.variant, scaling.variant): tuple(
            _cell(scaling, place, report.direction) for place in scalings.places
        )
        for scaling in sorted(scalings.of, key=lambda scaling: order.get(_at_last(scaling, report), len(order)))
    }
    if scalings.is_swept:
        return Along(scalings.axis.rpartition(".")[2], tuple(f"{place:g}" for place in scalings.places), rows)
    return Along("training", tuple(f"{place:g}x" for place in scalings.places), rows)


def _cell(one: Scaling, place: float, direction: Direction) -> AlongCell:
    point = next((point for point in one.points if point.at == place), None)
    if point is None:
        return AlongCell(None, None, None, "", alike=False)
    ends, lost = deciding_bounds(point.verdict, direction), point.verdict.word == "diverged"
    return AlongCell(
        None if lost else point.difference.difference,
        None if ends is None else ends.low,
        None if ends is None else ends.high,
        point.verdict.word,
        point.difference.is_zero,
    )


def compared_rows(report: StudyReport) -> list[VariantRow]:
    """The variants that an answer has a row for; one of a sweep has one, with its comparison at the last place."""
    baselines = baselines_of(report.record)
    rows = {row.name: row for row in report.variants if row.name != baselines[row.name]}
    if report.scaling is None or not report.scaling.is_swept:
        return list(rows.values())
    return [replace(rows[_at_last(scaling, report)], parameter_change=None) for scaling in report.scaling.of]


def removed_settings(rows: Iterable[VariantRow], record: StudyRecord) -> dict[str, frozenset[tuple[str, str]]]:
    """The `changed_settings` of the variants that only remove parts."""
    return changed_settings((row.name for row in rows if row.change.only_removes), record)


def changed_settings(names: Iterable[str], record: StudyRecord) -> dict[str, frozenset[tuple[str, str]]]:
    """What each of these variants changes in the spec of its baseline, beside what was tuned: paths with values."""
    specs = {variant.name: variant.spec for variant in record.variants}
    baselines, tuned = baselines_of(record), tuned_paths(record)

    def changes(name: str) -> frozenset[tuple[str, str]]:
        old, new = leaves(specs[baselines[name]]), leaves(specs[name])
        differing = (path for path in {**old, **new} if old.get(path) not in (new.get(path), {}))
        return frozenset((path, repr(new.get(path))) for path in differing if path not in tuned)

    return {name: changes(name) for name in names}


def tuned_paths(record: StudyRecord) -> frozenset[str]:
    """The spec paths whose values a study tunes, or has tuned before, for each variant."""
    return frozenset((*(record.space.get("tune") or {}).get("grid", {}), *(record.space.get("tuned") or {})))


def included(name: str, removed: Mapping[str, Set[tuple[str, str]]]) -> tuple[str, ...]:
    """The variants that remove some of what a variant removes, and nothing else."""
    own = removed.get(name, frozenset())
    return tuple(other for other, fewer in removed.items() if fewer and fewer < own)


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


def _names_at_last(report: StudyReport) -> dict[str, str]:
    """The variants of a sweep at its last place, with that place in words."""
    if report.scaling is None or not report.scaling.is_swept:
        return {}
    name = report.scaling.axis.rpartition(".")[2]
    return {
        _at_last(scaling, report): f"{scaling.variant} at {name} {scaling.points[-1].at:g}"
        for scaling in report.scaling.of
    }


def _group_of(row: VariantRow) -> GroupKey:
    if row.chosen:
        return "unproven"
    if row.verdict is None or row.verdict.word == "diverged":
        return "lost"
    if row.verdict.is_acceptable:
        return _group_of_acceptable(row, row.verdict)
    if row.verdict.is_worse:
        return "must stay" if row.change.only_removes and not row.change.combines else "worse"
    return "waiting" if row.running else "undecided"


def _group_of_acceptable(row: VariantRow, verdict: Verdict) -> GroupKey:
    if verdict.word == "better":
        return "better"
    if row.change.only_removes:
        return "can go"
    return "ahead" if verdict.is_ahead else "as good"


def _badness(worse: float) -> Callable[[AnswerRow], float]:
    """Key that sorts the rows of a group by how bad they are at the worst, times the margin."""

    def key(row: AnswerRow) -> float:
        value = row.bound if row.bound is not None else row.difference
        return worse * value if value is not None else float("inf")

    return key


def _row(row: VariantRow, words: str, includes: tuple[str, ...], report: StudyReport) -> AnswerRow:
    paired, verdict = row.shown_difference, row.verdict
    bounds = deciding_bounds(verdict, report.direction)
    ends = None if paired is None else bounds
    bound, text = None, ""
    if verdict is not None and bounds is not None and verdict.is_decided:
        upper = verdict.is_acceptable == (report.direction == "minimize")
        bound = bounds.high if upper else bounds.low
        text = bound_text(bound, upper=upper, margin=report.margin)
    elif verdict is not None and row.running:
        text = row.progress(report.unit)
    elif verdict is not None and verdict.word == "undecided":
        text = _missing_seeds(row, report)
    elif row.diverged:
        text = f"{len(row.diverged)}/{len(row.planned)} diverged"
    return AnswerRow(
        variant=row.name,
        words=words,
        label=words,
        verdict=row.verdict_word or row.verdict_cell,
        difference=paired.difference if paired else None,
        low=None if ends is None else ends.low,
        high=None if ends is None else ends.high,
        includes=includes,
        bound=bound,
        bound_text=text,
        chance=None if verdict is None else verdict.chance,
        jointly=row.name in report.answer.together,
        parameter_change=row.parameter_change,
        removed=len(row.change.removed) if row.change.only_removes else 0,
        combines=row.change.combines,
        warning=_warning(row, report),
        finished=len(row.finished),
        planned=len(row.planned),
    )


def _missing_seeds(row: VariantRow, report: StudyReport) -> str:
    """What an undecided comparison lacks, in two words."""
    verdict, unit, schedule = row.verdict, report.unit, None if row.confirmed else report.rule.schedule
    assert verdict is not None
    if lost_its_pairs(row, report):
        return "failures"
    if verdict.withheld:
        return withheld_in_words(verdict)
    if row.difference is not None and row.difference.is_flat:
        return "all equal" if row.difference.is_zero else "no spread"
    if verdict.further_seeds is None:
        left = MOST_FURTHER_SEEDS if schedule is None else schedule.max - (row.difference.n if row.difference else 0)
        return f">{left} {unit}s" if left > 0 else f"no {unit}s left"
    return f"+{plural(verdict.further_seeds, unit)}"


def lost_its_pairs(row: VariantRow, report: StudyReport) -> bool:
    """Whether lost trials, of a variant or of the baseline, leave too few pairs to judge."""
    if row.difference is not None and row.difference.n >= LEAST_PAIRS:
        return False
    baseline = report.baseline_of(row.name)  # takes long for many variants
    return bool(row.failed or baseline.failed or baseline.diverged)


def withheld_in_words(verdict: Verdict) -> str:
    """Why no number of seeds decides an undecided comparison, in two words."""
    return next((word for cause, word in _WITHHELD.items() if cause in verdict.withheld), "see --why")


def _warning(row: VariantRow, report: StudyReport) -> str:
    """What limits the verdict of one row, in a few words."""
    if row.failed:
        return f"{plural(len(row.failed), 'trial')} failed"
    if row.name in report.evidence.unlearnt:
        standing = next(standing for standing in report.evidence.standings if standing.name == row.name)
        return f"behind {with_article(standing.bar)}"
    if row.longer:
        return row.longer
    if row.provisional(report.margin):
        return "still changing"
    if report.record.judged is None and split_axis(report.record.baseline)[0] != BASELINE:
        return ""  # the plainest model is meant to be much worse
    bound = None if row.verdict is None else row.verdict.bound
    return "check the baseline" if bound is not None and bound.high < -SUSPICIOUS * report.margin else ""
