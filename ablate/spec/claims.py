"""Claims: hypotheses that a space declares before training. `expect` determines the type of a claim.

A word compares two variants (`better`, `not_worse`, `equal`, `worse`), orders several (`ordered`) or follows a
difference along a numeric switch (`grows`, `shrinks`). A number is a value from the table of a paper. Every claim needs
a margin or a tolerance: without one, equality cannot be tested.
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

from ablate.metrics import COSTS, COUNTED, INSIDE, no_metric, split_length
from ablate.spec.annotations import Spelling
from ablate.spec.base import SMALLEST, Spec, below, refusal
from ablate.spec.fairness import BUDGET

Points = Mapping[str, Mapping[str, str]]
"""Settings of each variant that the design trains, by name."""
Refused = Callable[[str], str | None]
"""Returns why the settings of a variant are invalid; None if they are valid."""

_MOST_LISTED = 20


class ClaimSpec(Spec):
    """A hypothesis with the verdict supported, refuted or undecided."""

    id: Annotated[str, Spelling(r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$", "an id is letters, digits, `.`, `_` and `-`")]
    """Name of the claim, unique in the space: letters, digits, `.`, `_` and `-`."""
    says: str = ""
    """The claim as a sentence."""
    source: str = ""
    """Source of the claim: a paper with figure or table."""
    task: str = Field(default="", exclude_if=lambda task: not task)
    """The task that it is about, of a space with `tasks`. Unless set, the claim is about the mean `score` there."""

    @classmethod
    def parse(cls, value: object) -> ClaimSpec:
        """Validate a claim from JSON data; `expect` determines its type.

        Raises:
            ValidationError: The data is not a valid claim.
        """
        if isinstance(value, ClaimSpec):
            return value
        if not isinstance(value, Mapping):
            remedy = "Write `id`, `says`, `expect` and the variants to compare."
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
        """The names of variants in this claim, by their paths."""

    @abstractmethod
    def renamed(self, aliases: Mapping[str, str]) -> Self:
        """The same claim with renamed variants; names without an alias stay."""

    def check_trained(self, points: Points, refused: Refused) -> None:
        """Refuse a claim that the trials of this design cannot decide.

        Args:
            refused: Returns why the settings of a variant are invalid.

        Raises:
            ValidationError: The claim cannot be decided; paths are relative to the claim.
        """
        for path, name in self.names().items():
            if name not in points:
                raise _refusal_of_unknown(path, name, f"the design trains no variant `{name}`", points)
            if reason := refused(name):
                rule = f"the settings of `{name}` are invalid, so it is never trained. The reason is {reason}"
                raise refusal(path, name, rule, "Name another variant, or change the switches.")

    def quantities(self) -> tuple[str, ...]:
        """The metric or cost that it names; none if it is about the objective."""
        return ()

    def check(self, metric: str, metrics: Set[str]) -> None:
        """Refuse a claim that is incomplete.

        Args:
            metric: Name of the objective's metric.

        Raises:
            ValidationError: The claim cannot be decided; paths are relative to the claim.
        """


class _MarginClaim(ClaimSpec):
    """A claim about a metric, with a margin."""

    metric: str | None = None
    """Name of a metric of the task, or of a cost, such as `parameters`, `flops`, `activation_bytes`, `seconds`,
    `tokens_per_second`, `decode_tokens_per_second`. Default: the metric of the objective."""
    direction: Literal["minimize", "maximize"] | None = None
    """Whether smaller or larger values are better. Default: that of the objective; known for costs."""
    margin: float
    """The smallest difference that matters, 1e-30 or more."""

    @model_validator(mode="before")
    @classmethod
    def _declares_a_margin(cls, value: Any) -> Any:
        if isinstance(value, Mapping) and value.get("margin") is None:
            raise _no_margin(("margin",) if "margin" in value else (), {})
        return value

    @field_validator("margin")
    @classmethod
    def _is_above_zero(cls, margin: float) -> float:
        if margin < SMALLEST:
            raise _no_margin((), margin)
        return margin

    def quantities(self) -> tuple[str, ...]:
        return () if self.metric is None else (self.metric,)

    def check(self, metric: str, metrics: Set[str]) -> None:
        super().check(metric, metrics)
        if self.metric is not None and self.metric not in {*metrics, *COSTS}:
            raise _refusal_of_unknown(("metric",), self.metric, no_metric(self.metric), {*metrics, *COSTS})
        same = self.metric is None or split_length(self.metric)[0] == split_length(metric)[0]
        if not same and self.metric not in COSTS and self.direction is None:
            raise refusal(
                ("metric",),
                self.metric,
                f"the direction is known only for the metric `{metric}` of the objective",
                "Add `direction: minimize` or `direction: maximize`.",
            )


class _SidesClaim(_MarginClaim):
    """A claim about two variants."""

    left: str
    """Name of the variant that the claim is about."""
    right: str
    """Name of the variant with which it is compared."""

    def names(self) -> dict[tuple[str | int, ...], str]:
        return {("left",): self.left, ("right",): self.right}

    def renamed(self, aliases: Mapping[str, str]) -> Self:
        left, right = aliases.get(self.left, self.left), aliases.get(self.right, self.right)
        return self.model_copy(update={"left": left, "right": right})

    def check(self, metric: str, metrics: Set[str]) -> None:
        super().check(metric, metrics)
        if self.left == self.right:
            raise refusal(("right",), self.right, "`left` and `right` are the same variant", "Name another variant.")


class ComparisonClaim(_SidesClaim):
    """A comparison of two variants, paired by seed.

    `better`: better by more than the margin ("beats"). `not_worse`: worse by less than the margin, or better by any
    amount ("as good as", "can replace"). `equal`: differs by less than the margin either way ("the same as"), so that
    a variant that is better by more refutes it. `worse`: worse by more than the margin.
    """

    expect: Literal["better", "not_worse", "equal", "worse"]
    """The expected relation of the left to the right variant."""


class OrderClaim(_MarginClaim):
    """An order of several variants, each better than the next by more than the margin."""

    expect: Literal["ordered"]
    """The order is expected to hold."""
    order: tuple[str, ...] = Field(min_length=2)
    """Names of the variants, best first."""

    def names(self) -> dict[tuple[str | int, ...], str]:
        return {("order", i): name for i, name in enumerate(self.order)}

    def renamed(self, aliases: Mapping[str, str]) -> Self:
        return self.model_copy(update={"order": tuple(aliases.get(name, name) for name in self.order)})

    def check(self, metric: str, metrics: Set[str]) -> None:
        super().check(metric, metrics)
        for i, name in enumerate(self.order):
            if name in self.order[:i]:
                raise refusal(("order", i), name, f"`{name}` is in the order twice", "Leave one of them out.")


class TrendClaim(_SidesClaim):
    """A difference that grows or shrinks along a numeric switch, by more than the margin for each doubling.

    The difference is how much better the left variant is than the right one, for each setting of the switch.
    """

    expect: Literal["grows", "shrinks"]
    """How the difference changes as the numbers of the switch increase."""
    along: str
    """A switch whose settings are numbers above 0, the path of a sweep, or `budget` for the `budgets` of the space."""

    def sides(self, points: Points) -> dict[str, tuple[str, str]]:
        """Names of the left and the right variant at each setting (or value) of the axis."""
        left, right = f"{self.left}@{self.along}=", f"{self.right}@{self.along}="
        swept = {
            name.removeprefix(left): (name, right + name.removeprefix(left))
            for name in points
            if name.startswith(left) and right + name.removeprefix(left) in points
        }
        if swept and self.along == BUDGET and self.left in points and self.right in points:
            swept["1"] = (self.left, self.right)  # the study itself
        if swept or self.left not in points or self.right not in points:
            return swept
        by_settings = {frozenset(settings.items()): name for name, settings in points.items()}
        sides = {}
        for setting in {own[self.along]: None for own in points.values() if self.along in own}:
            at = [
                by_settings.get(frozenset({**points[side], self.along: setting}.items()))
                for side in (self.left, self.right)
            ]
            if at[0] is not None and at[1] is not None:
                sides[setting] = (at[0], at[1])
        return sides

    def check_trained(self, points: Points, refused: Refused) -> None:
        """As `ClaimSpec.check_trained`; settings where one side is invalid are left out."""
        if not any(f"@{self.along}=" in name for name in points):
            super().check_trained(points, refused)
            switches = next(iter(points.values()), {})
            if self.along not in switches:
                raise _refusal_of_unknown(("along",), self.along, f"there is no switch `{self.along}`", switches)
        reasons = {name: refused(name) for side in self.sides(points).values() for name in side}
        sides = {at: side for at, side in self.sides(points).items() if not any(reasons[name] for name in side)}
        for setting in sides:
            if position(setting) is None:
                rule = f"`{setting}` is not a position on an axis: settings of `{self.along}` must be numbers above 0"
                raise refusal(("along",), self.along, rule, "Name the settings by their numbers.")
        if len(sides) < 2:
            untrained = next((f". `{name}` is invalid: {why}" for name, why in reasons.items() if why), "")
            raise refusal(
                ("along",),
                self.along,
                f"a trend needs `{self.left}` and `{self.right}` at two settings of `{self.along}`, and the design "
                f"trains both at {len(sides)}{untrained}",
                "Choose a design that trains them at more settings, such as a sweep or a grid.",
            )


class SubjectSpec(Spec):
    """The variant and quantity of a claimed number."""

    variant: str
    """Name of a variant."""
    quantity: str
    """`parameters` (trainable), `flops` (arithmetic of training one trial), `activation_bytes` (bytes that one sequence
    keeps for the backward pass), `seconds` or `tokens_per_second` (of training), another cost, or a metric of the
    task."""
    over: str = ""
    """Name of another variant: the number is the ratio of the quantity to that of this variant, seed by seed where it
    is measured. Unless set, the number is the quantity itself."""


class NumberClaim(ClaimSpec):
    """A value from the table of a paper. For a metric, the mean over seeds must be shown to be within the tolerance."""

    expect: float
    """The number."""
    subject: SubjectSpec
    """The variant and quantity."""
    tolerance: float = Field(default=0.0, ge=0)
    """The largest deviation that counts as equal, in the unit of the quantity; above 0 for a metric."""

    def names(self) -> dict[tuple[str | int, ...], str]:
        named = {("subject", "variant"): self.subject.variant, ("subject", "over"): self.subject.over}
        return {path: name for path, name in named.items() if name}

    def renamed(self, aliases: Mapping[str, str]) -> Self:
        subject = self.subject
        names = {
            "variant": aliases.get(subject.variant, subject.variant),
            "over": aliases.get(subject.over, subject.over),
        }
        return self.model_copy(update={"subject": subject.model_copy(update=names)})

    def quantities(self) -> tuple[str, ...]:
        return (self.subject.quantity,)

    def check(self, metric: str, metrics: Set[str]) -> None:
        super().check(metric, metrics)
        known = {*COSTS, *metrics}
        if self.subject.quantity not in known:
            rule = "this is neither a cost nor a metric of the task"
            if self.subject.quantity.startswith(INSIDE):
                rule = no_metric(self.subject.quantity)
            raise _refusal_of_unknown(("subject", "quantity"), self.subject.quantity, rule, known)
        if self.subject.quantity not in COUNTED and self.tolerance == 0:
            raise refusal(
                ("tolerance",),
                self.tolerance,
                f"`{self.subject.quantity}` is measured, so a number cannot be confirmed exactly",
                f"Write a `tolerance` above 0, or a quantity that is counted ({', '.join(COUNTED)}).",
            )


def position(setting: str) -> float | None:
    """The position of a setting on a numeric axis; None unless its name is a number above 0."""
    try:
        number = float(setting)
    except ValueError:
        return None
    return number if 0 < number < float("inf") else None


def check_claims(
    claims: tuple[ClaimSpec, ...], points: Points, measured: Mapping[str, tuple[str, Set[str]]], refused: Refused
) -> None:
    """Refuse claims that share an id, or that this design cannot decide.

    Args:
        points: The variants that its design trains.
        measured: Task to its objective's metric and the names of all its metrics; that of a space with one is empty.
        refused: Returns why the settings of a variant are invalid.

    Raises:
        ValidationError: A claim is refused; paths start with its index.
    """
    for number, claim in enumerate(claims):
        if claim.id in {other.id for other in claims[:number]}:
            raise refusal((number, "id"), claim.id, f"two claims have the id `{claim.id}`", "Rename one of them.")
        try:
            claim.check_trained(points, refused)
            if claim.task not in measured:
                raise _refusal_of_unknown(
                    ("task",), claim.task, f"the space has no task `{claim.task}`", filter(None, measured)
                )
            claim.check(*measured[claim.task])
        except ValidationError as error:
            raise below((number,), error) from None


def _no_margin(path: tuple[str | int, ...], got: Any) -> ValidationError:
    remedy = "Write the smallest difference that matters, in units of the metric."
    return refusal(path, got, "a claim needs a `margin` above 0", remedy)


def _refusal_of_unknown(path: tuple[str | int, ...], name: str, rule: str, known: Iterable[str]) -> ValidationError:
    names = list(known) if isinstance(known, Mapping) else sorted(known)
    near = difflib.get_close_matches(name, names, n=1)
    listed = f"Known names: {', '.join(names[:_MOST_LISTED])}{', ...' if len(names) > _MOST_LISTED else ''}."
    return refusal(path, name, rule, f"Did you mean `{near[0]}`?" if near else listed)


class _AnyClaim:
    """Annotation for a field that holds any type of claim; `expect` determines which."""

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
    """Claim types by the words of `expect`."""
    sorts: tuple[type[ClaimSpec], ...] = (ComparisonClaim, OrderClaim, TrendClaim)
    return {word: sort for sort in sorts for word in get_args(sort.model_fields["expect"].annotation)}


ClaimField = Annotated[ClaimSpec, _AnyClaim]
