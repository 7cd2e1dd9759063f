"""Every discovered mixer kind passes the contract, at many of its settings; and the contract finds violations."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import cache
from itertools import combinations
from typing import Literal

import pytest
import torch
from pydantic import Field, ValidationError
from torch import Tensor, nn

from ablate.contracts.checking import settings
from ablate.contracts.mixer import CONTRACT, contexts, own_initial_values
from ablate.kinds.mixers.attention import AttentionSpec
from ablate.kinds.mixers.feature_maps import LinearSpec
from ablate.kinds.mixers.token_mixing import FNetSpec
from ablate.kinds.positions.logit_biases import AlibiSpec, T5BucketsSpec
from ablate.kinds.positions.rotary import RotarySpec
from ablate.nn.model import build_model
from ablate.nn.pack import HeadGain, Linear, Packed, normal
from ablate.spec.base import Family, refusal
from ablate.spec.cost import Cost, linear_cost
from ablate.spec.layer import LayerContext
from ablate.spec.model import ModelSpec
from ablate.spec.sublayers import MIXERS, MixerSpec

SILENCING = {"query_init", "shaping"}
"""Fields whose choices leave a part of a mixer without effect on the initial output. They join no other pair of
changes, where they could hide what is wrong with it."""


@cache
def changed(spec: MixerSpec) -> dict[str, object]:
    """The fields in which a spec differs from the defaults of its kind."""
    default = type(spec)()
    names = type(spec).model_fields
    return {name: getattr(spec, name) for name in names if getattr(spec, name) != getattr(default, name)}


surroundings = cache(contexts)
"""Where a spec is tried; it is asked for again for each spec that could be joined with it."""


def together(first: MixerSpec, second: MixerSpec) -> MixerSpec | None:
    """One spec with the changes of both, if they agree and it can be tried wherever either of them can be tried."""
    both = changed(first) | changed(second)
    if both != changed(second) | changed(first) or SILENCING & both.keys():
        return None
    try:
        spec = type(first).model_validate(both)
    except ValidationError:
        return None
    wanted = {*surroundings(first), *surroundings(second)}
    return spec if changed(spec) == both and wanted <= set(surroundings(spec)) else None


def covering(specs: Iterable[MixerSpec]) -> Iterator[MixerSpec]:
    """Specs of one kind with fewer of them: those of two changes are joined, so that one spec holds many pairs."""
    pairs: list[MixerSpec] = []
    for spec in specs:
        if len(changed(spec)) < 2:
            yield spec
            continue
        for number, joined in enumerate(pairs):
            if (wider := together(joined, spec)) is not None:
                pairs[number] = wider
                break
        else:
            pairs.append(spec)
    yield from pairs


def needed(spec: MixerSpec, context: LayerContext) -> set[tuple[object, object]]:
    """What a trial shows: each change at this place and in this form, and each two of them together."""
    changes = [(name, str(value)) for name, value in changed(spec).items()]
    there = {(change, where) for change in changes for where in (context.causal, place(context))}
    return there | set(combinations(changes, 2))


def place(context: LayerContext) -> LayerContext:
    """A surrounding without its form: its size, its positions, its layer and its inputs."""
    return replace(context, causal=True)


def trials(kind: type[MixerSpec]) -> Iterator[tuple[MixerSpec, list[LayerContext]]]:
    """The defaults wherever they fit; then what shows a change, or two of them, where none before it does.

    A change meets each place, each form and each other change, but not all three at once.
    """
    default, *others = covering(settings(kind))
    yield default, surroundings(default)
    shown: set[tuple[object, object]] = set()
    for spec in sorted(others, key=lambda spec: -len(changed(spec))):
        where = []
        for context in surroundings(spec):
            if not needed(spec, context) <= shown:
                shown |= needed(spec, context)
                where.append(context)
        if where:
            yield spec, where


@pytest.mark.parametrize("kind", MIXERS.members())
def test_mixer_keeps_the_contract(kind: str) -> None:
    of = MIXERS.members()[kind]
    assert issubclass(of, MixerSpec)
    assert all(map(surroundings, covering(settings(of)))), "it refuses every size that the contract tries"
    found = {spec.canonical_json(): CONTRACT.check(spec, where) for spec, where in trials(of)}
    assert {text: findings for text, findings in found.items() if findings} == {}


@pytest.mark.parametrize("kind", [kind for kind, of in MIXERS.members().items() if of.causal_form])
def test_an_untrained_mixer_remembers_its_first_token(kind: str) -> None:
    """A state that fades within a token gets no gradient from the past, and short training does not mend it."""
    model = {"family": "decoder", "depth": 1, "width": 32, "heads": 2, "positions": "none"}
    block = {"mixer": {"kind": kind, **MIXERS.members()[kind].example}, "mlp": "plain", "norm": "rms"}
    spec = ModelSpec.model_validate({**model, "block": block})
    built = build_model(spec, vocabulary=16, context=33, seeds=[0, 1, 2, 3]).double()
    for parameter in built.parameters():  # RWKV-7 starts its output as 0
        parameter.data += 0.01 * (~parameter.data.any()) * torch.ones_like(parameter).cumsum(-1).sin()
    tokens = torch.randint(16, (1, 1, 33), generator=torch.Generator().manual_seed(0)).expand(4, 8, -1).clone()
    tokens[:, :, 0] = torch.arange(8)
    last = built(tokens)[:, :, -1]
    told = (last - last.mean(1, keepdim=True)).square().mean((1, 2)).sqrt() / last.square().mean((1, 2)).sqrt()
    assert (told.min() > 1e-6) == (kind != "channel_mixing")  # which mixes no positions


LISTED = {"Extractor.weight", "CausalLinear.weight"}
"""Maps whose entries are in a list."""
NO_MAPS = {
    *("FourierMixture.mean", "PositiveMixture.mean", "PositiveMixture.sigma"),
    *("Mamba3.query_bias", "Mamba3.key_bias", "DenseLogits.bias"),
}
"""Vectors of each head."""


@pytest.mark.parametrize("kind", MIXERS.members())
def test_maps_decay_and_gains_and_biases_do_not(kind: str) -> None:
    of = MIXERS.members()[kind]
    for spec in covering(settings(of)):
        assert isinstance(spec, MixerSpec)
        for module in spec.build(surroundings(spec)[0]).modules():
            for name, parameter in module.named_parameters(recurse=False) if isinstance(module, Packed) else ():
                named = f"{type(module).__name__}.{name}"
                is_map = named in LISTED or (parameter.dim() > 2 and named not in NO_MAPS)
                assert (name in module.decayed) == is_map, named


def test_each_change_is_tried_at_every_place_in_each_form_and_with_each_other_change() -> None:
    tried = [(changed(spec).items(), where) for spec, where in trials(AttentionSpec)]
    for pair in settings(AttentionSpec):
        changes = changed(pair).items()
        where = {context for have, contexts in tried if changes <= have for context in contexts}
        assert where >= set(() if changes else surroundings(pair))
        assert where, pair
        if len(changes) < 2:
            assert {*map(place, where)} >= {*map(place, surroundings(pair))}, pair
            assert {context.causal for context in where} >= {context.causal for context in surroundings(pair)}, pair


@pytest.mark.parametrize(
    "spec",
    [AttentionSpec(kv_heads=1), AttentionSpec(kv_heads=1, query_key_norm="rms", softmax=False)],
    ids=lambda spec: spec.canonical_json(),
)
def test_grouped_attention_keeps_the_contract(spec: AttentionSpec) -> None:
    """The number of groups is not a named choice, since what fits depends on the heads."""
    assert CONTRACT.check(spec) == []


def test_the_contract_tries_positions_that_a_mixer_applies_in_both_of_its_forms() -> None:
    rotary, alibi, t5 = RotarySpec(), AlibiSpec(), T5BucketsSpec()
    found = {(context.positions, context.causal) for context in contexts(AttentionSpec())}
    assert found == {(positions, causal) for positions in (None, rotary, alibi, t5) for causal in (True, False)}
    assert {context.positions for context in contexts(AttentionSpec(softmax=False))} == {None, rotary}
    assert {context.positions for context in contexts(LinearSpec())} == {None, rotary}
    assert {context.positions for context in contexts(FNetSpec())} == {None}


class Mean(nn.Module):
    """A simple correct mixer: the mean of the visible tokens, mapped."""

    def __init__(self, context: LayerContext) -> None:
        super().__init__()
        self.map = Linear(context.pack, context.width, context.width, initial=normal(0.3))
        self.causal = context.causal

    def visible(self, x: Tensor, padding: Tensor | None) -> Tensor:
        real = torch.ones(x.shape[:-1], dtype=torch.bool) if padding is None else padding
        square = real[..., None, :].expand(*real.shape, real.shape[-1]).to(x.dtype)
        return square.tril() if self.causal else square

    def forward(self, x: Tensor, padding: Tensor | None = None) -> Tensor:
        a = self.visible(x, padding)
        return self.map((a / a.sum(-1, keepdim=True).clamp(min=1)) @ x)


class Wide(Mean):
    def forward(self, x: Tensor, padding: Tensor | None = None) -> Tensor:
        return super().forward(x, padding)[:, :, :, :-1]


class Leaky(Mean):
    def forward(self, x: Tensor, padding: Tensor | None = None) -> Tensor:
        return super().forward(x, padding) + 0.01 * x.roll(-1, dims=2)


class Shut(Mean):
    def forward(self, x: Tensor, padding: Tensor | None = None) -> Tensor:
        return self.map(x)


class Idle(Mean):
    def __init__(self, context: LayerContext) -> None:
        super().__init__(context)
        self.unused = HeadGain(context.pack, context.heads, 1.0, trainable=True)


class Rooted(Mean):
    def forward(self, x: Tensor, padding: Tensor | None = None) -> Tensor:
        y = super().forward(x, padding)
        return y + 0 * (self.map.weight - self.map.weight.detach()).abs().sqrt().sum()


class Mingled(Mean):
    def forward(self, x: Tensor, padding: Tensor | None = None) -> Tensor:
        y = super().forward(x, padding)
        return y + 0.1 * y.mean(0, keepdim=True)


class Coarse(Mean):
    def forward(self, x: Tensor, padding: Tensor | None = None) -> Tensor:
        y = super().forward(x, padding)
        return 2 * y if torch.is_autocast_enabled("cpu") else y


class Forgetful(Mean):
    def step(self, x: Tensor, place: int, state: tuple[Tensor, ...]) -> tuple[Tensor, tuple[Tensor, ...]]:
        return self.map(x), state


class Blind(Mean):
    def forward(self, x: Tensor, padding: Tensor | None = None) -> Tensor:
        return super().forward(x, None)


class Angry(Mean):
    def forward(self, x: Tensor, padding: Tensor | None = None) -> Tensor:
        raise RuntimeError("no")


class MeanSpec(MixerSpec):
    """A mixer for these tests, kept out of the family of real ones."""

    family = Family("mixer of the tests")
    source = "none"
    complexity = "L²d"
    kind: Literal["mean"] = "mean"
    module: str = "Mean"
    extra: int = 0

    def build(self, context: LayerContext) -> nn.Module:
        return MODULES[self.module](context)

    def cost(self, context: LayerContext, length: int) -> Cost:
        return linear_cost(length, context.width, context.width) + Cost(parameters=self.extra)


class Curious(Mean):
    """Reads a value of a tensor while it is built."""

    def __init__(self, context: LayerContext) -> None:
        super().__init__(context)
        self.first = int(torch.ones(3).nonzero()[0, 0])


class Elsewhere(Mean):
    """Has a buffer only where tensors have values."""

    def __init__(self, context: LayerContext) -> None:
        super().__init__(context)
        if not torch.empty(1).is_meta:
            self.register_buffer("table", torch.ones(3))


class Short(Mean):
    """Has a weight for each token of the context, and does not say so."""

    def __init__(self, context: LayerContext) -> None:
        super().__init__(context)
        self.register_buffer("ones", torch.ones(context.context, 1))

    def forward(self, x: Tensor, padding: Tensor | None = None) -> Tensor:
        return super().forward(x, padding) * self.ones[: x.shape[2]]


MODULES = {module.__name__: module for module in (Mean, *Mean.__subclasses__())}


def broken_rules(spec: MeanSpec) -> set[str]:
    return {finding.rule for finding in CONTRACT.check(spec)}


def test_contract_passes_a_correct_mixer() -> None:
    assert CONTRACT.check(MeanSpec()) == []


@pytest.mark.parametrize(
    ("module", "rule"),
    [
        ("Wide", "keeps_shape"),
        ("Leaky", "is_causal"),
        ("Shut", "is_causal"),
        ("Coarse", "works_in_bfloat16"),
        ("Idle", "has_gradients"),
        ("Idle", "counts_parameters"),
        ("Rooted", "has_gradients"),
        ("Mingled", "isolates_pack_members"),
        ("Forgetful", "decodes_incrementally"),
        ("Blind", "ignores_padding"),
        ("Curious", "builds_without_values"),
        ("Elsewhere", "builds_without_values"),
        ("Short", "reads_longer_inputs"),
    ],
)
def test_contract_finds_violations(module: str, rule: str) -> None:
    assert rule in broken_rules(MeanSpec(module=module))


def test_contract_finds_a_wrong_count() -> None:
    assert broken_rules(MeanSpec(extra=1)) == {"counts_parameters"}


class Crossing(Mean):
    """A correct mixer that reads another sequence: each row its own token, and the mean of what it reads."""

    least = 1

    def forward(
        self, x: Tensor, padding: Tensor | None = None, memory: Tensor | None = None, real: Tensor | None = None
    ) -> Tensor:
        if memory is None:
            return super().forward(x, padding)
        return self.map(x + self.read(memory, real))

    def read(self, memory: Tensor, real: Tensor | None) -> Tensor:
        seen = torch.ones(memory.shape[:-1], dtype=torch.bool) if real is None else real
        return (memory * seen[..., None]).sum(2, keepdim=True) / seen.sum(2).clamp(min=self.least)[..., None, None]


class CrossingNothing(Crossing):
    """Divides by the number of real tokens also where there are none."""

    least = 0


class CrossingBlind(Crossing):
    def read(self, memory: Tensor, real: Tensor | None) -> Tensor:
        return super().read(memory, None)


class CrossingShut(Crossing):
    def read(self, memory: Tensor, real: Tensor | None) -> Tensor:
        return memory[:, :, :1]


class CrossingMingled(Crossing):
    def forward(
        self, x: Tensor, padding: Tensor | None = None, memory: Tensor | None = None, real: Tensor | None = None
    ) -> Tensor:
        y = super().forward(x, padding, memory, real)
        return y if memory is None else y + y.mean(2, keepdim=True)


class CrossingSpec(MeanSpec):
    """The same for mixers that read another sequence."""

    family = Family("mixer of the tests")
    cross_form = True
    kind: Literal["crossing"] = "crossing"  # type: ignore[assignment]
    module: str = "Crossing"

    def build(self, context: LayerContext) -> nn.Module:
        return CROSSINGS[self.module](context)


CROSSINGS = {
    module.__name__: module for module in (Crossing, CrossingNothing, CrossingBlind, CrossingShut, CrossingMingled)
}


@pytest.mark.parametrize("module", CROSSINGS)
def test_contract_finds_violations_in_reading_another_sequence(module: str) -> None:
    broken = set() if module == "Crossing" else {"reads_another_sequence"}
    assert broken_rules(CrossingSpec(module=module)) == broken


def test_contract_reports_what_a_module_raises_once_for_each_surrounding() -> None:
    findings = CONTRACT.check(MeanSpec(module="Angry"))
    assert {finding.rule for finding in findings} == {"refuses_unsupported_contexts"}
    assert len(findings) == len(contexts(MeanSpec()))
    assert "RuntimeError: no" in findings[0].detail


class Halves(Mean):
    """Works where each head has an even width: it swaps the halves of a head, as rotary positions do."""

    def __init__(self, context: LayerContext) -> None:
        super().__init__(context)
        self.heads = context.heads

    def forward(self, x: Tensor, padding: Tensor | None = None) -> Tensor:
        left, right = super().forward(x, padding).unflatten(-1, (self.heads, 2, -1)).unbind(-2)
        return torch.stack([right, left], -2).flatten(-3)


class HalvesSpec(MeanSpec):
    """It needs an even head width; `says` is whether `check` says so."""

    family = Family("mixer of the tests")
    kind: Literal["halves"] = "halves"  # type: ignore[assignment]
    says: bool = True

    def check(self, context: LayerContext) -> None:
        if self.says and context.width % (2 * context.heads):
            raise refusal(("kind",), "halves", "a head is of an even width", "Set another width.")

    def build(self, context: LayerContext) -> nn.Module:
        return Halves(context)


def test_contract_tries_sizes_that_a_mixer_accepts() -> None:
    found = contexts(HalvesSpec())
    assert len(found) == len(contexts(MeanSpec()))
    assert all(context.width % (2 * context.heads) == 0 for context in found)
    assert CONTRACT.check(HalvesSpec()) == []


def test_contract_reports_once_that_a_size_should_be_refused() -> None:
    findings = CONTRACT.check(HalvesSpec(says=False))
    assert {(finding.rule, finding.context.width) for finding in findings} == {
        ("refuses_unsupported_contexts", 21),
        ("refuses_unsupported_contexts", 7),
    }
    assert len(findings) == 2 * 2, "once for each form"
    assert "width 21 with 3 heads" in findings[0].detail
    assert "refuse it in `check`" in findings[0].detail


class Placed(Mean):
    """Adds the distance of each token if the layer has positions and `applies` is set."""

    def __init__(self, context: LayerContext, applies: bool) -> None:
        super().__init__(context)
        self.slope = 0.3 * (applies and context.positions is not None)

    def visible(self, x: Tensor, padding: Tensor | None) -> Tensor:
        position = torch.arange(x.shape[-2])
        return super().visible(x, padding) * torch.exp(-self.slope * (position[:, None] - position).abs())


class PlacedSpec(MeanSpec):
    """It declares positions; `applies` is whether it applies them."""

    family = Family("mixer of the tests")
    relative_positions = frozenset({"logits"})
    kind: Literal["placed"] = "placed"  # type: ignore[assignment]
    applies: bool = True

    def build(self, context: LayerContext) -> nn.Module:
        return Placed(context, self.applies)


def test_contract_finds_positions_that_are_declared_and_not_applied() -> None:
    assert CONTRACT.check(PlacedSpec()) == []
    findings = CONTRACT.check(PlacedSpec(applies=False))
    assert {finding.rule for finding in findings} == {"applies_positions"}
    assert findings[0].detail == "the output with `positions: alibi` is that of `positions: none`"


class MappedSpec(MeanSpec):
    """A map of torch's, whose initial values are those of `start`."""

    family = Family("mixer of the tests")
    pack_aware = False
    kind: Literal["mapped"] = "mapped"  # type: ignore[assignment]
    start: Literal["default", "normal", "orthogonal"] = "default"

    def build(self, context: LayerContext) -> nn.Module:
        layer = nn.Linear(context.width, context.width)
        if self.start == "normal":
            nn.init.normal_(layer.weight, std=context.init_std)
        if self.start == "orthogonal":
            nn.init.orthogonal_(layer.weight)
        return nn.Sequential(OrderedDict(inner=layer))


