"""The rules of a model: which parts, settings and families go together. `ModelSpec` applies them."""

from __future__ import annotations

import functools

from pydantic import ValidationError

from ablate.spec.base import largest_divisor, refusal
from ablate.spec.block import BlockSpec, GainsSpec, ResidualSpec, SkipsSpec
from ablate.spec.convolution import NO_CONVOLUTIONS
from ablate.spec.layer import EMBEDDING, PartSpec, SharedTensor
from ablate.spec.model_fields import Layers, ModelFields, PlacedMixer


def check_model(model: ModelFields) -> None:
    """Refuse a model whose parts do not fit together.

    Raises:
        ValidationError: With the path inside the model, the rule and a remedy.
    """
    _check_family(model)
    _check_norms(model)
    checked: set[tuple[int, bool, bool]] = set()
    for placed in model.placed_mixers():
        like = (id(placed.block), placed.causal, placed.cross)
        if like not in checked:  # layers without an exception share one block
            checked.add(like)
            _check_forms(model, placed)
            _check_settings(model, placed)
        _check_inputs_and_convolutions(model, placed)
    if model.decoder is not None:
        _check_decoder_block(model.block)
        _check_alone_in_layer(("decoder", "mixer"), model.decoder.mixer)
    _check_streams(model, model.layers)
    _check_shared(model, model.layers)
    _check_ends(model)
    _check_loops(model)
    _check_starts(model, model.layers)


def _check_norms(model: ModelFields) -> None:
    transform = None if model.head_transform is None else model.head_transform.norm
    for home, norm, where in (
        (("final_norm",), model.final_norm, "the final norm has one place: after the last block"),
        (("embedding_norm",), model.embedding_norm, "the norm of embeddings has one place: before the first block"),
        (("head_transform", "norm"), transform, "this norm has one place: before the output matrix"),
    ):
        if norm is not None and norm.place != "pre":
            raise refusal((*home, "place"), norm.place, where, "Leave `place` out.")


def _check_family(model: ModelFields) -> None:
    heads = {"decoder": (False,), "encoder": (False, True), "dual_encoder": (True,), "encoder_decoder": (False,)}
    has_head = model.head is not None
    if has_head not in heads[model.family]:
        need = "needs a `head`" if not has_head else "gives tokens, and has no `head`"
        remedy = "Add `head: {pooling: cls}`." if not has_head else "Leave `head` out, or set `family: encoder`."
        raise refusal(("head",), model.head, f"{_a_family(model)} {need}", remedy)
    if (model.decoder is not None) != (model.family == "encoder_decoder"):
        need = "needs a `decoder`" if model.decoder is None else "has no `decoder` part"
        remedy = (
            "Add `decoder: {depth: 6, mixer: attention}`."
            if model.decoder is None
            else "Leave `decoder` out, or set `family: encoder_decoder`."
        )
        raise refusal(("decoder",), model.decoder, f"{_a_family(model)} {need}", remedy)
    if model.head is not None and model.head.features == "interaction" and model.family != "dual_encoder":
        raise refusal(
            ("head", "features"),
            "interaction",
            f"interactions are between two texts, and {_a_family(model)} reads one",
            "Leave `features` out, or set `family: dual_encoder`.",
        )


def _check_forms(model: ModelFields, placed: PlacedMixer) -> None:
    """Refuse a mixer that has no form for its place."""
    home, mixer, causal, cross = (*placed.mixer_home, "kind"), placed.mixer, placed.causal, placed.cross
    if causal and not mixer.causal_form:
        raise refusal(
            home,
            mixer.kind_name(),
            f"{_a_family(model)} must hide the future, and {mixer.kind_name()} has no causal form",
            "Choose a mixer that `ablate kinds` lists as causal.",
        )
    if not causal and not mixer.bidirectional_form:
        raise refusal(
            home,
            mixer.kind_name(),
            f"{_a_family(model)} sees both sides, and {mixer.kind_name()} has only a causal form",
            "Choose a mixer that `ablate kinds` lists as bidirectional.",
        )
    if cross and not mixer.cross_form:
        raise refusal(
            home,
            mixer.kind_name(),
            f"{mixer.kind_name()} cannot read keys and values from another sequence",
            "Set `decoder.mixer: attention`.",
        )


