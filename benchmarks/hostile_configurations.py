"""Configurations of models of `transformers`, drawn at random and read by `ablate import`, against `transformers`.

`python -m benchmarks hostile --only configurations [--cases N] [--seed N]`. Each case is a small model of a random
type, one to four of whose settings are changed, left out, added, or broken. Its weights are written by `transformers`,
beside the settings as they were drawn. It must be refused by the name of a setting, or be read as a model with the same
logits in double precision.
"""

from __future__ import annotations

import dataclasses
import json
import math
import random
import re
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch

from ablate.errors import AblateError
from ablate.trained.hugging_face.check import compare
from ablate.trained.hugging_face.checkpoint import CONFIG, Imported, read_config, read_tensors
from ablate.trained.hugging_face.settings import ACTIVATIONS
from tests.small_models import CASES

VERDICTS = ("exact", "refused", "unnamed", "unbuilt", "wrong", "tracebacks")
"""Exact; refused by name; refused without a name; read, though `transformers` cannot run it; with other logits."""
FAULTS = ("unnamed", "wrong", "tracebacks")
TOLD = 25
"""After so many cases the counts are printed: a case takes a second or more."""

_ACTIVATIONS = [*ACTIVATIONS, "linear", "mish", "gelu_fast", "leaky_relu", "swoosh"]
_BROKEN: list[Any] = ["3", -1, None, 1.5, 0, True, [], {}, "x", float("nan"), float("inf"), [1], {"a": 1}]
_SMALL: dict[str, list[Any]] = {
    "eps": [1e-12, 1e-6, 1e-5, 1e-3, 1e-2],
    "drop": [0.0, 0.1],
    "layer_types": [["full_attention"], ["sliding_attention"], ["linear_attention"],
                    ["full_attention", "sliding_attention"], ["linear_attention", "full_attention"], ["chunked"]],
    "mlp_layer_types": [["dense"], ["sparse"], ["dense", "sparse"]],
    "no_rope_layers": [[0], [1], [0, 1], [1, 1, 0]],
    "heads": [1, 2, 3, 4],
    "layers": [1, 2, 3, 5],
    "experts": [1, 2, 4, 8],
    "window": [None, 1, 2, 3, 4, 6, 8],
    "size": [8, 12, 16, 20, 24, 25],
    "dim": [2, 4, 5, 6, 8],
    "rank": [None, 4, 6],
    "theta": [50.0, 10000.0, 500000.0],
    "softcapping": [None, 1.0, 3.0],
    "factor": [0.5, 1.0, 2.5],
    "token_id": [None, 0, 1, 5],
    "vocab": [23, 30],
    "positions": [11, 16, 40],
    "position_embeddings": [13, 16, 40],
}  # fmt: skip


def _scaling(draw: random.Random, key: str) -> dict[str, Any]:
    """Rotary settings of some kind, whole or with something missing."""
    kind = draw.choice(["default", "linear", "llama3", "yarn", "yarn", "dynamic", "longrope", "proportional"])
    rope: dict[str, Any] = {key: kind}
    if kind != "default" or draw.random() < 0.2:
        rope["factor"] = draw.choice([1.0, 2, 4.0, 8.0, 0.5, None])
    if kind == "llama3":
        rope |= {"low_freq_factor": draw.choice([1.0, 2.0, 8.0]), "high_freq_factor": draw.choice([4.0, 8.0])}
    if kind == "longrope":
        pairs = draw.choice([2, 3, 3, 5])
        rope |= {f"{name}_factor": [draw.choice([1.0, 1.5, 3]) for _ in range(pairs)] for name in ("short", "long")}
    if kind in {"llama3", "yarn", "longrope"} and draw.random() < 0.7:
        rope["original_max_position_embeddings"] = draw.choice([4, 8, 20])
    for name, values in (
        ("rope_theta", [100.0, 10000.0, 5e5]),
        ("beta_fast", [None, 4.0, 32.0, 1.0]),
        ("beta_slow", [None, 1.0, 2.0, 32.0]),
        ("mscale", [None, 0.7, 1.0]),
        ("mscale_all_dim", [None, 0.5, 1.0, 0]),
        ("attention_factor", [None, 1.0, 1.3]),
        ("truncate", [True, False, None]),
        ("partial_rotary_factor", [1.0, 0.5, 0.25]),
    ):
        if draw.random() < (0.5 if name == "rope_theta" else 0.15):
            rope[name] = draw.choice(values)
    for name in list(rope):
        if draw.random() < 0.04:
            del rope[name]
    return rope