def test_layers_that_keep_torchs_initial_values_are_warned_of() -> None:
    (warning,) = own_initial_values(MappedSpec())
    assert warning.startswith("the layers `inner` start from torch's default values")
    assert "context.init_std" in warning
    assert not list(own_initial_values(MappedSpec(start="normal")))
    assert not list(own_initial_values(MappedSpec(start="orthogonal")))
    assert not list(own_initial_values(MeanSpec()))


def test_no_kind_of_ours_keeps_torchs_initial_values() -> None:
    kinds = [kind for kind in MIXERS.members().values() if kind.__module__.startswith("ablate.")]
    assert len(kinds) > 10
    assert [kind.kind_name() for kind in kinds if list(own_initial_values(kind()))] == []  # type: ignore[arg-type]


def test_contract_accepts_a_mixer_without_pack_axis() -> None:
    class Plain(nn.Module):
        def __init__(self, context: LayerContext) -> None:
            super().__init__()
            self.inner = nn.GRU(context.width, context.width, batch_first=True)

        def forward(self, x: Tensor, padding: Tensor | None = None) -> Tensor:
            y: Tensor = self.inner(x if padding is None else x * padding[..., None])[0]
            return y

    class PlainSpec(MeanSpec):
        family = Family("mixer of the tests")
        pack_aware = False
        bidirectional_form = False
        kind: Literal["plain"] = "plain"  # type: ignore[assignment]

        def build(self, context: LayerContext) -> nn.Module:
            return Plain(context)

        def cost(self, context: LayerContext, length: int) -> Cost:
            return Cost(parameters=6 * context.width * (context.width + 1))

    assert CONTRACT.check(PlainSpec()) == []


def test_contract_tries_a_mixer_whose_spec_has_no_hash() -> None:
    class ListedSpec(MeanSpec):
        family = Family("mixer of the tests")
        kind: Literal["listed"] = "listed"  # type: ignore[assignment]
        sizes: list[int] = Field(default_factory=lambda: [1, 2])

    with pytest.raises(TypeError, match="unhashable"):
        hash(ListedSpec())
    assert CONTRACT.check(ListedSpec()) == []
