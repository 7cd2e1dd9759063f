"""How much longer a variant was trained than the baseline, where trials start from stages of the study."""

from __future__ import annotations

from ablate.analysis.fairness import NEAR
from ablate.analysis.runs import VariantRuns
from ablate.analysis.text import plural
from ablate.store.records import TrialRecord, VariantRecord


def longer_in_all(
    variant: VariantRecord, baseline: VariantRecord, runs: VariantRuns, baseline_runs: VariantRuns, axis: str
) -> str:
    """By how much longer a variant was trained in all, as a clause for its verdict.

    Args:
        variant: The variant.
        baseline: That of the study.
        runs: Trials of the variant, with their stages.
        baseline_runs: The same of the baseline.
        axis: What the study matches: `steps`, `tokens`, `seconds` or `flops`. Steps are compared exactly, the others
            if they differ by more than `NEAR`.
    """
    if not (runs.stages or baseline_runs.stages):
        return ""
    ours, theirs = _in_all(variant, runs, axis), _in_all(baseline, baseline_runs, axis)
    if axis == "steps":
        more = round(ours - theirs)
        return f"trained {plural(abs(more), 'step')} {'more' if more > 0 else 'less'} than the baseline" if more else ""
    if not theirs or abs(ours / theirs - 1) <= NEAR:
        return ""
    return f"trained on {ours / theirs:.3g} times the {axis} of the baseline"


def _in_all(variant: VariantRecord, runs: VariantRuns, axis: str) -> float:
    """Steps, tokens, seconds or FLOPs of a trial with its stages: of steps those asked for, else those of one seed."""
    stages = next(iter(runs.stages.values()), ())
    if axis == "steps":
        return float(variant.spec["training"]["steps"]) + sum(one.steps for one in stages)
    trial = next(iter(runs.finished.values()), None)
    return _spent(trial, axis) + sum(_spent(one, axis) for one in stages)


def _spent(trial: TrialRecord | None, axis: str) -> float:
    return 0.0 if trial is None else float(getattr(trial, axis))
