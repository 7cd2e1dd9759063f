"""The contract of a mixer: a list of rules, each a function that tries the mixer and says what it found wrong.

Shapes: K pack, B batch, T tokens, D width.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, cast

import torch
from torch import Tensor, nn

from ablate.analysis.numbers import plural
from ablate.contracts.contract import Contract, by_name, round_trips_through_json
from ablate.contracts.modules import TOLERANCE, VOCABULARY, ModuleRules, gap, given_shared, is_taken, noise
from ablate.nn.model.block import build_part
from ablate.nn.pack import State, Stepping, step
from ablate.spec.layer import POSITIONS, LayerContext, PositionSpec
from ablate.spec.sublayers import MIXERS, MixerSpec

_SAME_SPREAD = 0.1
"""Share by which the standard deviations of two draws of a matrix may differ and count as those of one distribution."""

# Width, heads and tokens, odd and prime first. What a mixer refuses in `check` is tried at the next size of the row,
# whose heads are of an even width and then of a power of two.
_ROWS: tuple[tuple[tuple[int, int, int], ...], ...] = (
    ((21, 3, 13), (18, 3, 13), (24, 3, 13), (32, 2, 13), (64, 4, 13), (64, 4, 16)),
    ((8, 2, 1), (16, 2, 1), (32, 2, 1), (64, 4, 1)),
    ((7, 7, 37), (14, 7, 37), (28, 7, 37), (32, 4, 37), (64, 4, 37), (64, 4, 64)),
)
_WITH_POSITIONS: tuple[tuple[int, int, int], ...] = ((18, 3, 13), (24, 3, 13), (32, 2, 13), (64, 4, 13), (64, 4, 16))


def contexts(spec: MixerSpec) -> list[LayerContext]:
    """Awkward surroundings (odd and prime sizes, one token) in every form that the mixer has and does not refuse."""
    return [row[0] for row in _rows(spec)]


def _rows(spec: MixerSpec) -> list[list[LayerContext]]:
    """For each surrounding to try, the contexts that the mixer's `check` accepts, the most awkward first."""
    kinds = [PositionSpec.parse(kind) for kind in POSITIONS.members()]
    applied = [positions for positions in kinds if positions.applied in spec.relative_positions]
    sizes = [(None, row) for row in _ROWS] + [(positions, _WITH_POSITIONS) for positions in applied]
    forms = [form for form, has in ((True, spec.causal_form), (False, spec.bidirectional_form)) if has]
    rows = []
    for causal in forms:
        for positions, row in sizes:
            candidates = [
                LayerContext(
                    1,
                    width,
                    heads,
                    depth=5,
                    context=length,
                    causal=causal,
                    init_std=0.3,
                    positions=positions,
                    vocabulary=VOCABULARY,
                )
                for width, heads, length in row
            ]
            accepted = [context for context in candidates if is_taken(spec, context)]
            # What a mixer reads may depend on its layer.
            layers = (0, 4) if spec.shares else (0,)
            rows += [[replace(context, layer=layer) for context in accepted] for layer in layers if accepted]
    if spec.takes_separate_inputs:
        apart = [replace(context, separate_inputs=True) for context in rows[0]]
        rows.append([context for context in apart if is_taken(spec, context)])
    return [row for row in rows if row]


def _fallbacks(spec: MixerSpec, context: LayerContext) -> list[LayerContext]:
    return next((row[1:] for row in _rows(spec) if row[0] == context), [])


@torch.no_grad()
def own_initial_values(spec: MixerSpec) -> Iterator[str]:
    """A warning if layers of torch keep torch's default initial values.

    It breaks no rule, and it makes a comparison unfair: all other projections of a model start from N(0, init_std²).
    """
    usual = LayerContext(1, 64, 4, depth=5, context=16, causal=spec.causal_form)
    row = [usual, *(context for row_of_contexts in _rows(spec) for context in row_of_contexts)]
    context = next((replace(context, init_std=0.02) for context in row if is_taken(spec, context)), None)
    if context is None:
        return
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        try:
            mixer = build_part(spec, context)
        except Exception:  # `refuses_unsupported_contexts` says so
            return
        names = [name.removeprefix("module.") for name, layer in mixer.named_modules() if _keeps_defaults(layer)]
    if names:
        listed = ", ".join(f"`{name}`" for name in names)
        yield (
            f"the layers {listed} start from torch's default values, and the projections of the other mixers from "
            "N(0, init_std²): a difference may then be one of initial values alone. Use `context.init_std` in `build`, "
            "for example `torch.nn.init.normal_(layer.weight, std=context.init_std)`."
        )


