"""`Contract`: the rules that every kind of a family keeps, and the surroundings in which a kind is tried."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from ablate.spec.base import Family, Kinded

KindT = TypeVar("KindT", bound=Kinded)
ContextT = TypeVar("ContextT")

Rule = Callable[[KindT, ContextT], Iterator[str]]
"""Tries a kind in some surroundings; yields a sentence for each thing that it finds wrong."""


@dataclass(frozen=True, slots=True)
class Finding(Generic[ContextT]):
    """A rule that a kind breaks.

    Attributes:
        context: Where it was broken.
        detail: What was found, as a sentence.
    """

    rule: str
    context: ContextT
    detail: str


def _none(*_: object) -> Iterator[str]:
    return iter(())


def _no_fallbacks(*_: object) -> tuple[()]:
    return ()


@dataclass(frozen=True, slots=True)
class Contract(Generic[KindT, ContextT]):
    """The rules of a family.

    Attributes:
        rules: Name to rule; the first line of a rule's docstring is shown when it is broken.
        contexts: The surroundings in which a kind is tried; none if it refuses all of them.
        describe: Surroundings in words.
        given: Values of fields that have no default, by the name of the field.
        smaller: Values of fields whose defaults are too large to be tried, by the name of the field.
        precondition: A rule without which no other can be tried. Where it is broken, the other rules are tried in the
            next of the fallbacks.
        fallbacks: Surroundings to try instead of those in which the precondition is broken, in order.
        warnings: Returns warnings about things that break no rule, one sentence each.
    """

    family: Family
    rules: Mapping[str, Rule[KindT, ContextT]]
    contexts: Callable[[KindT], Sequence[ContextT]]
    describe: Callable[[ContextT], str]
    given: Mapping[str, Any] = field(default_factory=dict)
    smaller: Mapping[str, Any] = field(default_factory=dict)
    precondition: Rule[KindT, ContextT] = _none
    fallbacks: Callable[[KindT, ContextT], Sequence[ContextT]] = _no_fallbacks
    warnings: Callable[[KindT], Iterator[str]] = _none

    def check(self, spec: KindT, contexts: Sequence[ContextT] | None = None) -> list[Finding[ContextT]]:
        """Try a kind by every rule.

        Args:
            contexts: Where to try it; `self.contexts(spec)` unless given.

        Returns:
            What was found wrong; empty for a kind that keeps the contract.
        """
        findings = []
        for context in self.contexts(spec) if contexts is None else contexts:
            if not (broken := self._try_rule(self.precondition, spec, context)):
                findings += self._try_rules(spec, context)
                continue
            findings += broken
            fallbacks = self.fallbacks(spec, context) if contexts is None else ()
            works = (other for other in fallbacks if not self._try_rule(self.precondition, spec, other))
            if (other := next(works, None)) is not None:
                findings += self._try_rules(spec, other)
        return findings

    def _try_rules(self, spec: KindT, context: ContextT) -> list[Finding[ContextT]]:
        others = (rule for rule in self.rules.values() if rule is not self.precondition)
        return [finding for rule in others for finding in self._try_rule(rule, spec, context)]

    @staticmethod
    def _try_rule(rule: Rule[KindT, ContextT], spec: KindT, context: ContextT) -> list[Finding[ContextT]]:
        name = rule.__name__
        try:
            return [Finding(name, context, detail) for detail in rule(spec, context)]
        except Exception as error:  # whatever a user's kind raises is a finding, not an end
            return [Finding(name, context, f"raised {type(error).__name__}: {error}")]


def by_name(*rules: Rule[KindT, ContextT]) -> dict[str, Rule[KindT, ContextT]]:
    """Rules by their names."""
    return {rule.__name__: rule for rule in rules}


def round_trips_through_json(spec: Kinded, context: object) -> Iterator[str]:
    """Written as JSON and read again, the spec is equal and has the same hash; so is its canonical form."""
    for form, plain in (("JSON", spec.model_dump(mode="json")), ("canonical form", spec.canonical())):
        again = spec.family.member(spec.kind_name()).parse(plain)
        if again != spec or again.content_hash() != spec.content_hash():
            yield f"its {form} is read as another spec"
