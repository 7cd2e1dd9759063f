"""Tries kinds by the contracts of their families: one, or all of them.

A kind is tried at its defaults and with every one and two of its named choices changed, which are read off its schema.
"""

from __future__ import annotations

import difflib
import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin

from pydantic import ValidationError

from ablate.contracts import data, design, mixer, outputs, parts, task, training
from ablate.contracts.contract import Contract, Finding
from ablate.errors import AblateError, PluginError
from ablate.spec.base import Kinded, Spec
from ablate.spec.sentences import describe


@dataclass(frozen=True, slots=True)
class CheckedSpec:
    """One setting of a kind, what was found wrong with it, and its warnings, which break no rule."""

    spec: Kinded
    findings: list[Finding[Any]]
    warnings: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CheckedKind:
    """A kind, tried by the contract of its family.

    Attributes:
        contract: What was tried.
        specs: Its settings, with what was found.
    """

    kind: str
    family: str
    contract: Contract[Any, Any]
    specs: list[CheckedSpec]

    @property
    def keeps_the_contract(self) -> bool:
        """Whether nothing was found."""
        return not any(spec.findings for spec in self.specs)


@dataclass(frozen=True, slots=True)
class UntriedKind:
    """A kind that cannot be tried without values that only a user has, such as the name of a file.

    Attributes:
        missing: Fields without a value.
    """

    kind: str
    family: str
    missing: tuple[str, ...]


def check_kind(kind: str, family: str | None = None, values: Mapping[str, Any] | None = None) -> CheckedKind:
    """Try a kind by every rule of its family's contract, at its defaults and at pairs of its named choices.

    Args:
        family: Name of its family, which is needed where two families have a kind of this name.
        values: Fields that are to have these values, not their defaults.

    Raises:
        AblateError: There is no such kind or family, a field has no value, or the kind refuses all surroundings.
    """
    family = _family_of(kind, family)
    contract = CONTRACTS[family]
    member = contract.family.members()[kind]
    given = {**contract.given, **member.example}
    required = {name: value for name, value in given.items() if _is_required(member, name)}
    smaller = {name: value for name, value in contract.smaller.items() if name in member.model_fields}
    try:
        specs = list(settings(member, {**required, **smaller, **(values or {})}))
    except ValidationError as error:
        raise _refusal(kind, error) from None
    if not any(contract.contexts(spec) for spec in specs):
        raise PluginError(
            "this kind refuses everything that the contract tries", where=kind, remedy="Refuse less, so that it fits."
        )
    return CheckedKind(
        kind,
        family,
        contract,
        [CheckedSpec(spec, contract.check(spec), tuple(contract.warnings(spec))) for spec in specs],
    )


def check_all(
    family: str | None = None, values: Mapping[str, Any] | None = None
) -> Iterator[CheckedKind | UntriedKind]:
    """Check every kind of every family, or of one, as `check_kind` does, one after the other.

    Args:
        family: Name of a family; all unless given.
        values: Fields that are to have these values, not their defaults.

    Raises:
        AblateError: There is no such family.
    """
    for name in [_known_kinds(family)] if family is not None else CONTRACTS:
        for kind, member in CONTRACTS[name].family.members().items():
            known = {*CONTRACTS[name].given, *member.example, *(values or ())}
            missing = [field for field in member.model_fields if _is_required(member, field) and field not in known]
            yield UntriedKind(kind, name, tuple(missing)) if missing else check_kind(kind, name, values)


def _known_kinds(family: str) -> str:
    if family not in CONTRACTS:
        raise AblateError(
            "there is no such family", where="--family", expected=f"one of {', '.join(CONTRACTS)}", got=repr(family)
        )
    return family


def _is_required(member: type[Kinded], name: str) -> bool:
    return name in member.model_fields and member.model_fields[name].is_required()