def _keeps_defaults(layer: nn.Module) -> bool:
    """Whether a layer of torch's has matrices that are spread as its own `reset_parameters` spreads them."""
    reset = getattr(layer, "reset_parameters", getattr(layer, "_reset_parameters", None))
    if not type(layer).__module__.startswith("torch.nn.") or reset is None:
        return False
    matrices = [parameter for parameter in layer.parameters(recurse=False) if parameter.dim() > 1]
    before = [matrix.std().item() for matrix in matrices]
    reset()
    return any(
        abs(std - matrix.std().item()) < _SAME_SPREAD * matrix.std().item()
        for std, matrix in zip(before, matrices, strict=True)
    )


def refuses_unsupported_contexts(spec: MixerSpec, context: LayerContext) -> Iterator[str]:
    """A context that `check` accepts can be built and read; all others are refused there."""
    try:
        _RULES.module(spec, context)(noise("input", 1, 2, context.context, context.width))
    except Exception as error:  # whatever a user's module raises
        size = f"width {context.width} with {context.heads} heads and {context.context} tokens"
        yield (
            f"`check` accepts {size}, and there the module raised {type(error).__name__}: {error}. "
            "If it cannot work at this size, refuse it in `check`, with `ablate.spec.base.refusal`"
        )


def is_causal(spec: MixerSpec, context: LayerContext) -> Iterator[str]:
    """Causal: what comes after position t does not change the output at t. Bidirectional: the last token does."""
    length = context.context
    if length == 1:
        return
    x = noise("input", 1, 1, length, context.width).expand(1, length, length, -1).clone()
    other = noise("other", 1, 1, length, context.width)
    position = torch.arange(length)
    later = (position > position[:, None])[None, :, :, None]  # sequence b of the batch changes after position b
    mixer = _RULES.module(spec, context)
    moved = (mixer(x) - mixer(torch.where(later, other, x))).abs().amax((0, 3))  # [B, T]
    leak = moved.tril()
    if context.causal and leak.max() > TOLERANCE:
        cut, at = divmod(int(leak.argmax()), length)
        yield f"changing the tokens after position {cut} moved the output at {at} by {leak.max().item():.2g}"
    reads_itself = not spec.reads(context)  # else it may see tokens in what it reads alone
    if not context.causal and reads_itself and moved[length - 2, : length - 1].max() == 0:
        yield "changing the last token moved no output before it"


def applies_positions(spec: MixerSpec, context: LayerContext) -> Iterator[str]:
    """Relative positions that the kind declares are applied: without them the output is another one."""
    plain = replace(context, positions=None)
    if context.positions is None or context.context == 1 or not is_taken(spec, plain):
        return
    x = noise("input", 1, 2, context.context, context.width)
    if gap(_RULES.module(spec, context)(x), _RULES.module(spec, plain)(x)) == 0:
        yield f"the output with `positions: {context.positions.kind_name()}` is that of `positions: none`"


@torch.no_grad()
def decodes_incrementally(spec: MixerSpec, context: LayerContext) -> Iterator[str]:
    """Causal: decoding token by token, with cached states or all inputs, gives the output of the whole sequence.

    A difference that is gone in double precision is rounding.
    """
    if not context.causal:
        return
    mixer = _RULES.module(spec, context)
    x = noise("input", 1, 2, context.context, context.width)
    if (found := _decoding_gap(mixer, x)) is not None and _decoding_gap(mixer.double(), x.double()) is not None:
        yield "token {} read by itself is {:.2g} off what the whole sequence gives".format(*found)


def _decoding_gap(mixer: nn.Module, x: Tensor) -> tuple[int, float] | None:
    """The first token whose output differs when it is decoded, and by how much; none differs: None."""
    whole = mixer(x)
    state: State = ()
    for position in range(x.shape[2]):
        y, state = step(mixer, x[:, :, position : position + 1], position, state)
        if gap(y, whole[:, :, position : position + 1]) <= TOLERANCE:
            continue
        off = gap(y, mixer(x[:, :, : position + 1])[:, :, -1:])  # some mixers depend on the length
        if off > TOLERANCE:
            return position, off
    return None


def ignores_padding(spec: MixerSpec, context: LayerContext) -> Iterator[str]:
    """Values at padded positions do not change real positions; an all-real mask gives the result without a mask.

    A text that is padding only makes no result and no gradient infinite, also in training.
    """
    length = context.context
    mixer = _RULES.module(spec, context)
    position = torch.arange(length)
    right, left, none, all_padding = position < (length + 1) // 2, position >= length // 2, position >= 0, position < 0
    real = torch.stack([right, left, none, all_padding])[None]
    x, other = (noise(name, 1, 4, length, context.width) for name in ("input", "other"))
    yield from _not_finite(mixer, x, real)
    y = mixer(x, real)
    moved = (y - mixer(torch.where(real[..., None], x, other), real))[real]
    if moved.abs().max() > TOLERANCE:
        yield f"changing padded tokens moved real ones by {moved.abs().max().item():.2g}"
    off = gap(y[:, 2], mixer(x)[:, 2])
    if off > TOLERANCE:
        yield f"a mask that hides nothing moved the output by {off:.2g}"


