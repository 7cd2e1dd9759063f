"""A small space file, and strategies for valid blocks and models as plain data, over every switch of the schema."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

Plain = dict[str, Any]

SPACE = """\
name: t
question: Why?
task: {kind: language_model, data: builtin:python_stdlib, tokenizer: {kind: bpe, vocab_size: 512}, context: 32}
model: {family: decoder, depth: 3, width: 32, heads: 4, block: pre_ln}
training: {steps: 10, batch_size: 4, optimizer: {lr: 1e-3}}
switches:
  norm:
    rms: {}
    none: {block.norm: none}
design: leave_one_out
objective: {margin: 0.05}
"""
"""A small space file."""

_NUMBERS = st.one_of(st.integers(-3, 3), st.floats(-4, 4, allow_nan=False), st.sampled_from([-0.0, 1e-3, 1e-300, 0.1]))
_NOT_ZERO = _NUMBERS.filter(lambda number: number != 0)


def _gains(start: st.SearchStrategy[float] = _NOT_ZERO) -> st.SearchStrategy[Any]:
    mapping = st.fixed_dictionaries(
        {"init": start},
        optional={"trainable": st.booleans(), "depth_scaling": st.sampled_from(["none", "inverse_sqrt"])},
    )
    return st.one_of(start, mapping)


_PROJECTIONS = st.one_of(
    st.sampled_from(["dense", "identity", "reparametrised"]),
    st.fixed_dictionaries(
        {"kind": st.just("dense")},
        optional={"init": st.sampled_from(["normal", "orthogonal"]), "bias": st.booleans()},
    ),
    st.just({"kind": "identity"}),
    st.fixed_dictionaries(
        {"kind": st.just("reparametrised")},
        optional={"init": st.sampled_from(["identity", "orthogonal"]), "alpha": _gains(), "beta": _gains()},
    ),
)


@st.composite
def attentions(draw: st.DrawFn) -> Any:
    """A mixer of kind `attention`."""
    softmax = draw(st.booleans())
    plain: Plain = {"kind": "attention", "softmax": softmax}
    if not softmax:
        plain["matmul_order"] = draw(st.sampled_from(["qk_first", "kv_first"]))
    shaping = draw(st.sampled_from(["none", "value_skipinit", "shaped"] if softmax else ["none", "value_skipinit"]))
    names = {"none": (), "value_skipinit": ("alpha", "beta"), "shaped": ("alpha", "beta", "gamma")}[shaping]
    gains = draw(st.fixed_dictionaries({}, optional={name: _gains(_NUMBERS) for name in names}))
    plain["shaping"] = draw(st.sampled_from([shaping, {"kind": shaping}])) if not gains else {"kind": shaping, **gains}
    return plain | draw(
        st.fixed_dictionaries(
            {},
            optional={
                "scale": st.sampled_from(["head_width", "length", "none"]),
                "query_key_bias": st.booleans(),
                "query_key_norm": st.sampled_from(["none", "rms", "layer"]),
                "kv_heads": st.sampled_from([None, 1, 2]),
                "value": _PROJECTIONS,
                "output": _PROJECTIONS,
                "query_init": st.sampled_from(["normal", "zero", None]),
            },
        )
    )


@st.composite
def blocks(draw: st.DrawFn) -> Plain:
    """A block."""
    mlp = draw(st.sampled_from(["plain", "gated", "none"]))
    arrangement = draw(st.sampled_from(["sequential", "parallel"])) if mlp != "none" else "sequential"
    norm = draw(st.sampled_from(["rms", "layer", "none"]))
    one_way = arrangement == "parallel" or mlp == "none"
    skips = {
        "mixer": draw(st.sampled_from([0, 1] if one_way else [0, 1, 2])),
        "mlp": 0 if one_way else draw(st.sampled_from([0, 1])),
    }
    gains = ["mixer_branch"]
    gains += ["mixer_skip"] if skips["mixer"] else []
    gains += ["mlp_branch"] if mlp != "none" else []
    gains += ["mlp_skip"] if skips["mlp"] else []
    plain: Plain = {"mixer": draw(attentions()), "arrangement": arrangement, "skips": skips}
    plain["gains"] = draw(st.fixed_dictionaries({}, optional={name: _gains() for name in gains}))
    plain["norm"] = draw(st.sampled_from([norm, {"kind": norm}]))
    if norm != "none":
        places = ["pre"] if arrangement == "parallel" else ["pre", "post"]
        optional: Plain = {"place": st.sampled_from(places), "eps": st.sampled_from([1e-8, 1e-5, 1])}
        plain["norm"] = draw(st.fixed_dictionaries({"kind": st.just(norm)}, optional=optional))
    plain["mlp"] = draw(st.sampled_from([mlp, {"kind": mlp}]))
    if mlp != "none":
        optional = {
            "ratio": st.sampled_from([4, 4.0, 2, 2.5]),
            "activation": st.sampled_from(["relu", "gelu", "silu", "gelu_tanh"]),
            "bias": st.booleans(),
        }
        plain["mlp"] = draw(st.fixed_dictionaries({"kind": st.just(mlp)}, optional=optional))
    return plain | draw(st.fixed_dictionaries({}, optional={"dropout": st.sampled_from([0, 0.0, 0.1])}))


_FAMILIES: list[Plain] = [
    {"family": "decoder"},
    {"family": "encoder"},
    {"family": "encoder", "head": {"pooling": "mean", "hidden": [8, 4]}},
    {"family": "dual_encoder", "head": {"features": "interaction"}},
]


def _agreeing(exceptions: Plain, depth: int) -> Plain:
    """The exceptions without those that set for some layer what one before them sets."""
    layers = {"first": {0}, "last": {depth - 1}, f"0-{depth - 1}": set(range(depth))}
    taken: set[tuple[int, str]] = set()
    kept: Plain = {}
    for selector, patch in exceptions.items():
        sets = {(layer, key) for layer in layers.get(selector) or {int(selector)} for key in patch}
        if not sets & taken:
            taken |= sets
            kept[selector] = patch
    return kept


@st.composite
def models(draw: st.DrawFn) -> Plain:
    """A model whose exceptions and pattern replace whole mixers, or parts that fit beside any block."""
    depth = draw(st.integers(1, 4))
    selectors = ["first", "last", *map(str, range(depth)), f"0-{depth - 1}"]
    patches = st.one_of(
        st.fixed_dictionaries({"mixer": attentions()}),
        st.just({"gains": {"mixer_branch": {"init": 0.5}}}),
        st.just({"norm": {"kind": "none"}}),
        st.sampled_from([{"dropout": 0.25}, {}]),
    )
    exceptions = st.dictionaries(st.sampled_from(selectors), patches, max_size=3)
    plain: Plain = {"depth": depth, "width": 24, "heads": draw(st.sampled_from([1, 2, 3, 4]))}
    plain |= draw(st.sampled_from(_FAMILIES))
    plain |= {"block": draw(blocks()), "exceptions": _agreeing(draw(exceptions), depth)}
    optional: Plain = {
        "positions": st.sampled_from(["learned", "sinusoidal", "rotary", "alibi", "none"]),
        "embedding_scale": st.sampled_from(["none", "sqrt_width"]),
        "pattern": st.lists(patches, max_size=3),
        "tied_head": st.booleans(),
        "final_norm": st.sampled_from(["rms", "layer", "none"]),
        "init_std": st.sampled_from([0.02, 2e-2, 0.1, 1]),
    }
    return plain | draw(st.fixed_dictionaries({}, optional=optional))


def shuffled(draw: st.DrawFn, plain: Any) -> Any:
    """The same data with the keys of every mapping in another order."""
    if isinstance(plain, dict):
        keys = draw(st.permutations(list(plain)))
        return {key: shuffled(draw, plain[key]) for key in keys}
    return [shuffled(draw, item) for item in plain] if isinstance(plain, list) else plain


def respelt(plain: Any) -> Any:
    """The same data with ints as floats, integral floats as ints, and lists as tuples."""
    if isinstance(plain, dict):
        return {key: respelt(value) for key, value in plain.items()}
    if isinstance(plain, list):
        return tuple(respelt(item) for item in plain)
    if isinstance(plain, float):
        return int(plain) if plain.is_integer() else plain
    return float(plain) if isinstance(plain, int) and not isinstance(plain, bool) else plain
