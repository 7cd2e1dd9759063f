"""The answer to a study's question in a few sentences, made from its verdicts and from what its variants change."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from dataclasses import dataclass
from functools import partial

from ablate.analysis.changes import Change
from ablate.analysis.numbers import decimals_for, fixed, listed, plural, shortened
from ablate.analysis.rows import JudgingRule, VariantRow, reference_words
from ablate.analysis.runs import first_line
from ablate.stats import Direction, SeedPlan, SeedSchedule
from ablate.stats.bounds import LEAST_PAIRS, at_least, at_most
from ablate.stats.further import MOST_FURTHER_SEEDS, advised_schedule, in_percent

MOST_COMBINED = 3
"""Variants that change several things, and are described in one sentence; of more only the names are given."""


def answer_sentences(
    rows: Sequence[VariantRow], baseline: VariantRow, together: Set[str], rule: JudgingRule
) -> tuple[str, ...]:
    """Which parts can go, which are needed, what is undecided and how many more seeds would settle it.

    Args:
        rows: The variants in the order to name them, the baseline left out or not.
        baseline: That of the study.
        together: Names of the variants whose verdicts hold together.
    """
    compared = [row for row in rows if row.verdict is not None]
    if not compared and any(row.chosen for row in rows):
        return ()
    if not compared and any(row.pruned for row in rows):
        return ("No variant can be compared with the baseline: the others were pruned, and have no final value.",)
    if not compared:
        return ("The study has no variant besides its baseline, so there is nothing to compare.",)
    verdicts = {row.name: row.verdict for row in compared if row.verdict is not None}
    better = [row for row in compared if verdicts[row.name].word == "better"]
    fine = [row for row in compared if verdicts[row.name].is_acceptable and row not in better]
    worse = [row for row in compared if verdicts[row.name].is_worse]
    naming, reference = _Naming.of(compared), reference_words(baseline, compared)
    sentences = [
        *_sentences_on_spared(better, naming, rule, "Better without", " these"),
        *_sentences_on_spared(fine, naming, rule, "You can remove", ""),
    ]
    sentences += [*_sentences_on_needed(worse, naming, rule), *_others(better, fine, worse, naming, rule, reference)]
    sentences += [sentence] if (sentence := joint_sentence(compared, together)) else []
    undecided = [row for row in compared if verdicts[row.name].word == "undecided"]
    sentences += _sentences_on_undecided(undecided, baseline, naming, rule)
    return tuple(sentences) or ("No variant can be compared with the baseline.",)


def window_sentences(windows: int, healed: Sequence[str]) -> Iterator[str]:
    """What a comparison without training is based on.

    Args:
        windows: Validation windows that are paired; 0 if seeds are.
        healed: Variants that were trained further.
    """
    if not windows:
        return
    yield (
        f"Nothing was trained: each comparison pairs {plural(windows, 'validation window')} of one trained model and "
        "resamples them. Its confidence applies to this model on such text, not to another training run."
    )
    if healed:
        was = "was" if len(healed) == 1 else "were"
        yield f"{listed(healed)} {was} trained further with one seed: the intervals do not account for training noise."


def best_sentence(rows: Sequence[VariantRow], metric: str, direction: Direction, margin: float) -> tuple[str, ...]:
    """Which of the points that a search tried has the best mean, as a sentence; none if no two have a mean."""
    means = {row.name: value.mean for row in rows if not row.diverged and (value := row.metrics.get(metric))}
    known = {name: mean for name, mean in means.items() if mean is not None}
    if len(known) < 2:
        return ()
    best = (min if direction == "minimize" else max)(known, key=known.__getitem__)
    write = partial(fixed, decimals=decimals_for(margin, ()))
    return (
        f"The best mean {metric} of {plural(len(known), 'point')} is that of {best}: {write(known[best])}. "
        f"Selection makes this estimate optimistic; {_remedy(rows, best, write)}.",
    )


def _remedy(rows: Sequence[VariantRow], best: str, write: Callable[[float], str]) -> str:
    (row,) = (row for row in rows if row.name == best)
    beside = [one.beside for one in rows if one.beside is not None]
    if beside and not row.chosen and row.verdict is None and not row.confirmed:  # it is the baseline
        return f"over fresh seeds it is {write(beside[0])}"
    if row.confirmed and row.awaits:
        return row.awaits.replace("seed", "fresh seed")
    if row.confirmed:
        return f"its difference from the baseline and its verdict rest on {plural(len(row.confirmed), 'fresh seed')}"
    return "train it with fresh seeds before you rely on the number"


def confirmed_sentences(rows: Sequence[VariantRow]) -> Iterator[str]:
    """A sentence on variants that results chose and whose verdicts rest on fresh seeds."""
    if confirmed := [row for row in rows if row.confirmed and row.verdict is not None and not row.awaits]:
        seeds = len(confirmed[0].confirmed)
        are, rest = ("was", "its verdict rests") if len(confirmed) == 1 else ("were", "their verdicts rest")
        yield (
            f"{listed(row.name for row in confirmed)} {are} chosen by results; {rest} on {seeds} fresh seeds that took "
            "no part in the choice."
        )


@dataclass(frozen=True, slots=True)
class _Naming:
    """How sentences refer to variants: by their change, with their name where several variants share it."""

    shared: frozenset[Change]
    combined: int

    @classmethod
    def of(cls, rows: Sequence[VariantRow]) -> _Naming:
        counts = Counter(row.change for row in rows)
        combined = sum(row.change.combines for row in rows)
        return cls(frozenset(change for change, count in counts.items() if count > 1), combined)

    def by_name(self, row: VariantRow) -> bool:
        """Whether sentences give only the name of a variant."""
        unknown = not row.change.removed and not row.change.otherwise
        return unknown or (row.change.combines and self.combined > MOST_COMBINED)

    def removed(self, row: VariantRow) -> str:
        """The parts that a variant removes, in words."""
        return f"what {row.name} leaves out" if self.by_name(row) else listed(row.change.removed)

    def label(self, row: VariantRow) -> str:
        """The name of a variant with a colon, where its change does not identify it; else empty."""
        return f"{row.name}: " if not self.by_name(row) and (row.change.combines or row.change in self.shared) else ""

    def whole(self, row: VariantRow) -> str:
        """The whole change of a variant as a gerund: `replacing the attention mixer by fnet`."""
        if self.by_name(row):
            return row.name
        removing = [f"removing {listed(row.change.removed)}"] if row.change.removed else []
        together = " together" if row.change.combines and row.change.only_removes else ""
        return f"{listed([*removing, *row.change.otherwise])}{together}"


def _sentences_on_spared(
    rows: Sequence[VariantRow], naming: _Naming, rule: JudgingRule, lead: str, these: str
) -> Iterator[str]:
    """What can go alone, and what can go together, each sentence with `lead` at its start."""
    alone, combined = _removals(rows)
    if alone:
        each = " each of these alone" if len(alone) > 1 else ""
        yield f"{lead}{each}: {_items(alone, naming, rule, naming.removed)}."
    if combined:
        yield f"{lead}{these} together: {_items(combined, naming, rule, naming.removed)}."


def _sentences_on_needed(rows: Sequence[VariantRow], naming: _Naming, rule: JudgingRule) -> Iterator[str]:
    alone, combined = _removals(rows)
    if alone:
        yield f"You need: {_items(alone, naming, rule, naming.removed, ' without it')}."
    if combined:
        yield f"You cannot remove together: {_items(combined, naming, rule, naming.removed, ' without them')}."


def _bound_in_words(row: VariantRow, rule: JudgingRule) -> str:
    """The bound on a decided variant's difference from the baseline in words: `val_loss at least 0.8 higher`."""
    worse, better = ("higher", "lower") if rule.direction == "minimize" else ("lower", "higher")
    assert row.verdict is not None
    assert row.verdict.bound is not None, "what is decided has a bound"
    low, high = row.verdict.bound.low, row.verdict.bound.high
    size, unit = (100.0, " %") if rule.relative else (1.0, "")
    margin, beside = size * rule.margin, f", {row.longer}" if row.longer else ""
    if low > rule.margin:
        return f"{rule.metric} at least {at_least(size * low, margin)}{unit} {worse}{beside}"
    if high < 0:
        return f"{rule.metric} at least {at_least(-size * high, margin)}{unit} {better}{beside}"
    return f"{rule.metric} at most {at_most(size * high, margin)}{unit} {worse}{beside}"


