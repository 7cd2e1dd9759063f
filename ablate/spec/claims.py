"""Claims: what a space believes, declared before anything is trained. `expect` says what sort of claim it is.

A word compares two variants (`better`, `not_worse`, `equal`, `worse`), puts several in order (`ordered`) or follows a
gap along a numeric switch (`grows`, `shrinks`); a number is a figure from a paper's table. No claim is settled without
a margin or a tolerance: that is what makes "equal" something that can be shown.
"""

from __future__ import annotations

import difflib
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Set
from typing import Annotated, Any, Literal, Self, get_args

from pydantic import (
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    ValidationError,
    field_validator,
    model_validator,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from ablate.spec.annotations import Spelling
from ablate.spec.base import Spec, below, refusal
from ablate.spec.quantities import COSTS, COUNTED

Points = Mapping[str, Mapping[str, str]]
"""Name of a variant that the design trains to its settings."""
Refused = Callable[[str], str | None]
"""Name of a variant to the reason why its settings make no model; None if they make one."""

_MOST_LISTED = 20


class ClaimSpec(Spec):
    """A hypothesis; its verdict is supported, refuted or undecided."""

    id: Annotated[str, Spelling(r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$", "an id is letters, digits, `.`, `_` and `-`")]
    """Name of the claim, unique in the space: letters, digits, `.`, `_` and `-`."""
    says: str = ""
    """The claim as a sentence."""
    source: str = ""
    """Where it is claimed: a paper with its figure or table."""

    @classmethod
    def parse(cls, value: object) -> ClaimSpec:
        """A claim from plain data, of the sort that its `expect` says.

        Raises:
            ValidationError: The data is no valid claim.
        """
        if isinstance(value, ClaimSpec):
            return value
        if not isinstance(value, Mapping):
            remedy = "Write `id`, `says`, `expect` and what is compared."
            raise PydanticCustomError("not_a_claim", "a claim is a mapping of keys to values", {"remedy": remedy})
        expect = value.get("expect")
        words = _words()
        if isinstance(expect, (int, float)) and not isinstance(expect, bool):
            return NumberClaim.model_validate(value)
        if isinstance(expect, str) and expect in words:
            return words[expect].model_validate(value)
        near = difflib.get_close_matches(str(expect), words, n=1)
        known = f"Write one of {', '.join(words)}, or a number."
        raise refusal(
            ("expect",) if "expect" in value else (),
            {} if expect is None else expect,
            "a claim says what it expects" if expect is None else f"no claim can expect `{expect}`",
            f"Did you mean `{near[0]}`?" if near else known,
        )

    @abstractmethod
    def names(self) -> dict[tuple[str | int, ...], str]:
        """The variants that it is about, by where it names them."""

    @abstractmethod
    def renamed(self, aliases: Mapping[str, str]) -> Self:
        """The same claim with other names for its variants (a name that is not among the aliases stays)."""

    def check_trained(self, points: Points, refused: Refused) -> None:
        """Refuse a claim that the trials of this design cannot settle.

        Args:
            points: What the design trains.
            refused: Why the settings of a point make no model.

        Raises:
            ValidationError: They cannot; paths start at the claim.
        """
        for path, name in self.names().items():
            if name not in points:
                raise _unknown(path, name, f"the design trains no variant `{name}`", points)
            if reason := refused(name):
                rule = f"the settings of `{name}` make no model, so it is never trained. The reason is {reason}"
                raise refusal(path, name, rule, "Name another variant, or change the switches.")

    def check(self, metric: str, metrics: Set[str]) -> None:
        """Refuse a claim that says too little to be settled.

        Args:
            metric: Name of the objective's metric.
            metrics: Names of all metrics of the task.

        Raises:
            ValidationError: It cannot be settled; paths start at the claim.
        """


class _MarginClaim(ClaimSpec):
    """A claim about a metric, with the margin that makes it one that can be settled."""

    metric: str | None = None
    """Name of a metric of the task, or a figure of cost: `parameters`, `flops`, `activation_bytes`, `seconds`,
    `tokens_per_second`; the objective's metric unless given."""
    direction: Literal["minimize", "maximize"] | None = None
    """Which way the metric is better; the objective's unless given. Of a figure of cost it is known."""
    margin: float
    """How large a difference matters, above 0."""

    @model_validator(mode="before")
    @classmethod
    def _declares_a_margin(cls, value: Any) -> Any:
        if isinstance(value, Mapping) and value.get("margin") is None:
            raise _no_margin(("margin",) if "margin" in value else (), {})
        return value

    @field_validator("margin")
    @classmethod
    def _is_above_zero(cls, margin: float) -> float:
        if margin <= 0:
            raise _no_margin((), margin)
        return margin

    def check(self, metric: str, metrics: Set[str]) -> None:
        """See `ClaimSpec.check`."""
        super().check(metric, metrics)
        if self.metric is not None and self.metric not in {*metrics, *COSTS}:
            rule = "the task gives no metric of this name"
            raise _unknown(("metric",), self.metric, rule, {*metrics, *COSTS})
        if self.metric not in {None, metric, *COSTS} and self.direction is None:
            raise refusal(
                ("metric",),
                self.metric,
                f"only of the objective's metric `{metric}` is it known which way is better",
                "Add `direction: minimize` or `direction: maximize`.",
            )


class _SidesClaim(_MarginClaim):
    """A claim about two variants."""

    left: str
    """Name of the variant that the claim is about."""
    right: str
    """Name of the variant that it is compared with."""

    def names(self) -> dict[tuple[str | int, ...], str]:
        """See `ClaimSpec.names`."""
        return {("left",): self.left, ("right",): self.right}

    def renamed(self, aliases: Mapping[str, str]) -> Self:
        """See `ClaimSpec.renamed`."""
        left, right = aliases.get(self.left, self.left), aliases.get(self.right, self.right)
        return self.model_copy(update={"left": left, "right": right})

    def check(self, metric: str, metrics: Set[str]) -> None:
        """See `ClaimSpec.check`."""
        super().check(metric, metrics)
        if self.left == self.right:
            raise refusal(("right",), self.right, "`left` and `right` are the same variant", "Name another variant.")


class ComparisonClaim(_SidesClaim):
    """How two variants compare, paired by seed.

    `better`: by more than the margin. `not_worse`: less than the margin worse. `equal`: less than the margin apart.
    `worse`: by more than the margin.
    """

    expect: Literal["better", "not_worse", "equal", "worse"]
    """How the left variant compares with the right one."""


class OrderClaim(_MarginClaim):
    """Several variants in order, each better than the next by more than the margin."""

    expect: Literal["ordered"]
    """That the order holds."""
    order: tuple[str, ...] = Field(min_length=2)
    """Names of the variants, the best first."""

    def names(self) -> dict[tuple[str | int, ...], str]:
        """See `ClaimSpec.names`."""
        return {("order", i): name for i, name in enumerate(self.order)}

    def renamed(self, aliases: Mapping[str, str]) -> Self:
        """See `ClaimSpec.renamed`."""
        return self.model_copy(update={"order": tuple(aliases.get(name, name) for name in self.order)})

    def check(self, metric: str, metrics: Set[str]) -> None:
        """See `ClaimSpec.check`."""
        super().check(metric, metrics)
        for i, name in enumerate(self.order):
            if name in self.order[:i]:
                raise refusal(("order", i), name, f"`{name}` stands in the order twice", "Leave one of them out.")


class TrendClaim(_SidesClaim):
    """A gap that grows or shrinks along a numeric switch, by more than the margin for each doubling.

    The gap is how much better the left variant is than the right one; both are followed through the switch's settings.
    """

    expect: Literal["grows", "shrinks"]
    """What the gap does as the numbers of the switch go up."""
    along: str
    """A switch whose settings are numbers above 0, or the path of a sweep."""

    def sides(self, points: Points) -> dict[str, tuple[str, str]]:
        """Setting (or value) along the axis to the names of the left and the right variant there."""
        left, right = f"{self.left}@{self.along}=", f"{self.right}@{self.along}="
        swept = {
            name.removeprefix(left): (name, right + name.removeprefix(left))
            for name in points
            if name.startswith(left) and right + name.removeprefix(left) in points
        }
        if swept or self.left not in points or self.right not in points:
            return swept
        by_settings = {frozenset(settings.items()): name for name, settings in points.items()}
        found = {}
        for setting in {own[self.along]: None for own in points.values() if self.along in own}:
            at = [
                by_settings.get(frozenset({**points[side], self.along: setting}.items()))
                for side in (self.left, self.right)
            ]
            if at[0] is not None and at[1] is not None:
                found[setting] = (at[0], at[1])
        return found

    def check_trained(self, points: Points, refused: Refused) -> None:
        """See `ClaimSpec.check_trained`; positions where one side makes no model are left out."""
        if not any(f"@{self.along}=" in name for name in points):
            super().check_trained(points, refused)
            switches = next(iter(points.values()), {})
            if self.along not in switches:
                raise _unknown(("along",), self.along, f"there is no switch `{self.along}`", switches)
        reasons = {name: refused(name) for side in self.sides(points).values() for name in side}
        sides = {at: side for at, side in self.sides(points).items() if not any(reasons[name] for name in side)}
        for setting in sides:
            if position(setting) is None:
                rule = f"`{setting}` is no position on an axis: settings of `{self.along}` must be numbers above 0"
                raise refusal(("along",), self.along, rule, "Name the settings by their numbers.")
        if len(sides) < 2:
            untrained = next((f". `{name}` makes no model: {why}" for name, why in reasons.items() if why), "")
            raise refusal(
                ("along",),
                self.along,
                f"a trend needs `{self.left}` and `{self.right}` at two settings of `{self.along}`, and the design "
                f"trains both at {len(sides)}{untrained}",
                "Choose a design that trains them at more settings, such as a sweep or a grid.",
            )


class SubjectSpec(Spec):
    """What a number is the number of."""

    variant: str
    """Name of a variant."""
    quantity: str
    """`parameters` (trainable), `flops` (arithmetic of training one trial), `activation_bytes` (what one sequence keeps
    for the backward pass), `seconds` or `tokens_per_second` (of training), or a metric of the task."""


class NumberClaim(ClaimSpec):
    """A figure from a paper's table. A metric is the mean over seeds, and must be shown to lie within the tolerance."""

    expect: float
    """The number."""
    subject: SubjectSpec
    """What it is the number of."""
    tolerance: float = Field(default=0.0, ge=0)
    """How far off still counts as the same, in the unit of the quantity; above 0 for a metric."""

    def names(self) -> dict[tuple[str | int, ...], str]:
        """See `ClaimSpec.names`."""
        return {("subject", "variant"): self.subject.variant}

    def renamed(self, aliases: Mapping[str, str]) -> Self:
        """See `ClaimSpec.renamed`."""
        name = aliases.get(self.subject.variant, self.subject.variant)
        return self.model_copy(update={"subject": self.subject.model_copy(update={"variant": name})})

    def check(self, metric: str, metrics: Set[str]) -> None:
        """See `ClaimSpec.check`."""
        super().check(metric, metrics)
        known = {*COSTS, *metrics}
        if self.subject.quantity not in known:
            rule = "this is no figure of cost, and no metric of the task"
            raise _unknown(("subject", "quantity"), self.subject.quantity, rule, known)
        if self.subject.quantity not in COUNTED and self.tolerance == 0:
            raise refusal(
                ("tolerance",),
                self.tolerance,
                f"`{self.subject.quantity}` is measured, and no measurement can show a number exactly",
                f"Write a `tolerance` above 0, or a quantity that is counted ({', '.join(COUNTED)}).",
            )


def position(setting: str) -> float | None:
    """Where a setting stands on a numeric axis; None unless its name is a number above 0."""
    try:
        number = float(setting)
    except ValueError:
        return None
    return number if 0 < number < float("inf") else None


def check_claims(
    claims: tuple[ClaimSpec, ...], points: Points, metric: str, metrics: Set[str], refused: Refused
) -> None:
    """Refuse claims that share an id, or that this design cannot settle.

    Args:
        claims: The claims of a space.
        points: What its design trains.
        metric: Name of its objective's metric.
        metrics: Names of all metrics of its task.
        refused: Why the settings of a point make no model.

    Raises:
        ValidationError: One cannot be; paths start at its number.
    """
    for number, claim in enumerate(claims):
        if claim.id in {other.id for other in claims[:number]}:
            raise refusal((number, "id"), claim.id, f"two claims are called `{claim.id}`", "Rename one of them.")
        try:
            claim.check_trained(points, refused)
            claim.check(metric, metrics)
        except ValidationError as error:
            raise below((number,), error) from None


def _no_margin(path: tuple[str | int, ...], got: Any) -> ValidationError:
    remedy = "Write how large a difference matters, in units of the metric."
    return refusal(path, got, "a claim needs a `margin` above 0", remedy)


def _unknown(path: tuple[str | int, ...], name: str, rule: str, known: Iterable[str]) -> ValidationError:
    names = list(known) if isinstance(known, Mapping) else sorted(known)
    near = difflib.get_close_matches(name, names, n=1)
    there = f"There are: {', '.join(names[:_MOST_LISTED])}{', ...' if len(names) > _MOST_LISTED else ''}."
    return refusal(path, name, rule, f"Did you mean `{near[0]}`?" if near else there)


class _AnyClaim:
    """Annotation for a field that holds any sort of claim; `expect` says which."""

    @classmethod
    def __get_pydantic_core_schema__(cls, source: type[ClaimSpec], handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(
            source.parse,
            serialization=core_schema.plain_serializer_function_ser_schema(
                lambda value, info: value.model_dump(mode=info.mode, exclude_defaults=info.exclude_defaults),
                info_arg=True,
            ),
        )

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        sorts: list[type[ClaimSpec]] = [*dict.fromkeys(_words().values()), NumberClaim]
        return {"anyOf": [handler(core_schema.definitions_schema(s.__pydantic_core_schema__, [])) for s in sorts]}


def _words() -> dict[str, type[ClaimSpec]]:
    """Word of `expect` to the sort of claim that it belongs to."""
    sorts: tuple[type[ClaimSpec], ...] = (ComparisonClaim, OrderClaim, TrendClaim)
    return {word: sort for sort in sorts for word in get_args(sort.model_fields["expect"].annotation)}


ClaimField = Annotated[ClaimSpec, _AnyClaim]
