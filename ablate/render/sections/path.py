"""The path of `simplify` as a section of a report."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial

from ablate.analysis.findings import Findings
from ablate.analysis.numbers import MISSING, count, decimals_for, fixed, percent, times_within, with_interval
from ablate.analysis.path import Removal, RemovalPath, VariantSummary
from ablate.analysis.text import plural
from ablate.render.blocks import Block, Grid, Paragraph, Picture, Section

TITLES = ("round", "removal", "from", "parameters", "FLOP", "tokens/s", "difference", "what became of it")


def section(findings: Findings, pictures: Mapping[str, Picture]) -> Section | None:
    """What could go, one after the other."""
    if findings.path is None:
        return None
    return Section("Path", tuple(_blocks(findings.path, pictures)))


def _blocks(path: RemovalPath, pictures: Mapping[str, Picture]) -> Iterator[Block]:
    yield Paragraph(outcome(path))
    if "path" in pictures:
        yield pictures["path"]
    yield Paragraph(
        f"Each round takes one more component from {'the variant' if path.beam == 1 else 'every variant'} kept "
        f"before. A component can be removed if, with 95 % confidence, {path.metric} is at most {path.margin:g} worse "
        "than the baseline's (not than that of the step before: small losses would add up); of these removals, "
        f"{_kept(path)}. Below: an asterisk marks the path; the difference is that of {path.metric} from the baseline, "
        "paired by seed, with its 95 % interval."
    )
    widths = [_half(one.standing) for tried in path.rounds for one in tried]
    decimals = decimals_for(path.margin, [width for width in widths if width is not None])
    start = ("0", "baseline", MISSING, *_costs(path.baseline), MISSING, "where it begins")
    groups = [tuple(_cells(number, one, decimals) for one in tried) for number, tried in enumerate(path.rounds, 1)]
    yield Grid(TITLES, ((start,), *groups), frozenset({1, 2, len(TITLES) - 1}))
    if path.trying:
        yield Paragraph(f"Round {len(path.rounds) + 1} is not over: results of {', '.join(path.trying)} are missing.")


def outcome(path: RemovalPath) -> str:
    """The parts that can be removed, and the cost that this saves, in sentences."""
    open_ = " so far" if path.trying else ""
    if not path.steps:
        return (
            f"Nothing can be removed{open_}: for no removal is {path.metric} at most {path.margin:g} worse with 95 % "
            "confidence."
        )
    removed = ", then ".join(f"{step.switch}={step.setting}" for step in path.steps)
    ends = path.confirmed or path.steps
    last, first = ends[-1].standing, path.baseline
    saved = [f"{percent((last.parameters - first.parameters) / first.parameters)} parameters"]
    if last.flops is not None and first.flops:
        saved.append(f"{percent((last.flops - first.flops) / first.flops)} FLOP")
    if last.relative_speed is not None:
        saved.append(f"{times_within(last.relative_speed)} the tokens a second")
    which = "Together" if len(ends) == len(path.steps) else f"The first {len(ends)} together"
    return f"Removable{open_}, in this order: {removed}. {which}: {', '.join(saved)}. {confirmation(path)}"


def confirmation(path: RemovalPath) -> str:
    """Whether fresh seeds confirm the path, in a sentence. Estimates on the seeds that selected it are biased."""
    if not path.confirmations:
        return (
            "No fresh seeds have confirmed this yet. Estimates on the seeds that selected the path are biased, so it "
            "has no verdict."
        )
    seeds = plural(path.confirmations[0].difference.n, "fresh seed")
    if len(path.confirmed) == len(path.steps):
        last = path.confirmations[-1].verdict.reason
        return f"On {seeds} that took no part in the choice the whole path is confirmed: {last}."
    failed = path.confirmations[len(path.confirmed)] if len(path.confirmed) < len(path.confirmations) else None
    why = f" ({failed.variant} {failed.verdict.sentence})" if failed else ""
    held = f"only the first {len(path.confirmed)}" if path.confirmed else "no step"
    return f"On {seeds} that took no part in the choice {held} of these {len(path.steps)} is confirmed{why}."


def _kept(path: RemovalPath) -> str:
    if path.beam == 1:
        return f"the one with the fewest {_cost(path)} is kept"
    return f"up to {path.beam} with the fewest {_cost(path)} are kept"


def _cost(path: RemovalPath) -> str:
    return {"flops": "FLOP"}.get(path.cost, path.cost)


def _cells(number: int, one: Removal, decimals: int) -> tuple[str, ...]:
    difference, paired = MISSING, one.standing.difference
    if paired and one.verdict.word != "diverged":
        write = partial(fixed, decimals=decimals, sign=True)
        difference = " ".join(with_interval(paired.difference, paired.low, paired.high, write))
    removal = f"{one.switch}={one.setting}" + (" *" if one.on_path else "")
    return str(number), removal, one.parent, *_costs(one.standing), difference, one.reason


def _costs(standing: VariantSummary) -> tuple[str, str, str]:
    flops, speed = standing.flops, standing.tokens_per_second.mean
    return (
        f"{standing.parameters:,}",
        MISSING if flops is None else f"{flops:.3g}",
        MISSING if speed is None else count(round(speed)),
    )


def _half(standing: VariantSummary) -> float | None:
    paired = standing.difference
    if paired is None or paired.low is None or paired.high is None:
        return None
    return (paired.high - paired.low) / 2