def _rotary(draw: random.Random) -> dict[str, Any]:
    """Older and newer settings of rotary positions, one or several."""
    changes: dict[str, Any] = {}
    if draw.random() < 0.5:
        changes["rope_scaling"] = draw.choice([None, _scaling(draw, draw.choice(["type", "rope_type"]))])
    if draw.random() < 0.5:
        changes["rope_theta"] = draw.choice([100.0, 10000.0, 5e5])
    if draw.random() < 0.5:
        nested = {kind: _scaling(draw, "rope_type") for kind in ("full_attention", "sliding_attention")}
        one = _scaling(draw, draw.choice(["type", "rope_type", "rope_type"]))
        changes["rope_parameters"] = draw.choice([None, one, nested])
    if draw.random() < 0.2:
        changes["partial_rotary_factor"] = draw.choice([1.0, 0.5, 0.25])
    if draw.random() < 0.2:
        changes["original_max_position_embeddings"] = draw.choice([4, 8, 20])
    return changes


_EXTRA: dict[str, list[Any]] = {
    "attn_implementation": ["eager", "sdpa"],
    "attention_bias": [True, False],
    "mlp_bias": [True, False],
    "dense_act_fn": ["gelu_new", "relu", "silu"],
    "first_k_dense_replace": [0, 1, 2],
    "full_attention_interval": [1, 2, 3],
    "global_attn_every_n_layers": [1, 2],
    "global_rope_theta": [100.0, 5000.0],
    "head_dim": [2, 4, 5, 6, 8, None],
    "is_causal": [True, False],
    "is_gated_act": [True, False],
    "linear_attn_config": [
        {}, None, {"full_attn_layers": [2], "kda_layers": [1, 3, 4, 5], "num_heads": 2, "head_dim": 4},
    ],
    "local_rope_theta": [100.0, 5000.0],
    "n_positions": [11, 16],
    "per_layer_config": [None, {"0": {"hidden_act": "relu"}}],
    "position_embedding_type": ["absolute", "relative_key"],
    "return_dict": [True, False],
    "rope_local_base_freq": [100.0, 5000.0],
    "scale_decoder_outputs": [True, False],
    "sliding_window": [None, 2, 3, 4],
    "sliding_window_pattern": [1, 2, 3],
    "tie_word_embeddings": [True, False],
    "torch_dtype": ["float32", "bfloat16"],
    "use_cache": [True, False],
    "use_sliding_window": [True, False],
}  # fmt: skip
"""Settings of files that are in use, whether or not a configuration class declares them."""


def _value(draw: random.Random, name: str, default: Any) -> Any:
    """Another value of a setting, of the right type and small."""
    if "act" in name.split("_") or "activation" in name.split("_"):
        return draw.choice(_ACTIVATIONS)
    if isinstance(default, bool):
        return not default
    for part in sorted(_SMALL, key=len, reverse=True):
        if part in name:
            return draw.choice(_SMALL[part])
    if isinstance(default, float):
        return draw.choice([0.5, 1.0, 2.0])
    if isinstance(default, int):
        return draw.choice([0, 1, 2, 3, 4, 8])
    return draw.choice([None, 1, 2, "x"])


_KINDS = sorted({case.kind for case in CASES.values()})
_TEXTS = {"architectures", "dtype", "id2label", "label2id", "transformers_version"}