def _removals(rows: Sequence[VariantRow]) -> tuple[list[VariantRow], list[VariantRow]]:
    """The variants that only remove parts: those that remove one part, and those that remove several."""
    removals = [row for row in rows if row.change.only_removes]
    alone = [row for row in removals if not row.change.combines]
    return alone, [row for row in removals if row.change.combines]


def _items(
    rows: Sequence[VariantRow], naming: _Naming, rule: JudgingRule, say: Callable[[VariantRow], str], without: str = ""
) -> str:
    """The change of each variant with the bound on its difference; variants with the same change share one item."""
    items: dict[str, list[str]] = {}
    for row in rows:
        items.setdefault(say(row), []).append(f"{naming.label(row)}{_bound_in_words(row, rule)}{without}")
    return "; ".join(shortened(f"{text} ({', '.join(moves)})" for text, moves in items.items()))


def _others(
    better: Sequence[VariantRow],
    fine: Sequence[VariantRow],
    worse: Sequence[VariantRow],
    naming: _Naming,
    rule: JudgingRule,
    reference: str,
) -> Iterator[str]:
    """Sentences on variants that do more than remove parts: how they compare with the baseline."""
    beginnings = (
        (better, f"Better than {reference} by more than {rule.margin:g}"),
        (fine, f"Not worse than {reference} by {rule.margin:g} or more"),
        (worse, f"Worse than {reference} by more than {rule.margin:g}"),
    )
    for rows, beginning in beginnings:
        if others := [row for row in rows if not row.change.only_removes]:
            yield f"{beginning}: {_items(others, naming, rule, naming.whole)}."