def _check_settings(model: ModelFields, placed: PlacedMixer) -> None:
    """Refuse positions, a window or a head width that the mixer of a layer does not support."""
    block, mixer, kind = placed.block, placed.mixer, placed.mixer.kind_name()
    positions, heads_home = placed.positions(model.positions)
    if not placed.cross and positions.in_layers and positions.applied not in mixer.relative_positions:
        raise refusal(
            heads_home,
            positions.kind_name(),
            f"{positions.kind_name()} positions are applied by the mixer, and {kind} does not",
            "Set `positions` to learned, sinusoidal or none, or choose the mixer `attention`.",
        )
    if not placed.cross and positions.factor_of_logits != 1.0 and not mixer.scales_logits:
        raise refusal(
            (*heads_home, *positions.factor_path),
            functools.reduce(getattr, positions.factor_path, positions),
            f"it multiplies the logits of attention by {positions.factor_of_logits:.4g}, and {kind} does not do so",
            f"Leave `{'.'.join(positions.factor_path)}` out, or choose the mixer `attention` or `latent_attention`.",
        )
    if block.window is not None and not placed.cross and not mixer.takes_window:
        raise refusal(
            (*placed.home, "window"),
            block.window,
            f"the mixer {kind} has no window",
            "Leave `window` out, or choose the mixer `attention`.",
        )
    _check_heads(model, placed)


def _check_inputs_and_convolutions(model: ModelFields, placed: PlacedMixer) -> None:
    """Refuse inputs apart and short convolutions for which a part has no place, and convolutions that see both sides.

    Layers that attend to the keys of another one have none on them, though they may share its block.
    """
    context = model.layer_context(1, layer=placed.layer, cross=placed.cross)
    if context.separate_inputs and not placed.mixer.takes_separate_inputs:
        raise refusal(
            (*placed.home, "residual"),
            placed.block.residual.kind_name(),
            f"it gives queries, keys and values inputs of their own, and {placed.mixer.kind_name()} has one input",
            "Choose the mixer `attention`, or another setting of `residual`.",
        )
    convolutions = placed.block.convolutions
    if placed.cross or convolutions == NO_CONVOLUTIONS:
        return
    if not placed.causal:
        raise refusal(
            (*placed.home, "convolutions"),
            convolutions.canonical(),
            f"a short convolution looks back from each token, and {_a_family(model)} sees both sides",
            "Leave `convolutions` out, or set `family: decoder`.",
        )
    slots = (
        ("on_key", placed.mixer, placed.mixer.convolved_keys(context), "attention"),
        ("on_qkv", placed.mixer, placed.mixer.convolved_width(context), "attention"),
        ("in_mlp", placed.block.mlp, placed.block.mlp.convolved_width(context), "gated"),
    )
    for field, part, channels, such in slots:
        if getattr(convolutions, field) is not None and not channels:
            raise refusal(
                (*placed.home, "convolutions", field),
                getattr(convolutions, field).canonical(),
                f"{part.kind_name()} has no such place in this layer",
                f"Leave `{field}` out, or choose another kind, such as `{such}`.",
            )


def _check_heads(model: ModelFields, placed: PlacedMixer) -> None:
    block, mixer, kind = placed.block, placed.mixer, placed.mixer.kind_name()
    set_by_block = block.head_width is not None
    head_width, home = block.head_width or model.head_width, (*placed.home, "head_width")
    if not mixer.uses_heads:
        if set_by_block and not placed.cross:
            raise refusal(home, head_width, f"the mixer {kind} has no heads", "Leave `head_width` out.")
    elif head_width is None and model.width % model.heads:
        near = largest_divisor(model.width, model.heads)
        raise refusal(
            ("heads",),
            model.heads,
            f"the heads must divide the width, which is {model.width}",
            f"Set `heads: {near}`, or a width that is a multiple of {model.heads}.",
        )
    elif head_width is not None and head_width * model.heads != model.width and not mixer.any_head_width:
        raise refusal(
            home if set_by_block else ("head_width",),
            head_width,
            f"the {model.heads} heads of {kind} share the width, which is {model.width}",
            "Leave `head_width` out, or choose the mixer `attention`.",
        )


def _check_alone_in_layer(home: tuple[str, ...], part: PartSpec) -> None:
    """Refuse a part that shares tensors where layers cannot."""
    if part.shares:
        raise refusal(
            home,
            part.kind_name(),
            "the decoder of an encoder-decoder shares no tensors between its layers",
            "Choose another kind or other settings, or set `family: decoder`.",
        )


