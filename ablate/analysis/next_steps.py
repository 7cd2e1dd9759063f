"""How to continue a study: the seeds that may decide what is undecided, and the arguments of `ablate study`."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from ablate.analysis.answer_rows import compared_rows, included, lost_its_pairs, removed_settings
from ablate.analysis.effects import NO_REPLACEMENT, EffectRow, StudyEffects
from ablate.analysis.headline import number_of_pairs, shows_effects
from ablate.analysis.ladder import next_rung
from ablate.analysis.numbers import few, listed, new_part, plural
from ablate.analysis.report import StudyReport
from ablate.analysis.rows import VariantRow
from ablate.analysis.sentences import advised_seeds
from ablate.analysis.slices import factors_of
from ablate.spec.paths import longer
from ablate.stats.bounds import LEAST_PAIRS
from ablate.stats.effects import narrowing
from ablate.stats.further import MOST_FURTHER_SEEDS, in_percent
from ablate.stats.schedule import LAST
from ablate.store.records import TrialState

LONGER = 4
"""How many times as long models that have learnt too little are to be trained."""
MOST_COMBINATIONS = 32
"""Combinations up to which it is a step to train all of them."""


@dataclass(frozen=True, slots=True)
class NextStep:
    """A command that would settle or extend an answer.

    Attributes:
        arguments: Of `ablate`; empty if no command would settle anything.
        purpose: What it may settle, in a few words, or why nothing would.
        seconds: Training time that it needs, from the trials that ended; None if that is not known.
        field: The field of the design to set before the study is run again, with its value; empty if there is none.
    """

    arguments: tuple[str, ...]
    purpose: str
    seconds: float | None = None
    field: str = ""

    @property
    def told(self) -> str:
        """The purpose, with the field to set."""
        set_it = f": set `{self.field}` in the design, then run `ablate study` again"
        return self.purpose + set_it * bool(self.field)


def next_steps(report: StudyReport) -> tuple[NextStep, ...]:
    """The commands that would settle what a study left open, or one step without a command that says why none would."""
    if missing := report.progress.states[TrialState.WAITING] + report.progress.states[TrialState.RUNNING]:
        arguments = ("resume", report.record.name)
        return (NextStep(arguments, f"trains what is missing: {plural(missing, 'trial')}"),)
    tuning = report.evidence.tuning
    if tuning is not None and any(tuned.values is None for tuned in tuning.of.values()):
        return (NextStep(("resume", report.record.name), "tunes to the end, then trains the comparisons"),)
    if not report.answer.learnt:
        return (_longer(report, LONGER, "no model has learnt enough to be compared"),)
    found = (
        _failed_trials,
        _all_combinations,
        _narrower_effects,
        _more_seeds,
        _further_looks,
        _further_tuning,
        _together,
        _further_rung,
        _to_the_end,
    )
    steps = tuple(step for steps_of in found for step in steps_of(report))
    return steps or tuple(_open_claims(report)) or tuple(_planned_seeds(report)) or (NextStep((), _why_none(report)),)


def _failed_trials(report: StudyReport) -> Iterator[NextStep]:
    """Another attempt at what failed, where a comparison is undecided."""
    failed = len(report.progress.failures)
    if failed and _open(report).undecided and report.record.judged is None:
        yield NextStep(("resume", report.record.name), f"tries again what failed: {plural(failed, 'trial')}")


def _longer(report: StudyReport, times: int, why: str) -> NextStep:
    """The study with longer training runs; without a command where the space does not say how long these are."""
    if longer(report.record.space, times) == report.record.space:
        return NextStep((), f"train longer: {why}")
    seconds = times * math.fsum(row.seconds for row in report.variants)
    return NextStep(("resume", report.record.name, "--longer", str(times)), f"trains longer: {why}", seconds or None)


def _to_the_end(report: StudyReport) -> Iterator[NextStep]:
    """Longer training runs where decided differences still move by more than the margin."""
    moving = [row for row in report.variants if row.provisional(report.margin)]
    if moving and report.scaling is None:
        yield _longer(
            report,
            2,
            f"{plural(len(moving), 'difference')} changed by more than the margin in the last third of training",
        )


def _narrower_effects(report: StudyReport) -> Iterator[NextStep]:
    """As many seeds again of every combination, where the answer is on effects and some are undecided."""
    effects = report.effects
    if effects is None or not shows_effects(report) or effects.withheld or report.unit != "seed":
        return
    groups = {
        "undecided change": effects.main,
        "pair": [row for row in effects.interactions if not row.aliases],  # no seeds tell the others apart
    }
    undecided = {
        kind: found for kind, rows in groups.items() if (found := [row for row in rows if _is_open(effects, row)])
    }
    seeds = len(report.baseline.planned)
    trained = [row.seconds / len(row.finished) for row in report.variants if row.finished]
    if undecided and 2 * seeds <= LAST:
        purpose = f"trains every combination with {plural(seeds, 'more seed')}"
        if seeds > 1 and report.rule.schedule is None:
            share = narrowing(seeds)
            many = {
                kind: sum(not _is_open(effects, row.narrowed(share)) for row in rows)
                for kind, rows in undecided.items()
            }
            if not any(many.values()):
                return
            decided = [f"{many[kind] or 'none'} of {plural(len(rows), kind)}" for kind, rows in undecided.items()]
            purpose += f", which would decide {listed(decided)} if noise and estimates stay as they are"
        else:
            known = [plural(len(rows), kind) for kind, rows in undecided.items()]
            purpose += f", which {'narrows the intervals of' if seeds > 1 else 'gives intervals to'} {listed(known)}"
        arguments = ("resume", report.record.name, "--seeds", str(2 * seeds))
        yield NextStep(arguments, purpose, seeds * math.fsum(trained) or None)


def _all_combinations(report: StudyReport) -> Iterator[NextStep]:
    """The combinations that a fraction left out, where it cannot tell pairs of settings apart."""
    if (others := _other_combinations(report)) and report.effects is not None:
        every = others + len(report.variants)
        pairs = plural(number_of_pairs(report.effects), "pair")
        changes = "changes and " * any(name.count(":") == 1 for row in report.effects.main for name in row.aliases)
        purpose = f"trains the other {others} of {every} combinations, in a study of its own: "
        purpose += f"tells the {changes}{pairs} apart"
        trained = math.fsum(row.seconds for row in report.variants)
        yield NextStep(
            ("resume", report.record.name, "--design", "grid"), purpose, trained * others / (every - others) or None
        )


def _other_combinations(report: StudyReport) -> int:
    """The number of combinations that a fractional design left out.

    0 where training them would separate nothing that is confounded, or where a grid of the study is no valid step.
    """
    effects, space = report.effects, report.record.space
    fits = not (report.record.traits.chooses or space.get("tune") or space.get("tuned") or report.scaling)
    if effects is None or not fits or effects.axes or not isinstance(space.get("design", {}).get("seeds"), int):
        return 0
    every = math.prod(map(len, factors_of(report.record).switches.values()))
    aliased = any(row.aliases for row in (*effects.main, *effects.interactions))
    return every - len(report.variants) if aliased and every <= MOST_COMBINATIONS else 0


def _called(row: VariantRow) -> str:
    """What a variant changes, in words, or its name."""
    return new_part(row.change.words) or row.name


def _is_open(effects: StudyEffects, row: EffectRow) -> bool:
    return effects.finding(row) == "undecided"


def _more_seeds(report: StudyReport) -> Iterator[NextStep]:
    """More seeds for what is undecided."""
    if shows_effects(report) or not (seeds := deciding_seeds(report)):
        return
    most = math.inf if report.rule.relative else int(seeds.partition(":")[2]) - len(report.baseline.planned)
    undecided = [row for row in report.variants if row.verdict is not None and row.verdict.word == "undecided"]
    known = [(row.verdict.further_seeds, row.verdict.chance) for row in undecided if row.verdict is not None]
    settled = [(further, chance) for further, chance in known if further and further <= most]
    if not settled:
        return
    further, chances = max(further for further, _ in settled), [chance for _, chance in settled if chance is not None]
    trained = [row.seconds / len(row.finished) for row in (report.baseline, *undecided) if row.finished]
    seconds = further * sum(trained) if report.baseline.finished else None
    arguments = ("resume", report.record.name, "--seeds", seeds)
    each = " each" if len(settled) > 1 else ""
    which = f"{len(undecided)} comparisons are"
    what = "them" if len(settled) == len(undecided) else f"{len(settled)} of them"
    if len(undecided) == 1:
        which, what = f"{_called(undecided[0])} is", "it"
    more = plural(further, f"more {report.unit}")
    of = "" if report.rule.relative else f" of {'it' if len(undecided) == 1 else 'them'} and of the baseline"
    likely = f"may settle {what}"
    if len(chances) == len(settled):
        likely = f"would settle {what} with a chance of {in_percent(min(chances))}{each}"
    purpose = f"{which} undecided: about {more}{of} {likely}"
    yield NextStep(arguments, purpose, seconds)


def _further_looks(report: StudyReport) -> Iterator[NextStep]:
    """The seeds that a schedule of a study has left for what is undecided."""
    schedule = report.rule.schedule
    if schedule is None or not isinstance(report.record.space.get("design", {}).get("seeds"), Mapping):
        return
    undecided = [row for row in report.variants if row.verdict is not None and row.verdict.word == "undecided"]
    if wanted := [row for row in undecided if not row.confirmed and len(row.planned) < schedule.max]:
        purpose = f"adds seeds to {len(wanted)} of {len(undecided)} undecided, up to {schedule.max}"
        yield NextStep(("resume", report.record.name), purpose)


def _further_tuning(report: StudyReport) -> Iterator[NextStep]:
    """More seeds of tuning where only the uncertain best value leaves a comparison undecided."""
    withheld = [row for row in report.variants if row.verdict is not None and "tuning seeds" in row.verdict.withheld]
    if names := [*map(_called, withheld)]:
        seeds = 2 * report.record.space["tune"]["seeds"]
        yield NextStep((), f"`tune: {{seeds: {seeds}}}` in the space may settle {few(names)}")


@dataclass(frozen=True, slots=True)
class _Open:
    """What a study leaves undecided.

    Attributes:
        compared: How many comparisons have a verdict.
        undecided: How many of these are undecided.
        of_seeds: Those that more seeds may decide: the variant in words, and how many more it needs, None if too many.
    """

    compared: int
    undecided: int
    of_seeds: tuple[tuple[str, int | None], ...]


def _open(report: StudyReport) -> _Open:
    compared = [
        (row.verdict, row.difference, lost_its_pairs(row, report), _called(row))
        for row in report.variants
        if row.verdict is not None
    ]
    if report.scaling is not None and report.climbs is None:
        compared = [
            (point.verdict, point.difference, False, f"{scaling.variant} at {point.at:g}")
            for scaling in report.scaling.of
            for point in scaling.points
        ]
    undecided = [comparison for comparison in compared if comparison[0].word == "undecided"]
    of_seeds = tuple(
        (name, verdict.further_seeds)
        for verdict, shown, lost, name in undecided
        if not (verdict.withheld or lost or (shown and shown.is_flat))
    )
    return _Open(len(compared), len(undecided), of_seeds)


def _planned_seeds(report: StudyReport) -> Iterator[NextStep]:
    """More seeds in the space, where no schedule continues from those that the study has.

    A verdict on what results chose rests on fresh seeds alone, so more of those are needed.
    """
    left, planned, design = _open(report), len(report.baseline.planned), report.record.space.get("design", {})
    confirmed = [row for row in report.variants if row.confirmed]
    fresh = {_called(row): len(row.confirmed) for row in confirmed}
    known = {name: further for name, further in left.of_seeds if further}
    enough = {name: further for name, further in known.items() if fresh.get(name, planned) + further <= LAST}
    swept = report.scaling is not None and report.scaling.is_swept
    scheduled = report.record.traits.adds_seeds and not swept and planned >= LEAST_PAIRS
    if not enough or report.unit != "seed" or report.record.judged is not None or scheduled:
        return
    chosen = {name: further for name, further in enough.items() if name in fresh}
    named, rows = (chosen, [report.baseline, *confirmed]) if chosen else (enough, report.variants)
    further, by_rung = max(named.values()), design.get("seeds_per_rung")
    seeds = further + (max(fresh[name] for name in chosen) if chosen else planned)
    field = f"seeds_per_rung: {[*by_rung[:-1], seeds]}" if by_rung else f"{'confirm' if chosen else 'seeds'}: {seeds}"
    where = " on the largest rung" if by_rung else ""
    trained = [row.seconds / len(row.finished) for row in rows if row.finished]
    more = f"{plural(further, 'more fresh seed' if chosen else 'more seed')}{where}"
    yield NextStep((), f"{more} may settle {few(list(named))}", further * math.fsum(trained) or None, field)


def _why_none(report: StudyReport) -> str:
    """Why no command would settle anything."""
    left, unit = _open(report), report.unit
    chosen = any(row.chosen for row in report.variants)
    if not left.undecided and chosen and not any(row.confirmed for row in report.variants):
        return "`confirm: 3` in the design tries what was selected on fresh seeds"
    if not left.undecided:
        return _nothing_open(report) if left.compared else "there is nothing to compare"
    if not left.of_seeds:
        return "no number of seeds settles what is undecided: `--why` says what would"
    needed = [further for _, further in left.of_seeds if further]
    scheduled = report.record.traits.adds_seeds and unit == "seed"
    if not needed and report.rule.schedule is not None:
        return f"what is undecided needs more {unit}s than the schedule has: a longer one may settle it"
    all_known = len(needed) == len(left.of_seeds)
    each = [*map(str, sorted({*needed})), *([] if all_known else [f"over {MOST_FURTHER_SEEDS}"])]
    beyond = ", beyond any schedule" if scheduled else ""
    units = unit if each == ["1"] else f"{unit}s"
    if report.record.traits.finds_best and not needed:
        return f"keep the baseline: to tell the chosen point from it, {each[0]} more {units} would be needed"
    many = plural(left.undecided, "undecided comparison")
    which = many if len(left.of_seeds) == left.undecided else f"{len(left.of_seeds)} of {many}"
    return f"{which} need{'s' * (len(left.of_seeds) == 1)} {listed(each)} more {units}{beyond}"


def _open_claims(report: StudyReport) -> Iterator[NextStep]:
    """The claims that are open where every comparison is decided, and fresh seeds have confirmed what was selected."""
    rows = compared_rows(report)
    confirmed = any(row.confirmed for row in rows) or not any(row.chosen for row in rows)
    verdicts = [row.verdict for row in rows if not row.chosen]
    decided = verdicts and all(verdict is not None and verdict.is_decided for verdict in verdicts)
    decided = decided and not _open(report).undecided  # at no other place either
    if confirmed and decided and (number := sum(claim.verdict == "undecided" for claim in report.answer.claims)):
        are = "claim is" if number == 1 else "claims are"
        yield NextStep(("claims", report.record.name), f"says why {number} {are} open; every comparison is decided")


def _nothing_open(report: StudyReport) -> str:
    """That every comparison is decided, or which of them no seeds decide."""
    rows = [row for row in compared_rows(report) if not row.chosen]
    lost = [row.change.words or row.name for row in rows if row.verdict is None or not row.verdict.is_decided]
    if lost:
        return f"no seeds decide on {few(lost)}: `--why` says what happened"
    effects = report.effects
    if effects is not None and any(effects.finding(row) == NO_REPLACEMENT for row in effects.interactions):
        return "the answer needs no more seeds; whether one part matters less without the other is open"
    if report.unit == "window":
        return "every comparison is decided for this one trained model; another training may differ"
    if any(row.chosen and not row.confirmed for row in compared_rows(report)):
        return "nothing is open: every comparison on fresh seeds is decided"
    return "nothing is open: every comparison is decided"


def _together(report: StudyReport) -> Iterator[NextStep]:
    """The removals that hold alone tried together, with fresh seeds for what that selects."""
    record = report.record
    alone = [
        row
        for row in report.variants
        if row.verdict is not None and row.verdict.is_acceptable and row.change.only_removes and not row.change.combines
    ]
    removed = removed_settings(alone, record)
    in_others = {name for row in alone for name in included(row.name, removed)}
    alone = [row for row in alone if row.name not in in_others]
    fits = not (record.traits.chooses or record.space.get("tuned") or report.evidence.windows or report.scaling)
    if len(alone) > 1 and fits:
        arguments = ("resume", record.name, "--design", "simplify")
        yield NextStep(arguments, f"tries {len(alone)} removals together")


def _further_rung(report: StudyReport) -> Iterator[NextStep]:
    """The rung of a ladder that would decide what it left open."""
    rung = None if report.climbs is None else next_rung(report.climbs, report.record)
    if rung is None:
        return
    tune, seeds = report.record.space.get("tune"), len(report.baseline.planned)
    tuning = math.prod(map(len, tune["grid"].values())) * tune["seeds"] if tune else 0
    trained = math.fsum(row.seconds for row in report.variants) * (1 + tuning / seeds)
    what = "would decide" if rung.decides else "is needed before anything is extrapolated:"
    purpose = f"a rung of {float(f'{rung.times:.2g}'):g} times the compute {what} {few(rung.variants)}"
    yield NextStep(("resume", report.record.name, "--rung", f"{rung.value:g}"), purpose, rung.times * trained)


def deciding_seeds(report: StudyReport) -> str:
    """The seeds that would decide what is undecided, as `--seeds` takes them: `4:11`, or `9` of a time to a target.

    Returns:
        An empty text if nothing is undecided, if more seeds than a schedule has would be needed, or if the design adds
        seeds already or cannot add any.
    """
    undecided = [row for row in report.variants if row.verdict is not None and row.verdict.word == "undecided"]
    if report.rule.relative:  # a schedule would follow the final loss
        needed = [more for row in undecided if row.verdict is not None and (more := row.verdict.further_seeds)]
        return str(len(report.baseline.planned) + max(needed)) if needed else ""
    swept = report.scaling is not None and report.scaling.is_swept
    if report.unit != "seed" or not report.record.traits.adds_seeds or swept:
        return ""
    advised = advised_seeds(undecided, report.rule.schedule)
    return "" if advised is None else f"{advised.start}:{advised.max}"


def study_arguments(study: str, store: str, seeds: str = "", plugins: Sequence[str] = ()) -> list[str]:
    """The arguments of `ablate` that continue a study of a store.

    Args:
        store: A file or a URL.
        seeds: As `--seeds` takes them; empty: those that it has.
        plugins: Files with kinds of the user's own.
    """
    chosen = [f"--seeds={seeds}"] if seeds else []
    given = [f"--plugin={plugin}" for plugin in plugins]
    return ["resume", study, *chosen, f"--store={store}", *given]
