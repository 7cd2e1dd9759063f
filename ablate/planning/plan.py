"""`Plan`: every variant and trial that the design of a study asks for, and the points that make no model."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from ablate.collector import paused_collector
from ablate.designs.base import BASELINE
from ablate.errors import SpaceError
from ablate.planning.planned import InvalidPoint, Trial, Variant, stages_of
from ablate.planning.planner import Planner
from ablate.roles import TrialRole
from ablate.spec.space import SpaceSpec


@dataclass(frozen=True, slots=True)
class Plan:
    """What a study would train, as far as its design knows before results."""

    space: SpaceSpec
    variants: tuple[Variant, ...]
    trials: tuple[Trial, ...]
    invalid: tuple[InvalidPoint, ...]
    aliases: Mapping[str, str]
    """Point to the name of the variant that it is the same as."""
    remarks: tuple[str, ...]
    """Remarks of the design and the budget, one line each."""
    scouts: tuple[Variant, ...] = ()
    """Variants that are trained only to tune or time others."""
    declared: frozenset[str] = frozenset()
    """Names of the variants that the design names before any result."""
    later: tuple[Trial, ...] = ()
    """Trials whose settings depend on the results of earlier ones, such as tuning. Their cost is an estimate, and their
    keys are not final."""

    @property
    def flops(self) -> float:
        """Arithmetic of all trials."""
        return sum(trial.variant.flops for trial in (*self.trials, *self.later))


@paused_collector()
def make_plan(planner: Planner) -> Plan:
    """Ask a fresh design of the planner's space for its trials, without training any.

    Raises:
        AblateError: The baseline makes no model, or a variant's data or cost is not available.
    """
    design = planner.design()
    points = design.points()
    planner.resolve_specs(points)
    declared = frozenset(variant.name for point in points if (variant := planner.resolve(point)) is not None)
    _refuse_unmatched(planner)
    if BASELINE in planner.invalid:
        raise SpaceError(
            f"the baseline makes no model: {planner.invalid[BASELINE].reason}",
            where=f"space {planner.space.name}",
            remedy="The first setting of each switch is the baseline's; choose first settings that fit together.",
        )
    trials: dict[str, Trial] = {}
    for proposal in design.ask():
        trial = planner.trial(proposal)
        if trial is not None:
            trials.setdefault(trial.key, trial)
    for trial in [*trials.values()]:
        for before in stages_of(trial):
            trials.setdefault(before.key, before)
    trained = {trial.variant.hash for trial in trials.values()}
    later = [planner.trial(proposal) for proposal in design.waiting()]
    aliases = {
        name: planner.variants[digest].name
        for name, digest in planner.names.items()
        if planner.variants[digest].name != name
    }
    return Plan(
        space=planner.space,
        variants=tuple(planner.variants.values()),
        trials=tuple(trials.values()),
        invalid=tuple(planner.invalid.values()),
        aliases=aliases,
        remarks=(*design.remarks(), *planner.budget.remarks(), *_too_few_tokens(planner)),
        scouts=(
            *(variant for digest, variant in planner.scouts.items() if digest in trained),
            *_variants_of(trial for trial in trials.values() if trial.role is TrialRole.STAGE),
        ),
        declared=declared,
        later=tuple({trial.key: trial for trial in later if trial is not None}.values()),
    )


def _too_few_tokens(planner: Planner) -> Iterator[str]:
    """A remark if no trial sees enough of its data to beat a trivial baseline: then the study has no answer."""
    rules: dict[str, tuple[int, str]] = {}
    most: dict[str, int] = {}
    for variant in planner.variants.values():
        task, training = planner.prepare(variant.spec), variant.spec.training
        if training.init_from is not None or not training.steps:
            return  # a trained model knows more than this data has taught it
        if task.fingerprint not in rules:
            if (rule := task.least_tokens()) is None:
                return
            rules[task.fingerprint] = rule
        seen = training.steps * task.tokens_per_batch(training.batch_size)
        if seen >= rules[task.fingerprint][0]:
            return
        most[task.fingerprint] = max(seen, most.get(task.fingerprint, 0))
    for fingerprint, seen in most.items():
        least, why = rules[fingerprint]
        yield (
            f"A trial sees at most {seen:,} tokens. No model is likely to beat a trivial baseline with fewer than "
            f"{least:,} ({why}), and if none does, the study has no answer. Raise `training.steps`."
        )


def _variants_of(trials: Iterable[Trial]) -> list[Variant]:
    return list({trial.variant.hash: trial.variant for trial in trials}.values())


def _refuse_unmatched(planner: Planner) -> None:
    """Refuse a space with a variant that cannot match the baseline's budget."""
    for name, reason in planner.unmatched.items():
        others = f" (and {len(planner.unmatched) - 1} more)" if len(planner.unmatched) > 1 else ""
        raise SpaceError(
            f"it cannot match the {planner.space.match.equal} of the baseline{others}: {reason}",
            where=f"variant {name}, `match`",
            remedy="Or match another quantity: steps, tokens, seconds, flops or parameters.",
        )