def joint_sentence(rows: Sequence[VariantRow], together: Set[str]) -> str:
    """Which verdicts, each with an error rate of 5 %, also hold jointly by Holm's procedure; empty below two verdicts.

    Args:
        together: Names of those whose verdicts hold jointly.
    """
    verdicts = {row.name: row.verdict for row in rows if row.verdict is not None and row.verdict.is_decided}
    if len(verdicts) < 2:
        return ""
    decided = list(verdicts)
    found = dict.fromkeys(verdict.word for verdict in verdicts.values())
    families = (("needed", "worse"), ("not needed", "not worse"), ("better",))
    words = [
        " or ".join(f'"{word}"' for word in family if word in found) for family in families if {*family} & {*found}
    ]
    holding = [name for name in decided if name in together]
    if len(holding) == len(decided):
        first, *others = words
        none = "with 95 % confidence none of them is wrong"
        if others:
            none = f"with 95 % confidence no {first} among them is wrong"
            none = ", and ".join([none, *(f"with 95 % confidence no {word} is" for word in others)])
        return f"These {len(decided)} verdicts also hold jointly: {none} (Holm's procedure)."
    failing = [name for name in decided if name not in together]
    if not holding:
        which = "none holds"
    elif len(failing) < len(holding):
        which = f"all hold except {'that' if len(failing) == 1 else 'those'} on {listed(failing)}"
    else:
        only, hold = ("that", "holds") if len(holding) == 1 else ("those", "hold")
        which = f"only {only} on {listed(holding)} {hold}"
    return (
        f"Each of these {len(decided)} verdicts holds individually with 95 % confidence. Jointly, at a family-wise "
        f"error rate of 5 %, {which} (Holm's procedure)."
    )


def _sentences_on_undecided(
    undecided: Sequence[VariantRow], baseline: VariantRow, naming: _Naming, rule: JudgingRule
) -> Iterator[str]:
    schedule, unit = rule.schedule, rule.unit
    least = schedule.start if schedule else LEAST_PAIRS
    waiting: dict[str, list[str]] = {}
    for row in undecided:
        if row.awaits:
            waiting.setdefault(row.awaits, []).append(row.name)
    for ended, names in waiting.items():
        yield f"No verdict yet on {listed(names)}: {ended}, and a fixed number of seeds is judged once, at its end."
    undecided = [row for row in undecided if not row.awaits]
    held = {row.name: row.verdict.withheld for row in undecided if row.verdict is not None and row.verdict.withheld}
    judged = [row for row in undecided if _pairs(row) >= least and row.name not in held]
    if rows := [row for row in judged if not _is_flat(row)]:
        further = [(row.verdict.further_seeds, row.verdict.chance) for row in rows if row.verdict is not None]
        advice = _advice(rows, schedule) if unit == "seed" and rule.adds_seeds else ""
        yield f"Undecided: {_names(rows, naming)}. {_settle(further, schedule is not None, unit)}.{advice}"
    for why in dict.fromkeys(held.values()):
        rows = [row for row in undecided if held.get(row.name) == why]
        yield f"Undecided: {_names(rows, naming)}. More {unit}s would not decide: {why}."
    if rows := [row for row in judged if _is_flat(row)]:
        yield f"Undecided: {_names(rows, naming)}. All {unit}s give the same difference, so no test is possible."
    few: dict[str, list[str]] = {}
    for row in undecided:
        if _pairs(row) < least and row.name not in held:
            few.setdefault(_why_few(row, baseline, least, unit), []).append(row.name)
    for why, names in few.items():
        yield f"Too few results to judge {listed(names)}: {why}."