def _check_decoder_block(block: BlockSpec) -> None:
    plain = block.arrangement == "sequential" and block.skips == SkipsSpec() and block.mlp.present
    if not plain or block.gains != GainsSpec():
        raise refusal(
            ("block",),
            block.arrangement,
            "the blocks of a decoder that reads an encoder are sequential, with an MLP, one skip round each part "
            "and no gains",
            "Use a block such as `post_ln` or `pre_ln`.",
        )
    if any(norm.place not in ("pre", "post") for norm in block.norms):
        raise refusal(
            ("block", "norm", "place"),
            block.norms[0].place,
            "a decoder that reads an encoder has its norms before the sub-layers or after the sums",
            "Set `norm.place` to pre or post.",
        )
    if block.residual != ResidualSpec.default():
        raise refusal(
            ("block", "residual"),
            block.residual.kind_name(),
            "the blocks of a decoder that reads an encoder have plain residuals",
            "Leave `residual` out.",
        )
    for name, part in (("mixer", block.mixer), ("mlp", block.mlp)):
        _check_alone_in_layer(("block", name), part)


def _check_streams(model: ModelFields, layers: Layers) -> None:
    """Refuse a layer whose stream has other sizes than that of the layer before it."""
    _check_growing_stream(model, layers)
    if all(block is model.block or block.residual == model.block.residual for _, block in layers):
        return
    before: tuple[int, ...] | None = None
    for layer, (home, block) in enumerate(layers):
        sizes = block.residual.stream_sizes(model.layer_context(1, layer=layer))
        if before is not None and sizes != before:
            raise refusal(
                (*home, "residual"),
                block.residual.kind_name(),
                f"layer {layer} has a stream of sizes {sizes}, and layer {layer - 1} gives one of sizes {before}",
                "Set the same `residual` in all layers.",
            )
        before = sizes


def _check_growing_stream(model: ModelFields, layers: Layers) -> None:
    """Refuse layers that differ, or that run again, if their sub-layers add to the stream."""
    growing = next(((home, block) for home, block in layers if block.residual.grows), None)
    if growing is None:
        return
    home, block = growing
    alike = all(
        (other.residual, other.sublayers, other.arrangement) == (block.residual, block.sublayers, block.arrangement)
        for _, other in layers
    )
    further = model.multi_token is not None and model.multi_token.form == "modules"
    if alike and not model.loops and not further:
        return
    raise refusal(
        (*home, "residual"),
        block.residual.kind_name(),
        "each sub-layer adds a source to the stream, so that all layers have the same sub-layers and run once",
        "Leave out `loops`, modules of further tokens and layers with other sub-layers, or set `residual: plain`.",
    )


def _check_starts(model: ModelFields, layers: Layers) -> None:
    """Refuse two sub-layers that start at 0 without a skip round them.

    The first gives 0 to the second, whose last map then has no gradient, and the second passes none to the first.
    """
    silent: list[tuple[tuple[str, ...], str]] = []
    for layer in model.order:
        home, block = layers[layer]
        for name, part, own, skips in (
            ("mixer", block.mixer, block.initialiser_mixer, block.skips.mixer),
            ("mlp", block.mlp, block.initialiser_mlp, block.skips.mlp),
        ):
            plain = block.residual == ResidualSpec.default() and block.arrangement != "parallel"
            covered = skips or (name == "mlp" and block.skips.mixer == 2)
            if plain and not covered and not part.shares and part.starts_at_zero(own or model.initialiser):
                silent.append((home, name))
    if len(silent) > 1:
        home, name = silent[0]
        raise refusal(
            (*home, "skips", name),
            0,
            f"the last map of the {name} starts at 0, and without a skip round two such parts none of them ever learns",
            f"Set `skips.{name}: 1`, or another `model.initialiser`.",
        )


def _check_shared(model: ModelFields, layers: Layers) -> None:
    """Refuse a layer that reads what no earlier layer publishes, and one whose tensors no later layer reads."""
    blocks = {id(block): block for _, block in layers}
    if not any(block.shares for block in blocks.values()):
        return
    published = {model.layer_context(1).stream(EMBEDDING)}
    if model.causal:
        published.add(model.layer_context(1).tokens)
    unread: dict[SharedTensor, tuple[tuple[str, ...], PartSpec]] = {}
    for layer, (home, block) in enumerate(layers):
        layer_context, gives = model.layer_context(1, layer=layer), set[SharedTensor]()
        for name, part in block.parts:
            if part.shares and not part.pack_aware:
                raise refusal(
                    (*home, name),
                    part.kind_name(),
                    f"{part.kind_name()} shares tensors between layers, and so must keep the pack axis apart",
                    "Write its module for [K, B, T, D], with `pack_aware = True`.",
                )
            for wanted in part.reads(layer_context):
                if wanted not in published:
                    raise _refusal_of_unpublished((*home, name), part, layer, wanted, published)
                unread.pop(wanted, None)
            made = part.publishes(layer_context)
            gives.update(made)
            if part.must_be_read:
                unread |= dict.fromkeys(made, ((*home, name), part))
        published |= gives | {SharedTensor("stream", layer, block.residual.stream_sizes(layer_context))}
    for tensor, (home_of_part, part) in unread.items():
        if tensor.layer < model.depth - 1:  # the part itself refuses to publish in the last layer
            raise refusal(
                home_of_part,
                part.kind_name(),
                f"layer {tensor.layer} publishes `{tensor.name}` for later layers, and none of them reads it",
                "Set it in a later layer too, or leave it out here.",
            )


