"""The headline of an answer: what answers the title of a study of each design, in a few short sentences."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, takewhile
from textwrap import wrap

from ablate.analysis.answer_rows import (
    Along,
    AnswerGroup,
    AnswerRow,
    GroupKey,
    changed_settings,
    compared_rows,
    in_answer,
)
from ablate.analysis.changes import setting_changes
from ablate.analysis.effects import EffectRow, Side, StudyEffects
from ablate.analysis.numbers import decimals_for, few, fixed, listed, new_part, percent, plural, replaced
from ablate.analysis.path import takes_path
from ablate.analysis.report import StudyReport
from ablate.analysis.warnings import StudyWarning
from ablate.spec.design import BASELINE, split_axis
from ablate.store.records import StudyRecord

SMALLER = 0.01
"""Share of the parameters from which a block that has fewer is called smaller."""
MOST_NAMED = 2
"""Variants that a sentence names; it counts more of them."""
COLUMNS = 80
"""Width of a line in characters; a headline should fit two lines."""
MOST_ON_TASKS = 4
"""Tasks of a suite that the headline speaks of."""
MOST_ALONG = 3
"""Variants whose verdicts along an axis the headline spells out."""
Rows = Mapping[GroupKey, Sequence[AnswerRow]]
NOT_WORSE: tuple[GroupKey, ...] = ("better", "can go", "ahead", "as good")
DECIDED: tuple[GroupKey, ...] = (*NOT_WORSE, "must stay", "worse")


def headline(
    groups: Sequence[AnswerGroup], trust: Sequence[StudyWarning], along: Along | None, report: StudyReport
) -> tuple[str, ...]:
    """What can go and what must stay, or what else the title of a study asks for.

    It names what is worse, with bounds, or at least without, if that fits on two lines.
    """
    forms = [
        _sentences(groups, trust, along, report, Detail(bounds, worse))
        for bounds, worse in ((True, True), (False, True), (True, False))
    ]
    return next((form for form in forms if len(wrap(" ".join(form), COLUMNS)) <= 2), forms[-1])


@dataclass(frozen=True, slots=True)
class Detail:
    """How much a headline says.

    Attributes:
        bounds: Whether it gives the bounds of changes and of the smallest variant.
        worse: Whether it names what is worse beside parts that can go or must stay.
    """

    bounds: bool
    worse: bool


def _sentences(
    groups: Sequence[AnswerGroup],
    trust: Sequence[StudyWarning],
    along: Along | None,
    report: StudyReport,
    detail: Detail,
) -> tuple[str, ...]:
    if void := next((line.text for line in trust if line.replaces_headline), ""):
        return (f"No answer yet: {void}.",)
    if said := (*_effects(report), *_best(groups, report)):  # verdicts on single variants are below it
        return said
    if by_task := (*_on_tasks(groups, report),):
        return by_task
    rows: Rows = {group.key: group.rows for group in groups}
    first, beyond = [*_along(along)], _climbs(groups, report)
    smallest = _smallest(rows, report, detail)
    if report.record.traits.chooses and smallest:
        first.append(smallest)
    if not any(rows.get(key) for key in DECIDED):
        decided = {cell.verdict for cells in along.rows.values() for cell in cells} if along is not None else set()
        nothing = [] if decided - {"", "undecided", "diverged"} else [_nothing_decided(groups, report)]
        return (*first, *nothing, *beyond)
    told = along is not None and len(along.rows) <= MOST_ALONG
    kept = {key: list(of) for key, of in rows.items() if not told}
    if smallest in first:  # it says what can go
        kept.pop("can go", None)
    kept |= {"can go": _nested(kept.get("can go", ()))[0], "must stay": _nested(kept.get("must stay", ()))[1]}
    if report.climbs is not None:
        rest = [*_on_largest_rung(kept, report)]
    else:
        parts = [*_parts(kept["can go"], kept["must stay"])]
        rest = [*parts, *_changes(kept, report, detail, alone=not parts)]
    if smallest and smallest not in first and report.climbs is None:
        rest.append(smallest)
    sentences = [*first, *rest]
    if not any(row.confirmed for row in report.variants):
        sentences += _selected(rows.get("unproven", ()), report)
    return (*sentences, *beyond)


def _on_tasks(groups: Sequence[AnswerGroup], report: StudyReport) -> Iterator[str]:
    """The verdicts in mean score, then the variants that are better or worse on single tasks; nothing if none is."""
    words = {row.variant: row.words for group in groups for row in group.rows}
    told, alike = list[str](), list[str]()
    for task, of in report.tasks.items():
        sides: dict[str, list[str]] = {"better": [], "worse": []}
        for row in of.variants if of.answer.learnt else ():
            if row.verdict is not None and (row.verdict.is_worse or row.verdict.word == "better"):
                sides["worse" if row.verdict.is_worse else "better"].append(new_part(words.get(row.name, row.name)))
        than = "" if told else f" than {replaced(words.values()) or 'the baseline'}"
        said = [f"{_subject(names)} {side}{than}" for side, names in sides.items() if names]
        (told if said else alike).append(f"on {task}, {' and '.join(said)}" if said else task)
    if told:
        more = len(told) - MOST_ON_TASKS
        rest = [f"on {plural(more, 'more task')} some are"] if more > 0 else []
        rest += [f"on {listed(alike)}, none is shown to be better or worse"] if alike else []
        yield _in_mean(groups)
        yield f"{'; '.join([*told[:MOST_ON_TASKS], *rest])}.".replace("on", "On", 1)


def _in_mean(groups: Sequence[AnswerGroup]) -> str:
    """The verdicts on the variants of a suite in the mean score, its objective."""
    than = f" than {replaced([row.words for group in groups for row in group.rows]) or 'the baseline'}"
    said = []
    for group in groups:
        names = [new_part(row.words) for row in group.rows]
        named = listed(names) if len(names) <= MOST_NAMED else str(len(names))
        one, several = ON_RUNG.get(group.key, (f"is {group.key}", f"are {group.key}"))
        compared = group.key in ("better", "worse")
        said.append(f"{named} {several if len(names) > 1 else one}{than if compared else ''}")
        than = "" if compared else than
    return f"{MEAN_SCORE}, {'; '.join(said)}."


def _subject(names: Sequence[str]) -> str:
    """Names, or their number, with the verb."""
    return f"{listed(names) if len(names) <= MOST_NAMED else len(names)} {'are' if len(names) > 1 else 'is'}"


def _nested(rows: Sequence[AnswerRow]) -> tuple[list[AnswerRow], list[AnswerRow]]:
    """The removals that no other one of these includes, and those that include no other one."""
    within = {name for row in rows for name in row.includes}
    names = {row.variant for row in rows}
    return [row for row in rows if row.variant not in within], [row for row in rows if names.isdisjoint(row.includes)]


def _selected(unproven: Sequence[AnswerRow], report: StudyReport) -> Iterator[str]:
    """The smallest block that results have selected, where a design looks for one and no fresh seeds confirm it yet."""
    sign = report.rule.sign
    fine = [row for row in unproven if row.difference is not None and sign * row.difference < report.margin]
    if smallest := _smallest_of(fine, parts=True):
        yield f"Smallest model selected, not confirmed on fresh seeds: {named(smallest)}{_fewer(smallest)}."


def _best(groups: Sequence[AnswerGroup], report: StudyReport) -> Iterator[str]:
    """Which point of a search is the best, and whether fresh seeds have confirmed it."""
    if not report.record.traits.finds_best:
        return
    means = {
        row.name: mean.mean for row in report.variants if (mean := row.mean(report.metric)) and mean.mean is not None
    }
    if len(means) < 2:
        return
    confirmed = [row.name for row in report.variants if row.confirmed and row.name in means and row.verdict is not None]
    name = (min if report.direction == "minimize" else max)(confirmed or means, key=means.__getitem__)
    (row,) = (row for row in report.variants if row.name == name)
    shown = next((shown for group in groups for shown in group.rows if shown.variant == name), None)
    words = named(shown) if shown else name
    decimals, base = decimals_for(report.margin, ()) + 1, means.get(report.record.baseline)
    beside = f" (baseline {fixed(base, decimals)})" if base is not None and shown else ""
    others = len(means) - (report.record.baseline in means)
    beside_baseline = " besides the baseline" * (others < len(means) and name != report.record.baseline)
    number = others if beside_baseline else len(means)
    said = f"Best of {plural(number, 'combination')}{beside_baseline}: {words}"
    if row.confirmed and row.awaits:
        yield f"{said}; {row.awaits.replace('seed', 'fresh seed')}."
    elif shown and shown.difference is not None and row.beside is not None:
        own, other = (fixed(value, decimals) for value in (row.beside + shown.difference, row.beside))
        on = f"on {plural(len(row.confirmed), 'fresh seed')}"
        if any(of.confirmed and of.verdict and of.verdict.is_ahead for of in report.variants):
            yield f"{said}."
            both = f"its {report.metric} is {own}, the baseline's {other}"
            yield f"{on.capitalize()} {both}: {_beats(shown, report)}."
        else:
            yield "No combination is shown to beat the baseline."
            both = f"{report.metric} {own} {on}, the baseline {other}"
            yield f"The one chosen of {others}, {words}, has {both}: {_beats(shown, report)}."
    else:
        yield f"{said}, {report.metric} {fixed(means[name], decimals)}{beside}; not confirmed on fresh seeds."


def _beats(best: AnswerRow, report: StudyReport) -> str:
    """Whether the best point of a search is shown to be better than the baseline, by the bound of its verdict."""
    if best.bound is None:
        return "undecided"
    size = cost_of(best, report)
    if best.verdict in ("needed", "worse") or report.rule.sign * best.bound < 0:
        within = f", perhaps less than the margin {report.margin:g}" * (best.verdict in ("not needed", "not worse"))
        return f"{size}{within}"
    return f"as good, {size}"


def shows_effects(report: StudyReport) -> bool:
    """Whether the headline is about average effects: the design crosses its switches, and chose none by results."""
    return report.effects is not None and not report.effects.chosen and reference_of(report) == BASELINE


def _effects(report: StudyReport) -> Iterator[str]:
    """What each switch does, averaged over the others, and which pairs interact; first what the question asks for."""
    effects = report.effects
    if effects is None or not shows_effects(report):
        return
    so_far = " so far" if any(row.running for row in report.variants) else ""
    said = average_sentence(effects, so_far), *pair_sentences(effects)
    yield from (*said[1:], said[0]) if effects.asked else said
    others = [row.verdict for row in report.variants if row.name != report.record.baseline]
    if effects.removes(*effects.main) and all(verdict is not None and verdict.is_worse for verdict in others):
        yield f"Keep {'both' if len(effects.main) == 2 else f'all {len(effects.main)}'}."


def average_sentence(effects: StudyEffects, so_far: str = "") -> str:
    """What each switch does, averaged over the others."""
    rows = effects.ranked(effects.main)
    groups = {side: [row for row in rows if effects.side(row) == side] for side in _AVERAGES}
    known = {side: of for side, of in groups.items() if of}
    if known.keys() == {"undecided"}:
        return f"None of {plural(len(rows), 'average effect')} is decided{so_far}."

    def said(side: Side, of: Sequence[EffectRow]) -> str:
        write = _bound if side == "as good" else _size
        sizes = ["" if side == "undecided" else f" ({write(effects, row)})" for row in of]
        names = [f"{_pair_words(effects, row)}{size}" for row, size in zip(of, sizes, strict=True)]
        others = sum(len(other) for other in known.values() if other is not of and len(other) <= MOST_NAMED)
        rest = (
            f"the other {plural(len(of), 'change')}"
            if others and others + len(of) == len(rows)
            else f"{len(of)} of {len(rows)}"
        )
        named = len(of) <= MOST_NAMED and (side != "undecided" or len(of) == 1)
        alike = side == "as good" and named and effects.removes(*of)
        than = (" as keeping it" if len(of) == 1 else " as keeping them") * alike
        return f"{listed(names) if named else rest} {'is' if len(of) == 1 else 'are'} {side}{than}"

    return f"On average{so_far}, {'; '.join(said(side, of) for side, of in known.items())}."


def pair_sentences(effects: StudyEffects) -> Iterator[str]:
    """Which pairs of settings interact; first those that the question of the study asks for, if it names any."""
    if not effects.interactions:
        if effects.interactions_left_out:
            yield "Its variants do not tell interactions apart."
        return
    asked = [row for row in effects.interactions if row.name in effects.asked]
    asked = asked if len(asked) <= MOST_NAMED else []
    yield from (_on_pair(effects, row) for row in asked)
    pairs = plural(number_of_pairs(effects), "pair")
    others = [row for row in effects.ranked(effects.interactions) if row not in asked]
    if found := [row for row in others if effects.side(row).endswith("sum")]:
        least = "At least " if any(row.aliases for row in found) else ""
        names = [f"{_pair_words(effects, row)} ({_size(effects, row)} beyond the sum of both)" for row in found]
        told = f": {listed(names)}" if len(found) <= MOST_NAMED else ""
        which = plural(len(found), "other pair") if asked else f"{len(found)} of {pairs}"
        yield f"{least}{which} interact{'s' * (len(found) == 1)}{told}."
    elif not asked and all(effects.side(row) == "undecided" for row in others):
        confounded = 2 * len(others) == number_of_pairs(effects)
        mixed = ": the combinations trained mix them two by two" * confounded
        yield f"Whether any of {pairs} interacts is undecided{mixed}."
    elif not asked:
        yield f"No pair of {number_of_pairs(effects)} is known to interact."


def _on_pair(effects: StudyEffects, row: EffectRow) -> str:
    """Whether the two settings of a pair interact, and how much they do together beyond the sum of both."""
    first, second = map(part_of, effects.titles[row.name].split(" × "))
    size = f"{_size(effects, row)} beyond the sum of both"
    begin = f"The {first[4:]}" if first.startswith("the ") else first
    removed, side = effects.removes(row) and not row.aliases, effects.side(row)
    if removed and side == "worse than the sum":
        return f"{begin} and {second} replace each other: without both it is worse than the sum says ({size})."
    if removed and effects.not_worse(row):
        return f"{begin} and {second} do not replace each other ({size}, {_bound(effects, row)})."
    match side:
        case "undecided":
            asked = "replace each other" if removed else "interact"
            return f"Whether {first} and {second} {asked} is undecided ({size})."
        case "within":
            return f"{begin} and {second} do not interact ({size})."
        case _:
            return f"{begin} and {second} interact: together {side} of both ({_size(effects, row)})."


def _pair_words(effects: StudyEffects, row: EffectRow) -> str:
    if ":" not in row.name and not row.aliases:
        title = new_part(effects.titles[row.name])
        return f"removing {part_of(title)}" if title.startswith("no ") else title
    names = (new_part(effects.titles[name]).split(" × ") for name in (row.name, *row.aliases))
    return ", or ".join(" with ".join(map(part_of, name) if len(name) > 1 else name) for name in names)


def part_of(title: str) -> str:
    """The part that a setting is without: `the skip` of `no skip`; another title as it is."""
    return f"the {title.removeprefix('no ')}" if title.startswith("no ") else title


def _size(effects: StudyEffects, row: EffectRow) -> str:
    return fixed(row.estimate, decimals_for(effects.margin, ()), sign=True)


def _bound(effects: StudyEffects, row: EffectRow) -> str:
    """The bound of an effect for the worse: `at most +0.035`."""
    assert row.bounds is not None, "only what is bounded is not worse"
    most, end = ("most", row.bounds[1]) if effects.direction == "minimize" else ("least", row.bounds[0])
    return f"at {most} {fixed(end, decimals_for(effects.margin, ()), sign=True)}"


_AVERAGES: tuple[Side, ...] = ("worse", "better", "as good", "undecided")
"""Where an average effect may lie, in the order of the headline."""


def number_of_pairs(effects: StudyEffects) -> int:
    """How many pairs of settings a study crosses, those that it cannot tell apart or does not show among them."""
    known = [name for row in (*effects.main, *effects.interactions) for name in (row.name, *row.aliases)]
    return sum(name.count(":") == 1 for name in (*known, *effects.unseen))


def _on_largest_rung(rows: Rows, report: StudyReport) -> Iterator[str]:
    """The verdicts on the variants of a ladder where they were trained, before what nobody has trained."""
    if report.scaling is None:
        return
    smallest, *_, largest = report.scaling.places
    were_ahead = {
        one.variant
        for one in report.scaling.of
        if one.points and one.points[0].at == smallest and one.points[0].verdict.is_ahead
    }
    times = f"{float(f'{largest / smallest:.2g}'):g} times the compute"
    gains = [
        (key, new_part(row.words)) for key, of in rows.items() for row in of if split_axis(row.variant)[0] in were_ahead
    ]
    if gains:
        stay = [name for key, name in gains if key in ("better", "ahead")]
        are = "is" if 1 in (len(stay), len(gains)) else "are"
        which = f": {_few(stay)}" if stay else ""
        yield f"{len(stay)} of {plural(len(gains), 'gain')} {are} shown to survive {times}{which}."
    gone = {one.variant for one in report.scaling.of if one.points and one.points[-1].at < largest}
    there = {key: [row for row in of if split_axis(row.variant)[0] not in gone] for key, of in rows.items()}
    parts = [
        f"{_few(names)} {verbs[len(names) > 1]}"
        for key, verbs in ON_RUNG.items()
        if (names := [new_part(row.words) for row in there.get(key, ())])
    ]
    worse = (row for key in ("must stay", "worse") for row in rows.get(key, ()) if row not in there[key])
    if dropped := [new_part(row.words) for row in worse]:
        yield f"Dropped before the largest models, as worse: {_few(dropped)}."
    if parts:
        yield f"On the largest models{f', {times} of the smallest' * (not gains)}: {'; '.join(parts)}."


def _few(names: Sequence[str]) -> str:
    return listed(names) if len(names) <= MOST_ALONG else few(names)


def _climbs(groups: Sequence[AnswerGroup], report: StudyReport) -> Iterator[str]:
    """What becomes of the differences of a ladder at larger models."""
    climbs = report.climbs
    if climbs is None:
        return
    words = {row.variant: row.words for group in groups for row in group.rows}
    largest = report.record.baseline.removeprefix(BASELINE)
    by_fate: dict[str, list[str]] = {fate: [] for fate in FATES}
    for one in climbs.of:
        if not one.refusal:
            name = words.get(one.scaling.variant + largest, one.scaling.variant)
            by_fate[one.fate_in_words].append(new_part(name))
    parts = [f"{_few(names)} {FATES[fate][len(names) > 1]}" for fate, names in by_fate.items() if names]
    if parts:
        yield f"{EXTRAPOLATED} {climbs.times:g} times that compute: {'; '.join(parts)}."


MEAN_SCORE = "In mean score"
"""How the sentence on the mean score of a suite begins."""
EXTRAPOLATED = "Extrapolated to"
"""How a sentence on what nobody has trained begins."""
ON_RUNG: dict[GroupKey, tuple[str, str]] = {
    "better": ("is better", "are better"),
    "can go": ("can go", "can go, one at a time"),
    "ahead": ("is ahead", "are ahead"),
    "as good": ("is as good", "are as good"),
    "must stay": ("must stay", "must stay"),
    "worse": ("is worse", "are worse"),
}
"""Decided groups of a ladder, to what a headline says of one variant and of several."""
FATES = {
    "better": ("stays better", "stay better"),
    "not worse": ("is as good", "are as good"),
    "worse": ("stays worse", "stay worse"),
    "vanishes": ("falls within the margin", "fall within the margin"),
    "turns": ("turns to the other side", "turn to the other side"),
    "undecided": ("is undecided", "are undecided"),
}
"""What becomes of a difference at larger models, to what a headline says."""
OF_NAMES = {"needed": "worse", "not needed": "as good", "not worse": "as good"}
"""Verdicts to what a headline says of variants that are called by their names; `in_answer` of parts."""


def _along(along: Along | None) -> Iterator[str]:
    """Whether the verdicts on the variants hold along an axis, and where they change."""
    if along is None:
        return
    budgets = along.axis == "training"
    if len(along.rows) > MOST_ALONG:
        found = [{cell.verdict for cell in cells} for cells in along.rows.values()]
        holds = sum(len(words) == 1 and words.isdisjoint(("", "undecided", "diverged")) for words in found)
        places = f"from {along.places[0]} to {along.places[-1]}"
        if holds == len(found):
            yield f"All {holds} verdicts hold along {along.axis} {places}."
            return
        hold = f"{holds} of {len(found)} verdicts {'holds' if holds == 1 else 'hold'} along {along.axis} {places}"
        yield f"{hold}; each other one changes or stays undecided."
        return
    for words in along.rows:
        verdicts = [(word, [*of]) for word, of in groupby(_judged(along, words), key=lambda one: one[1])]
        said = []
        for number, (word, at_places) in enumerate(verdicts):
            ends = dict.fromkeys((at_places[0][0], at_places[-1][0]))
            where = "" if number else f"{along.axis} "
            whole = len(at_places) == len(along.places)
            at = f"at every {'length' if budgets else along.axis}, " * whole + where * (not whole)
            said_word = in_answer(word) if budgets else OF_NAMES.get(word, word)
            said.append(f"{said_word} {'at ' * (not whole)}{at}{' to '.join(ends)}")
        yield f"{words[0].upper() + words[1:] if ' ' in words else words}: {', '.join(said)}."


def _judged(along: Along, words: str) -> list[tuple[str, str]]:
    return [(place, cell.verdict) for place, cell in zip(along.places, along.rows[words], strict=True) if cell.verdict]


def _nothing_decided(groups: Sequence[AnswerGroup], report: StudyReport) -> str:
    if not groups:
        return "The study has no variant besides its baseline, so there is nothing to compare."
    keys = {group.key for group in groups}
    if keys == {"unproven"}:
        return "No verdict: results selected these variants, and no fresh seeds have confirmed them."
    many = sum(len(group.rows) for group in groups)
    if all(row.bound_text == "not timed" for group in groups for row in group.rows):
        return f"No verdict yet: {many} not timed."
    pairs = [row.difference.n for row in compared_rows(report) if row.difference is not None and row.difference.n]
    if keys == {"undecided"} and pairs:
        seeds = max(pairs)
        which = f"any of the {many} comparisons" if many > 1 else "the comparison"
        return f"No verdict yet: {plural(seeds, report.unit)} {'does' if seeds == 1 else 'do'} not decide {which}."
    yet = " yet" * (keys != {"lost"})
    return f"No verdict{yet}: {listed(f'{len(group.rows)} {group.word}' for group in groups)}."


def _parts(can_go: Sequence[AnswerRow], must_stay: Sequence[AnswerRow]) -> Iterator[str]:
    """A sentence on the parts that can go and those that must stay, each without the others, if there are any."""
    clauses = [*_clause(can_go, "or", "can go"), *_clause(must_stay, "and", "must stay")]
    if len(can_go) > 1:
        yield f"One at a time, {'; '.join(clauses)}."
    elif clauses:
        said = "; ".join(clauses)
        yield f"{said[0].upper()}{said[1:]}."


def _clause(rows: Sequence[AnswerRow], between: str, what: str) -> Iterator[str]:
    if not rows:
        return
    if len(rows) <= MOST_NAMED and sum(len(row.words) for row in rows) < 60:
        comma = "," if len(rows) > 1 and any(" and " in row.words for row in rows) else ""
        yield f"{f'{comma} {between} '.join(row.words for row in rows)}{comma} {what}"
    else:
        together = sum(row.combines for row in rows)
        said = [plural(len(rows) - together, "part"), f"{plural(together, 'combination')} of parts"]
        yield f"{listed(text for text in said if not text.startswith('0 '))} {what}"


def named(row: AnswerRow) -> str:
    """What a variant changes, or what it is without."""
    new = new_part(row.words) if row.words.startswith("the ") and " + " not in row.words else row.words
    if row.removed and not row.words.startswith("without "):
        return f"without {row.words.replace(' + ', ' and ')}"
    return new


def cost_of(row: AnswerRow, report: StudyReport) -> str:
    """The bound on a variant in words: `at most 0.033 worse`."""
    assert row.bound is not None
    size = row.bound_text.partition(" ")[2].lstrip("+-")
    worse = report.rule.sign * row.bound >= 0
    most = worse and row.verdict not in ("needed", "worse")
    return f"at {'most' if most else 'least'} {size} {'worse' if worse else 'better'}"


def reference_of(report: StudyReport) -> str:
    """Name of the variant that all others are compared with, without its place on an axis."""
    name = report.record.baseline
    return name if report.record.judged is not None else split_axis(name)[0]


def _changes(rows: Rows, report: StudyReport, detail: Detail, *, alone: bool) -> Iterator[str]:
    """A sentence for each verdict on the changes which do more than remove parts: the best by name.

    Args:
        alone: Whether nothing else is said, so that changes are counted where they are too many to name.
    """
    reference = reference_of(report)
    old = replaced({row.words for of in rows.values() for row in of})
    other = old or ("" if reference == BASELINE else reference)
    than = f" than {other}" if other else ""
    mean = " in mean score" if report.tasks else ""
    if better := rows.get("better"):
        names = [
            _with_cost(row, report, old, detail) for row in sorted(better, key=lambda row: row.combines)[:MOST_NAMED]
        ]
        rest = len(better) - MOST_NAMED
        more = f"{', '.join(names)} and {rest} more" if rest > 0 else listed(names)
        yield f"Better{than}{mean}: {more}."
    noun = "change" if report.record.judged is None else "variant"
    ahead, good = rows.get("ahead", ()), rows.get("as good", ())
    if len(ahead) == 1 or (ahead and alone):
        names = [row.words.removeprefix(f"{old} → ") for row in ahead]
        of = f" of {other}" if other else ""
        yield f"Ahead{of}: {_few(names)}."
    if len(good) == 1 or (good and alone):
        said = good[0].words if len(good) == 1 else plural(len(good), noun)
        yield f"As good within {report.margin:g}: {said}."
    worse = _nested(rows.get("worse", ()))[1]
    if worse and (alone or (detail.worse and len(worse) <= MOST_NAMED)):
        names = [_with_cost(row, report, old, detail) for row in worse]
        said = listed(names) if len(worse) <= MOST_NAMED else plural(len(worse), noun)
        yield f"Worse{than}{mean * (not better)}: {said}."


def _with_cost(row: AnswerRow, report: StudyReport, old: str, detail: Detail) -> str:
    """What a variant changes, with by how much it is better or worse if bounds are said.

    Args:
        old: What all variants replace, which is said once; empty if they do not replace the same.
    """
    words = row.words.removeprefix(f"{old} → ") if old else row.words
    with_bound = row.bound is not None and detail.bounds
    return f"{words} ({cost_of(row, report).rpartition(' ')[0]})" if with_bound else words


def _smallest(rows: Rows, report: StudyReport, detail: Detail) -> str:
    """The smallest variant that is at least not worse, as a sentence; empty if none is smaller than the baseline."""
    past = past_the_confirmed(report)
    fine = [row for key in NOT_WORSE for row in rows.get(key, ()) if row.variant not in past]
    smallest = _smallest_of(fine, parts=report.record.traits.chooses)
    if smallest is None:
        return ""
    fresh = next(len(row.confirmed) for row in report.variants if row.name == smallest.variant)
    proven = f", confirmed on {fresh} fresh seeds" if fresh else ""
    chooses = report.record.traits.chooses
    keeps = _kept(smallest, report) if chooses else ()
    rest = f" It keeps {listed(keeps)}." if keeps else ""
    stay = rows.get("must stay", ())
    needed = [] if chooses else _needed_but_gone(smallest, stay, report.record)
    needed = [f"that {words.rpartition(' ')[2]}" for words in needed] if len(stay) == 1 else needed
    but = f" (without {listed(needed)})" if needed else ""
    cost = f", {cost_of(smallest, report)}" if detail.bounds else ""
    return f"Smallest that is as good: {named(smallest)}{but}{_fewer(smallest)}{cost}{proven}.{rest}"


def _needed_but_gone(smallest: AnswerRow, needed: Sequence[AnswerRow], record: StudyRecord) -> list[str]:
    """The parts that must stay if nothing else changes, and that a variant with further changes does without."""
    changed = changed_settings((row.variant for row in (smallest, *needed)), record)
    return [row.words for row in needed if changed[row.variant] < changed[smallest.variant]]


def _kept(smallest: AnswerRow, report: StudyReport) -> list[str]:
    """The parts that a design tried to remove and the smallest block still has, each once."""
    own, whole = (
        next(row.settings for row in report.variants if row.name == name)
        for name in (smallest.variant, report.record.baseline)
    )
    tried = {pair: None for row in report.variants for pair in row.settings.items() - whole.items()}
    change = setting_changes(report.record)
    kept = (change(*pair) for pair in sorted(tried) if own.get(pair[0]) == whole.get(pair[0]))
    parts = dict.fromkeys(part for one in kept for part in one.removed)
    return [part for part in parts if (alone := part.partition(" (with ")[0]) == part or alone not in parts]


def past_the_confirmed(report: StudyReport) -> frozenset[str]:
    """The steps of a path beyond the first that fresh seeds do not confirm: so many tests have one error rate only if
    the path holds up to there (`ablate.analysis.path.RemovalPath.confirmed`).
    """
    if not takes_path(report.record):
        return frozenset()
    kept = report.baseline.settings
    steps = sorted(
        (row for row in report.variants if row.confirmed),
        key=lambda row: sum(setting != kept.get(switch) for switch, setting in row.settings.items()),
    )
    holding = takewhile(lambda row: row.verdict is not None and row.verdict.is_acceptable, steps)
    return frozenset(row.name for row in steps) - {row.name for row in holding}


def _smallest_of(rows: Sequence[AnswerRow], *, parts: bool) -> AnswerRow | None:
    """The row with the fewest parameters, of several alike the first; None if none has fewer by `SMALLER`.

    Args:
        parts: Whether to take the one with the fewest parts where none has fewer parameters.
    """
    smaller = [row for row in rows if _fewer(row)]
    if smaller or not parts:
        return min(smaller, key=lambda row: round(row.parameter_change or 0.0, 2), default=None)
    return max((row for row in rows if row.removed), key=lambda row: row.removed, default=None)


def _fewer(row: AnswerRow) -> str:
    """How many parameters fewer it has, as a clause; empty if not by `SMALLER`, or if that is not known."""
    if row.parameter_change is None or row.parameter_change > -SMALLER:
        return ""
    return f", {percent(abs(row.parameter_change)).lstrip('+').replace('%', ' %')} fewer parameters"