def reads_another_sequence(spec: MixerSpec, context: LayerContext) -> Iterator[str]:
    """Cross form: every real token of the other sequence is read, its padding is not, and no row sees another row."""
    crossing = replace(context, cross=True, positions=None, separate_inputs=False)
    if not spec.cross_form or context.causal or not is_taken(spec, crossing):
        return
    mixer = _RULES.module(spec, crossing)
    rows, length = context.context, max(2, context.context - 2)
    x, other_x = (noise(name, 1, 2, rows, context.width) for name in ("input", "other"))
    memory, other = (noise(name, 1, 2, length, context.width) for name in ("memory", "other memory"))
    y = mixer(x, None, memory)
    if y.shape != x.shape:
        yield f"{tuple(x.shape)} became {tuple(y.shape)}"
    last = torch.arange(length)[:, None] == length - 1
    if gap(y, mixer(x, None, torch.where(last, other, memory))) == 0:
        yield "changing the last token of the other sequence moved nothing"
    real = (torch.arange(length) < (length + 1) // 2).expand(1, 2, length)
    off = gap(mixer(x, None, memory, real), mixer(x, None, torch.where(real[..., None], memory, other), real))
    if off > TOLERANCE:
        yield f"changing padded tokens of the other sequence moved the output by {off:.2g}"
    yield from _not_finite(mixer, x, None, memory, real & (torch.arange(2)[:, None] == 1))  # nothing to see in one row
    changed = mixer(torch.where(torch.arange(rows)[:, None] == rows - 1, other_x, x), None, memory)
    if rows > 1 and gap(y[:, :, :-1], changed[:, :, :-1]) > TOLERANCE:
        yield "changing the last row moved rows before it"


def _not_finite(mixer: nn.Module, *inputs: Tensor | None) -> Iterator[str]:
    """What is not finite for inputs with a text that is padding only, in evaluation and in training."""
    for mode in (False, True):
        mixer.train(mode).zero_grad()
        y = mixer(*inputs)
        y = y if isinstance(y, Tensor) else y[0]  # without published tensors
        if y.requires_grad:
            y.sum().backward()
        trained = [(name, one.grad) for name, one in mixer.named_parameters() if one.grad is not None]
        gradients = [name for name, gradient in trained if not gradient.isfinite().all()]
        if not y.isfinite().all() or gradients:
            what = f"gradients of {', '.join(gradients)}" if gradients else "results"
            yield f"a text that is padding only gave {what} that are not finite{' in training' if mode else ''}"
    mixer.eval()


class _InputsApart(nn.Module):
    """A mixer with separate inputs that is given one: queries, keys and values read its channels in another order."""

    def __init__(self, mixer: nn.Module) -> None:
        super().__init__()
        self.mixer = mixer

    def forward(self, x: Tensor, *more: Any, **shared: Any) -> Any:
        """As the mixer."""
        return self.mixer(torch.stack([x, x.flip(-1), x.roll(1, -1)], -2), *more, **shared)

    def step(self, x: Tensor, position: int, state: State, **shared: Any) -> Any:
        """As the mixer."""
        return cast(Stepping, self.mixer).step(
            torch.stack([x, x.flip(-1), x.roll(1, -1)], -2), position, state, **shared
        )


def _build(spec: MixerSpec, context: LayerContext) -> nn.Module:
    mixer = build_part(spec, context)
    return given_shared(_InputsApart(mixer) if context.separate_inputs else mixer, spec, context)


def _describe(context: LayerContext) -> str:
    form = "causal" if context.causal else "bidirectional"
    sizes = f"{plural(context.heads, 'head')}, {plural(context.context, 'token')}"
    apart = ", inputs apart" if context.separate_inputs else ""
    return f"width {context.width}, {sizes}, {form}{apart}"


_RULES: ModuleRules[MixerSpec] = ModuleRules(
    build=_build,
    parameters=lambda spec, context: spec.cost(context, context.context).parameters,
    packs=lambda spec: spec.pack_aware,
    rounds=lambda spec, context: (
        (context.context, context.causal, context.positions, context.layer) == (13, spec.causal_form, None, 0)
    ),
)

CONTRACT: Contract[MixerSpec, LayerContext] = Contract(
    family=MIXERS,
    rules=by_name(
        refuses_unsupported_contexts,
        _RULES.keeps_shape,
        is_causal,
        applies_positions,
        decodes_incrementally,
        _RULES.has_gradients,
        _RULES.works_in_bfloat16,
        _RULES.reads_longer_inputs,
        _RULES.builds_without_values,
        _RULES.counts_parameters,
        round_trips_through_json,
        _RULES.isolates_pack_members,
        ignores_padding,
        reads_another_sequence,
    ),
    contexts=contexts,
    describe=_describe,
    precondition=refuses_unsupported_contexts,
    fallbacks=_fallbacks,
    warnings=own_initial_values,
)