def drawn(number: int, draw: random.Random) -> tuple[dict[str, Any], list[str]]:
    """A configuration, and the names of what was changed in it.

    Even numbers go through all fields of all types in turn, one at a time; odd ones change several at random.
    """
    from transformers import CONFIG_MAPPING

    turn, place = divmod(number // 2, len(_KINDS))
    kind = draw.choice(_KINDS) if number % 2 else _KINDS[place]
    case = draw.choice([one for one in CASES.values() if one.kind == kind])
    plain: dict[str, Any] = {"model_type": kind, **json.loads(json.dumps(case.settings))}
    config_class = CONFIG_MAPPING[kind]
    fields = {field.name: field.default for field in dataclasses.fields(config_class)}
    own = sorted(fields.keys() - _TEXTS)
    before = dict(plain)
    if number % 2:
        if "rope_parameters" in fields and draw.random() < 0.5:
            plain.pop("rope_parameters", None)
        for _ in range(draw.randint(1, 4)):
            _change(draw, plain, fields, config_class.attribute_map)
    else:
        name = own[turn % len(own)]
        if name == "rope_parameters":
            plain[name] = _scaling(draw, "rope_type")
        else:
            plain[name] = _value(draw, name, fields[name])
    depth = plain.get("num_hidden_layers")
    for name in ("layer_types", "mlp_layer_types", "no_rope_layers"):
        if isinstance(plain.get(name), list) and plain[name] and isinstance(depth, int) and draw.random() < 0.9:
            plain[name] = (plain[name] * max(1, depth))[: max(0, depth)]
    changed = [name for name in {**before, **plain} if before.get(name, _BROKEN) != plain.get(name, _BROKEN)]
    return plain, changed


def _change(draw: random.Random, plain: dict[str, Any], fields: Mapping[str, Any], aliases: Mapping[str, str]) -> None:
    """Change one setting in some way: another value, under another name, of an older file, left out, or broken."""
    own, way = sorted(fields.keys() - _TEXTS), draw.random()
    if way < 0.5:
        name = draw.choice(own)
        plain[name] = _value(draw, name, fields[name])
    elif way < 0.6:
        name = draw.choice(sorted(aliases) or own)
        plain[name] = _value(draw, name, fields.get(name, fields.get(aliases.get(name, name))))
    elif way < 0.75:
        name = draw.choice(sorted(_EXTRA))
        plain[name] = draw.choice(_EXTRA[name])
    elif way < 0.88 and "rope_parameters" in fields:
        plain |= _rotary(draw)
    elif way < 0.93:
        small = [name for name, value in plain.items() if not isinstance(value, int) and name != "model_type"]
        if small:
            del plain[draw.choice(sorted(small))]
    else:
        plain[draw.choice([*own, *_EXTRA])] = draw.choice(_BROKEN)


def tried(plain: Mapping[str, Any], folder: Path) -> tuple[str, str]:
    """The verdict on a configuration, and what is to be said of it."""
    folder.mkdir(parents=True)
    (folder / CONFIG).write_text(json.dumps(plain), encoding="utf-8")
    try:
        imported = read_config(folder)
    except AblateError as error:
        return _refusal(error, plain), str(error)
    except Exception as error:
        return "tracebacks", f"{type(error).__name__}: {error}"
    try:
        written(imported, plain, folder)
    except Exception as error:  # their code, with settings that it does not allow
        return "unbuilt", f"{type(error).__name__}: {error}"
    try:
        imported = read_config(folder)  # of T5, weights decide too
        read_tensors(folder, imported)
        compared = compare(folder, imported)
    except AblateError as error:
        return ("unbuilt" if "`transformers` cannot" in str(error) else _refusal(error, plain)), str(error)
    except Exception as error:
        return "tracebacks", f"{type(error).__name__}: {error}"
    return ("exact" if compared.same else "wrong"), f"logits differ by {compared.difference:.2g}"


def _refusal(error: AblateError, plain: Mapping[str, Any]) -> str:
    quoted = {name.split(".")[-1] for name in re.findall(r"`([\w.]+)", str(error))}
    return "refused" if quoted & _names(plain) else "unnamed"


def _names(plain: Mapping[str, Any]) -> set[str]:
    """The settings of a configuration, and those that its class adds."""
    from transformers import CONFIG_MAPPING

    inside = {name for value in plain.values() if isinstance(value, Mapping) for name in _inside(value)}
    return {*plain, *inside, *(field.name for field in dataclasses.fields(CONFIG_MAPPING[plain["model_type"]]))}


def _inside(plain: Mapping[str, Any]) -> Iterator[str]:
    for name, value in plain.items():
        yield name
        if isinstance(value, Mapping):
            yield from _inside(value)


def written(imported: Imported, plain: Mapping[str, Any], folder: Path) -> None:
    """Let `transformers` write random weights of a model of these settings, and leave the settings as they are."""
    import transformers

    config = transformers.CONFIG_MAPPING[plain["model_type"]].from_dict(json.loads(json.dumps(plain)))
    config._attn_implementation, config._experts_implementation = "eager", "eager"
    model = getattr(transformers, imported.architecture.auto_class).from_config(config, dtype=torch.float32)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.3 * torch.randn(parameter.shape, generator=generator)
        for name, choice in model.named_buffers():
            if name.endswith("e_score_correction_bias"):
                choice += torch.randn(choice.shape, generator=generator)
    model.save_pretrained(folder)
    (folder / CONFIG).write_text(json.dumps(plain), encoding="utf-8")


def walk(cases: int, seed: int, folder: Path, tell: Callable[[str], None], end: float = math.inf) -> dict[str, int]:
    """Try so many configurations, or as many as there is time for.

    Args:
        cases: How many.
        seed: The same seed gives the same configurations.
        folder: Where they are written; those that end badly stay there.
        tell: Gets a line for each that is neither exact nor refused by name, when it is met, and the counts every
            `TOLD` cases.
        end: When to stop, by `time.monotonic`.

    Returns:
        How many had which verdict.
    """
    import transformers

    logging: Any = transformers.utils.logging
    logging.set_verbosity(100)
    logging.disable_progress_bar()
    torch.set_num_threads(1)
    counts, begun = dict.fromkeys(VERDICTS, 0), time.monotonic()
    for case in range(cases):
        if time.monotonic() > end:
            break
        if case and case % TOLD == 0:
            tell(f"{case:,} of {cases:,} in {time.monotonic() - begun:.0f} s: {in_words(counts)}")
        plain, changed = drawn(case, random.Random(f"{seed} {case}"))
        place = folder / str(case)
        verdict, said = tried(plain, place)
        counts[verdict] += 1
        if verdict in {"exact", "refused"}:
            shutil.rmtree(place)
        else:
            settings = {name: plain.get(name, "left out") for name in changed}
            tell(f"{verdict}: {place}: {plain['model_type']} {json.dumps(settings)}: {said}"[:600])
    return counts


def in_words(counts: Mapping[str, int]) -> str:
    """The counts of verdicts on one line."""
    return ", ".join(f"{name} {count:,}" for name, count in counts.items())