def _family_of(kind: str, family: str | None) -> str:
    searched = [_known_kinds(family)] if family is not None else list(CONTRACTS)
    having = [name for name in searched if kind in CONTRACTS[name].family.members()]
    if len(having) > 1:
        raise AblateError(
            f"there is a kind of this name in {' and in '.join(having)}",
            where=kind,
            remedy=f"Say which is meant: `--family {having[0]}`.",
        )
    if not having:
        kinds = [known for name in searched for known in CONTRACTS[name].family.members()]
        near = difflib.get_close_matches(kind, kinds, n=1)
        hint = f"Did you mean `{near[0]}`?" if near else "`--plugin FILE` names the file that defines it."
        raise PluginError("there is no kind of this name", where=kind, remedy=hint)
    return having[0]


def _refusal(kind: str, error: ValidationError) -> PluginError:
    problem = error.errors()[0]
    if problem["type"] == "missing":
        name = problem["loc"][0]
        return PluginError(
            f"the contract starts from the defaults of a kind, and `{name}` has none",
            where=kind,
            remedy=f"Give every field a default, or a value here: `--set {name}=VALUE`.",
        )
    path, said = next(iter(describe(error)))
    return PluginError(said, where=".".join(map(str, (kind, *path))))


CONTRACTS: dict[str, Contract[Any, Any]] = {
    "mixers": mixer.CONTRACT,
    "mlps": parts.MLP,
    "norms": parts.NORM,
    "positions": parts.POSITION,
    "residuals": parts.RESIDUAL,
    "initialisers": parts.INITIALISER,
    "optimizers": training.OPTIMIZER,
    "schedules": training.SCHEDULE,
    "tasks": task.CONTRACT,
    "tokenizers": data.TOKENIZER,
    "sources": data.SOURCE,
    "designs": design.CONTRACT,
    "formats": outputs.FORMAT,
    "trackers": outputs.TRACKER,
}
"""By the name of the family, as in `ablate.plugins.FAMILIES`."""


_FEW = 16
"""The most alternatives of a choice that is changed together with another one."""

Member = TypeVar("Member", bound=Kinded)


def settings(kind: type[Member], given: Mapping[str, Any] | None = None) -> Iterator[Member]:
    """The specs of a kind that differ from its defaults in at most two named choices; impossible ones are left out.

    Choices of many, such as the activations of torch, are changed one at a time.

    A named choice is a field that holds a literal, a truth value, a member of a family, or a spec with a `kind`.

    Args:
        given: Values of fields, which are then not choices; those that have no default must be among them.

    Raises:
        ValidationError: The kind has a field without a default.
    """
    given = given or {}
    first = kind.model_validate(given)
    seen = {first.content_hash()}
    yield first
    free = [name for name in kind.model_fields if name not in ("kind", *given)]
    choices = {name: _choices(kind, name) for name in free}
    few = [(name, value) for name, values in choices.items() if len(values) <= _FEW for value in values]
    many = [(name, value) for name, values in choices.items() if len(values) > _FEW for value in values]
    for pair in [*itertools.combinations_with_replacement(few, 2), *((choice, choice) for choice in many)]:
        try:
            spec = kind.model_validate({**given, **dict(pair)})
        except ValidationError:
            continue
        if spec.content_hash() not in seen:
            seen.add(spec.content_hash())
            yield spec


def _choices(kind: type[Kinded], name: str) -> list[Any]:
    field = kind.model_fields[name]
    return _values(field.annotation)


def _values(annotation: Any) -> list[Any]:
    origin = get_origin(annotation)
    if origin is Literal:
        return list(get_args(annotation))
    if origin in (Union, UnionType):
        return [value for part in get_args(annotation) if part is not NoneType for value in _values(part)]
    if annotation is bool:
        return [False, True]
    if isinstance(annotation, type) and issubclass(annotation, Kinded):
        return [{"kind": member} for member in annotation.family.members()]
    if isinstance(annotation, type) and issubclass(annotation, Spec) and "kind" in annotation.model_fields:
        return [{"kind": value} for value in _values(annotation.model_fields["kind"].annotation)]
    return []