def _names(rows: Iterable[VariantRow], naming: _Naming) -> str:
    names = {row.name: naming.label(row).removesuffix(": ") for row in rows}
    return "; ".join(
        shortened(f"{naming.whole(row)}{f' ({name})' if (name := names[row.name]) else ''}" for row in rows)
    )


def _pairs(row: VariantRow) -> int:
    return 0 if row.difference is None else row.difference.n


def _is_flat(row: VariantRow) -> bool:
    return row.difference is not None and row.difference.is_flat


def _why_few(row: VariantRow, baseline: VariantRow, least: int, unit: str) -> str:
    """Why a variant has too few pairs: trials that were lost, or else too few that have ended."""
    lost = [*_lost("the baseline", baseline, unit), *_lost("its trials", row, unit)]
    return "; ".join(lost) or f"at least {least} paired {unit}s are required"


def _lost(whose: str, row: VariantRow, unit: str) -> Iterator[str]:
    for happened, trials in (("diverged", row.diverged), ("failed", row.failed)):
        if trials:
            seeds = listed(str(trial.seed) for trial in trials)
            at = f"{unit}{'s' * (len(trials) > 1)} {seeds}" if unit == "seed" else plural(len(trials), unit)
            yield f"{whose} {happened} at {at} ({first_line(trials[0].reason)})"


def advised_seeds(rows: Sequence[VariantRow], schedule: SeedPlan | None) -> SeedSchedule | None:
    """The schedule with which a study of a fixed number of seeds decides as much as one can of what is undecided.

    Args:
        schedule: How the study adds seeds already.

    Returns:
        None if the study has a schedule, or if none is long enough for any of the variants.
    """
    wanted = [
        (_pairs(row), row.verdict.further_seeds, max(0, len(row.planned) - _pairs(row)))
        for row in rows
        if row.verdict is not None and row.verdict.further_seeds
    ]
    longest = sorted(wanted, key=sum, reverse=True) if schedule is None else []
    return next((advised for one in longest if (advised := advised_schedule(*one)) is not None), None)


def _advice(rows: Sequence[VariantRow], schedule: SeedPlan | None) -> str:
    """How to continue from a fixed number of seeds, as a further sentence; empty for a schedule."""
    advised = advised_seeds(rows, schedule)
    if advised is None:
        return ""
    return (
        f" To continue, set `seeds: {{start: {advised.start}, max: {advised.max}}}`: this adds seeds to undecided "
        "comparisons, with wider bounds because results have been seen."
    )


def _settle(further: Sequence[tuple[int | None, float | None]], scheduled: bool, unit: str) -> str:
    """How many more seeds would settle what is undecided, and with what chance.

    Args:
        further: Of each undecided comparison, the seeds and their chance; None if too many would be required.
        scheduled: Whether a schedule limits their number.
        unit: What is paired.
    """
    within = [(seeds, chance or 0.0) for seeds, chance in further if seeds is not None]
    most = "the schedule has" if scheduled else str(MOST_FURTHER_SEEDS)
    if not within:
        required = f"More seeds than {most}" if scheduled else f"More than {most} more {unit}s"
        return f"{required} would be required"
    seeds, chance = max(seeds for seeds, _ in within), min(chance for _, chance in within)
    settled = f"About {seeds} more {unit if seeds == 1 else f'{unit}s'} would settle"
    least = f"a chance of {'at least ' if len(within) > 1 else ''}{in_percent(chance)}"
    if len(within) == len(further):
        return f"{settled} {'it' if len(further) == 1 else 'each of them'} with {least}"
    return f"{settled} {len(within)} of them with {least}, the others would require more than {most}"