def _refusal_of_unpublished(
    home: tuple[str, ...], part: PartSpec, layer: int, wanted: SharedTensor, published: set[SharedTensor]
) -> ValidationError:
    alike = [one for one in published if (one.name, one.layer) == (wanted.name, wanted.layer)]
    having = sorted(one.layer for one in published if one.name == wanted.name and one.layer >= 0)
    if alike:
        why = f"layer {wanted.layer} publishes it with the sizes {alike[0].sizes}, and {wanted.sizes} are wanted"
    elif wanted.layer >= layer:
        why = "a layer reads only what an earlier layer publishes"
    else:
        why = f"layer {wanted.layer} publishes nothing of this name"
    where = f"the layers {', '.join(map(str, having))} publish it" if having else "no layer before it publishes it"
    return refusal(
        home,
        part.kind_name(),
        f"layer {layer} reads `{wanted.name}` of layer {wanted.layer}, but {why}",
        f"Let this layer read another one ({where}), or choose another kind here.",
    )


def _check_ends(model: ModelFields) -> None:
    """Refuse what this family's embedding or head cannot do."""
    for name in ("bigram", "smear"):
        if getattr(model, name) is not None and model.family == "encoder_decoder":
            rule = "the embedding of an encoder-decoder reads two texts and looks at one token at a time"
            raise refusal((name,), getattr(model, name), rule, f"Leave `{name}` out, or set `family: decoder`.")
    if model.smear is not None and model.smear.inputs > model.width:
        rule = f"an embedding has {model.width} entries"
        raise refusal(("smear", "inputs"), model.smear.inputs, rule, f"Set it to at most {model.width}.")
    for name in ("logit_cap", "z_loss", "head_transform", "head_bias", "logit_scale"):
        if getattr(model, name) not in (None, 0, False, "none") and model.head is not None:
            rule = f"it belongs to the logits of tokens, and {_a_family(model)} with `head` has none"
            raise refusal((name,), getattr(model, name), rule, f"Leave `{name}` out.")
    if model.initialiser.scales_rates and (model.head is not None or model.decoder is not None):
        rule = f"{model.initialiser.kind_name()} scales models of one stack with a head of tokens"
        remedy = "Choose another initialiser, or a decoder or encoder of tokens."
        raise refusal(("initialiser",), model.initialiser.kind_name(), rule, remedy)
    if model.multi_token is None:
        return
    if model.family != "decoder":
        rule = f"{_a_family(model)} does not predict the next token, so that no token comes after it"
        raise refusal(("multi_token",), model.multi_token, rule, "Leave `multi_token` out, or set `family: decoder`.")
    if model.multi_token.form == "modules" and model.block.shares:
        rule = "the blocks of its modules are not layers, but `block` shares tensors with other layers"
        raise refusal(
            ("multi_token", "form"),
            "modules",
            rule,
            "Set `form: same_logits`, or choose parts of `block` that share nothing.",
        )


def _check_loops(model: ModelFields) -> None:
    """Refuse loops over layers that are not there, and loops that overlap."""
    end = -1
    for index, loop in enumerate(model.loops):
        if loop.last >= model.depth or loop.first > loop.last:
            rule = f"a loop goes from a layer to the same or a later one, and they are numbered 0 to {model.depth - 1}"
            raise refusal(("loops", index, "last"), loop.last, rule, "Name layers that exist, in their order.")
        if loop.first <= end:
            rule = f"loops are listed in the order of the layers and do not overlap; the one before ends at {end}"
            raise refusal(("loops", index, "first"), loop.first, rule, f"Let it begin at {end + 1} or later.")
        end = loop.last


def _a_family(model: ModelFields) -> str:
    return f"{'an' if model.family.startswith('e') else 'a'} {model.family}"
