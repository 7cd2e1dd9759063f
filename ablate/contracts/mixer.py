"""The contract of a mixer: a list of rules, each a function that tries the mixer and says what it found wrong.

Shapes: K pack, B batch, T tokens, D width.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from pydantic import ValidationError
from torch import Tensor, nn

from ablate.model.block import build_mixer
from ablate.pack import State, initialise, step
from ablate.pack.initial import stream
from ablate.spec.mixer import MixerContext, MixerSpec

_TOLERANCE = 1e-4

Rule = Callable[[MixerSpec, MixerContext], Iterator[str]]


@dataclass(frozen=True, slots=True)
class Finding:
    """A rule that a mixer breaks.

    Attributes:
        rule: Name of the rule, a key of `RULES`.
        context: Where it was broken.
        detail: What was found, as a sentence.
    """

    rule: str
    context: MixerContext
    detail: str


def contexts(spec: MixerSpec) -> list[MixerContext]:
    """Awkward surroundings (odd and prime sizes, one token) in every form that the mixer has and does not refuse."""
    forms = [form for form, has in ((True, spec.causal_form), (False, spec.bidirectional_form)) if has]
    sizes = [(21, 3, 13, "none"), (8, 2, 1, "none"), (7, 7, 37, "none")]  # width, heads, tokens, relative positions
    sizes += [(18, 3, 13, positions) for positions in sorted(spec.relative_positions)]
    found = []
    for causal in forms:
        for width, heads, length, positions in sizes:
            context = MixerContext(
                1, width, heads, depth=5, context=length, causal=causal, init_std=0.3, positions=positions
            )
            if _takes(spec, context):
                found.append(context)
    return found


def check_mixer(spec: MixerSpec, surroundings: Sequence[MixerContext] | None = None) -> list[Finding]:
    """Try a mixer by every rule.

    Args:
        spec: The mixer.
        surroundings: Where to try it (with a pack of one); `contexts(spec)` unless given.

    Returns:
        What was found wrong; empty for a mixer that keeps the contract.
    """
    findings = []
    for context in contexts(spec) if surroundings is None else surroundings:
        for name, rule in RULES.items():
            try:
                findings += [Finding(name, context, detail) for detail in rule(spec, context)]
            except Exception as error:  # whatever a user's module raises is a finding, not an end
                findings.append(Finding(name, context, f"raised {type(error).__name__}: {error}"))
    return findings


def keeps_shape(spec: MixerSpec, context: MixerContext) -> Iterator[str]:
    """[K, B, T, D] goes to [K, B, T, D], for the longest input and for shorter ones."""
    mixer = _mixer(spec, context, [0])
    for length in {context.context, max(1, context.context - 2)}:
        x = _noise("input", 1, 2, length, context.width)
        y = mixer(x)
        if y.shape != x.shape:
            yield f"{tuple(x.shape)} became {tuple(y.shape)}"
        if not y.isfinite().all():
            yield "a finite input gave an output that is not finite"


def hides_the_future(spec: MixerSpec, context: MixerContext) -> Iterator[str]:
    """Causal: what comes after position t does not change the output at t. Bidirectional: the last token does."""
    length = context.context
    if length == 1:
        return
    x = _noise("input", 1, 1, length, context.width).expand(1, length, length, -1).clone()
    other = _noise("other", 1, 1, length, context.width)
    position = torch.arange(length)
    later = (position > position[:, None])[None, :, :, None]  # sequence b of the batch changes after position b
    mixer = _mixer(spec, context, [0])
    moved = (mixer(x) - mixer(torch.where(later, other, x))).abs().amax((0, 3))  # [B, T]
    leak = moved.tril()
    if context.causal and leak.max() > _TOLERANCE:
        cut, at = divmod(int(leak.argmax()), length)
        yield f"changing the tokens after position {cut} moved the output at {at} by {leak.max().item():.2g}"
    if not context.causal and moved[length - 2, : length - 1].max() == 0:
        yield "changing the last token moved no output before it"


def goes_on_token_by_token(spec: MixerSpec, context: MixerContext) -> Iterator[str]:
    """Causal: read token by token, with what it keeps or from all inputs again, it gives what it gives at once."""
    if not context.causal:
        return
    mixer = _mixer(spec, context, [0])
    x = _noise("input", 1, 2, context.context, context.width)
    state: State = ()
    for place in range(context.context):
        y, state = step(mixer, x[:, :, place : place + 1], place, state)
        gap = _gap(y, mixer(x[:, :, : place + 1])[:, :, -1:])
        if gap > _TOLERANCE:
            yield f"token {place} read by itself is {gap:.2g} off what the whole sequence gives"
            return


def has_gradients(spec: MixerSpec, context: MixerContext) -> Iterator[str]:
    """Every trainable parameter, and the input, gets a finite gradient."""
    mixer = _mixer(spec, context, [0])
    x = _noise("input", 1, 2, context.context, context.width).requires_grad_()
    y = mixer(x)
    (y * _noise("direction", *y.shape)).sum().backward()
    for name, tensor in [("the input", x), *mixer.named_parameters()]:
        if tensor.grad is None:
            yield f"{name} gets no gradient"
        elif not tensor.grad.isfinite().all():
            yield f"the gradient of {name} is not finite"


def counts_parameters(spec: MixerSpec, context: MixerContext) -> Iterator[str]:
    """`cost` counts the trainable parameters that the module has."""
    real = sum(parameter.numel() for parameter in _mixer(spec, context, [0]).parameters() if parameter.requires_grad)
    counted = spec.cost(context, context.context).parameters
    if counted != real:
        yield f"`cost` counts {counted} parameters, and the module has {real}"


def comes_back_from_json(spec: MixerSpec, context: MixerContext) -> Iterator[str]:
    """Written as JSON and read again, the spec is equal and has the same hash; so is its canonical form."""
    for form, plain in (("JSON", spec.model_dump(mode="json")), ("canonical form", spec.canonical())):
        again = spec.family.member(spec.kind_name()).parse(plain)
        if again != spec or again.content_hash() != spec.content_hash():
            yield f"its {form} is read as another spec"


def keeps_members_apart(spec: MixerSpec, context: MixerContext) -> Iterator[str]:
    """A pack of three gives, member by member, what three packs of one with the same seeds give."""
    if not spec.pack_aware:
        return
    seeds = [5, 2, 11]
    x = _noise("input", 3, 2, context.context, context.width)
    packed = _mixer(spec, replace(context, pack=3), seeds)(x)
    for member, seed in enumerate(seeds):
        gap = _gap(packed[member], _mixer(spec, context, [seed])(x[member : member + 1])[0])
        if gap > _TOLERANCE:
            yield f"member {member} of a pack of 3 is {gap:.2g} off the same seed alone"


def ignores_padding(spec: MixerSpec, context: MixerContext) -> Iterator[str]:
    """What stands at padded positions does not change real positions; padding nothing is no padding."""
    length = context.context
    mixer = _mixer(spec, context, [0])
    position = torch.arange(length)
    right, left, none = position < (length + 1) // 2, position >= length // 2, position >= 0
    real = torch.stack([right, left, none])[None]
    x, other = (_noise(name, 1, 3, length, context.width) for name in ("input", "other"))
    y = mixer(x, real)
    moved = (y - mixer(torch.where(real[..., None], x, other), real))[real]
    if moved.abs().max() > _TOLERANCE:
        yield f"changing padded tokens moved real ones by {moved.abs().max().item():.2g}"
    gap = _gap(y[:, 2], mixer(x)[:, 2])
    if gap > _TOLERANCE:
        yield f"a mask that hides nothing moved the output by {gap:.2g}"


def reads_another_sequence(spec: MixerSpec, context: MixerContext) -> Iterator[str]:
    """Cross form: every real token of the other sequence is read, its padding is not, and no row sees another row."""
    crossing = replace(context, cross=True, positions="none")
    if not spec.cross_form or context.causal or not _takes(spec, crossing):
        return
    mixer = _mixer(spec, crossing, [0])
    rows, length = context.context, max(2, context.context - 2)
    x, other_x = (_noise(name, 1, 2, rows, context.width) for name in ("input", "other"))
    memory, other = (_noise(name, 1, 2, length, context.width) for name in ("memory", "other memory"))
    y = mixer(x, None, memory)
    if y.shape != x.shape:
        yield f"{tuple(x.shape)} became {tuple(y.shape)}"
    last = torch.arange(length)[:, None] == length - 1
    if _gap(y, mixer(x, None, torch.where(last, other, memory))) == 0:
        yield "changing the last token of the other sequence moved nothing"
    real = (torch.arange(length) < (length + 1) // 2).expand(1, 2, length)
    gap = _gap(mixer(x, None, memory, real), mixer(x, None, torch.where(real[..., None], memory, other), real))
    if gap > _TOLERANCE:
        yield f"changing padded tokens of the other sequence moved the output by {gap:.2g}"
    changed = mixer(torch.where(torch.arange(rows)[:, None] == rows - 1, other_x, x), None, memory)
    if rows > 1 and _gap(y[:, :, :-1], changed[:, :, :-1]) > _TOLERANCE:
        yield "changing the last row moved rows before it"


RULES: dict[str, Rule] = {
    rule.__name__: rule
    for rule in (
        keeps_shape,
        hides_the_future,
        goes_on_token_by_token,
        has_gradients,
        counts_parameters,
        comes_back_from_json,
        keeps_members_apart,
        ignores_padding,
        reads_another_sequence,
    )
}


def _takes(spec: MixerSpec, context: MixerContext) -> bool:
    try:
        spec.check(context)
    except ValidationError:
        return False
    return True


@torch.no_grad()
def _mixer(spec: MixerSpec, context: MixerContext, seeds: Sequence[int]) -> nn.Module:
    """The mixer away from its initial values: a gain that starts at 0 would hide what stands behind it."""
    mixer = build_mixer(spec, context)
    initialise(mixer, seeds)
    for name, parameter in mixer.named_parameters():
        for member, seed in enumerate(seeds):
            values = parameter[member] if spec.pack_aware else parameter
            values += 0.3 * torch.randn(values.shape, generator=stream(seed, f"contract/{name}", values.shape))
    return mixer.eval()


def _noise(name: str, *shape: int) -> Tensor:
    return torch.randn(shape, generator=stream(0, name))


def _gap(left: Tensor, right: Tensor) -> float:
    return (left - right).abs().max().item()
