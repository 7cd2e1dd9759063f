"""The settings of a `config.json`, as `transformers` understands them.

Where `transformers` 5 is installed, its own configuration class fills in what the file leaves out, renames older names
and brings rotary settings into one form: what is read here is what its modelling code reads. Without it, the defaults
in `settings.json` are taken (`python -m ablate.trained.hugging_face.settings` writes them from the classes), and a file
that needs more than plain defaults is refused.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib.metadata
import json
import math
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from ablate.errors import DataError
from ablate.extras import missing_packages
from ablate.spec.activations import Activation
from ablate.spec.model import ModelSpec

_STORED = Path(__file__).with_name("settings.json")
_INSTALL = "Install `ablate-blocks[transformers]`, whose configuration classes know what such files mean."
_OLDEST = 5
"""The first version of `transformers` whose classes bring rotary settings into one form."""

ACTIVATIONS: dict[str, Activation] = {
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "quick_gelu": "quick_gelu",
    "relu": "relu",
    "relu2": "relu_squared",
    "sigmoid": "sigmoid",
    "silu": "silu",
    "swish": "silu",
    "tanh": "tanh",
}
"""Their names of nonlinearities to ours."""
THEIR_ACTIVATIONS = {ours: theirs for theirs, ours in reversed(ACTIVATIONS.items())}
"""Our names of nonlinearities to theirs."""

HARMLESS = frozenset({
    "_name_or_path", "architectures", "attn_implementation", "auto_map", "bos_token_id", "chunk_size_feed_forward",
    "classifier_dropout", "cls_token_id", "dtype", "eos_token_id", "finetuning_task", "gradient_checkpointing",
    "id2label", "initializer_range", "label2id", "model_type", "n_ctx", "num_labels", "output_attentions",
    "output_hidden_states", "output_past", "output_router_logits", "pad_token_id", "pretraining_tp", "problem_type",
    "return_dict", "router_aux_loss_coef", "sep_token_id", "task_specific_params", "tokenizer_class", "torch_dtype",
    "torchscript", "transformers_version", "use_cache",
})  # fmt: skip
"""Settings that change no logits in any model."""
_LISTS = ("layer_types", "mlp_layer_types", "no_rope_layers")
"""Lists over layers that a configuration class works out from other settings."""
_NEUTRAL = {"is_causal": True, "per_layer_config": None}
"""Settings of any model that shared code of `transformers` reads, and the value that changes nothing."""


@dataclasses.dataclass(frozen=True, slots=True)
class Fields:
    """What a configuration class declares.

    Attributes:
        defaults: Setting to the value where it is left out.
        names: Other names of settings to those of the class.
        rope: The rotary settings where none are given; empty if it has none.
    """

    defaults: Mapping[str, Any]
    names: Mapping[str, str]
    rope: Mapping[str, Any] = dataclasses.field(default_factory=dict)


class Config:
    """The settings of a model, each under the name that its configuration class has for it.

    Args:
        given: The content of the file.
        fields: What the configuration class declares.
        where: Names the file in messages.
    """

    def __init__(self, values: Mapping[str, Any], given: Mapping[str, Any], fields: Fields, where: str) -> None:
        self._values = values
        self._fields = fields
        self._read: set[str] = set()
        self.given = given
        self.where = where

    def __getitem__(self, name: str) -> Any:
        own = self._fields.names.get(name, name)
        self._read.add(own)
        if own not in self._values:
            remedy = "Take the file that belongs to the weights." if has_classes() else _INSTALL
            raise DataError(f"`{name}` is missing", where=self.where, remedy=remedy)
        return self._values[own]

    def get(self, name: str) -> Any:
        """A setting, or None where there is none."""
        own = self._fields.names.get(name, name)
        self._read.add(own)
        return self._values.get(own)

    def refuse(self, name: str, why: str, got: Any = None) -> DataError:
        """The error for a setting that our models do not have.

        Args:
            why: What is missing here, as a sentence.
            got: Its value, where that is not the value of the setting itself.
        """
        return DataError(
            f"`{self._in_file(name)}`: {why}",
            where=self.where,
            got=repr(self._values.get(self._fields.names.get(name, name)) if got is None else got),
            remedy="Such a model cannot be read; take one with another setting.",
        )

    def _in_file(self, name: str) -> str:
        """The name that the file has for a setting."""
        own = self._fields.names.get(name, name)
        return next((given for given in self.given if self._fields.names.get(given, given) == own), name)

    def _of_rope(self, name: str, key: str, value: Any) -> str:
        """Where the file has a rotary setting: inside of others, or, in an older file, beside them."""
        beside = [one for one, there in self.given.items() if repr(there) == repr(value)]
        return beside[0] if beside and key not in (self.given.get(name) or {}) else f"{name}.{key}"

    def need(self, name: str, value: Any) -> None:
        """Refuse all values of a setting but one.

        Raises:
            DataError: The setting has another value.
        """
        if self[name] != value:
            raise self.refuse(name, f"only {value!r} can be read")

    def activation(self, name: str, source: str = "") -> Activation:
        """A nonlinearity by our name.

        Args:
            source: The setting from which the class works it out where the file leaves it out.

        Raises:
            DataError: We have none like it.
        """
        if not isinstance(self[name], str) or self[name] not in ACTIVATIONS:
            written = name if name in self.given else source or name
            raise self.refuse(written, f"of the nonlinearities {', '.join(ACTIVATIONS)} can be read", got=self[name])
        return ACTIVATIONS[self[name]]

    def layers(self, name: str, *kinds: str) -> list[str]:
        """The kind of each layer.

        Raises:
            DataError: A layer is of a kind that is not one of `kinds`, or there are too few or too many.
        """
        found, depth = self[name], self["num_hidden_layers"]
        if not isinstance(found, list) or len(found) != depth or not all(one in kinds for one in found):
            raise self.refuse(name, f"a list of {depth} of {', '.join(kinds)} can be read")
        return found

    @property
    def longest_input(self) -> int:
        """The longest input in tokens; with dynamic positions, the one that they scale to."""
        longest, rope = self["max_position_embeddings"], self.get("rope_parameters") or {}
        dynamic = [one for one in (rope, *rope.values()) if isinstance(one, dict) and one.get("rope_type") == "dynamic"]
        return int(longest * max(one["factor"] for one in dynamic)) if dynamic else longest

    @property
    def head_width(self) -> int:
        """Width of a head."""
        width = self.get("head_dim")
        return int(self["hidden_size"] // self["num_attention_heads"] if width is None else width)

    def rotary(self, layer_type: str | None = None, *, partial: bool = False) -> dict[str, Any]:
        """The rotary positions, as a position spec.

        Args:
            layer_type: Of which sort of layers, where these differ.
            partial: Whether the model may rotate a share of the channels of a head; others ignore the setting in
                positions without scaling, and cannot be built with it in others.

        Raises:
            DataError: Their frequencies are scaled in a way that we do not have.
        """
        name = "rope_scaling" if self.given.get("rope_scaling") else "rope_parameters"
        rope = self["rope_parameters"]
        if layer_type is not None and isinstance(rope, Mapping):
            rope = rope.get(layer_type)
        if not isinstance(rope, Mapping) or "rope_type" not in rope:
            raise self.refuse(name, "a mapping with `rope_type` and `rope_theta` can be read", got=rope)
        kind = rope["rope_type"]
        if not isinstance(kind, str) or kind not in _SCALINGS:
            raise self.refuse(name, f"of the scalings of positions {', '.join(_SCALINGS)} can be read", got=kind)

        if kind == "dynamic":
            rope = {**rope, "original_max_position_embeddings": self["max_position_embeddings"]}
        original, factor = rope.get("original_max_position_embeddings"), rope.get("factor")
        if factor is None and original and (kind == "longrope" or (kind == "yarn" and "factor" in rope)):
            ratio = self["max_position_embeddings"] / original
            rope = {**rope, "factor": max(1.0, ratio) if kind == "longrope" else ratio}

        def number(key: str, default: float | None = None, *, above: float = 0.0) -> float:
            value = rope.get(key)
            value = default if value is None else value
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not above < value < math.inf:
                raise self.refuse(self._of_rope(name, key, value), f"a number above {above:g} can be read", got=value)
            return value

        share = number("partial_rotary_factor", 1.0)
        if share != 1 and not partial:
            if kind != "default":
                raise self.refuse(f"{name}.partial_rotary_factor", "heads of this model rotate all channels", share)
            share = 1.0
        scaling = _SCALINGS[kind](number, rope)
        if scaling and number("factor") < 1:
            raise self.refuse(f"{name}.factor", "a factor of at least 1 can be read", got=rope["factor"])
        pairs = int(self.head_width * share) // 2
        for key in ("short_factor", "long_factor") if kind == "longrope" else ():
            if not isinstance(rope.get(key), list) or len(rope[key]) != pairs:
                raise self.refuse(f"{name}.{key}", f"a list of {pairs} numbers can be read", got=rope.get(key))
        if kind == "llama3" and scaling["low_frequency"] >= scaling["high_frequency"]:
            raise self.refuse(f"{name}.low_freq_factor", "it must be below `high_freq_factor`", rope["low_freq_factor"])
        if kind == "yarn" and scaling["slow"] > scaling["fast"]:
            raise self.refuse(f"{name}.beta_slow", "it must not be above `beta_fast`", got=rope.get("beta_slow"))
        positions = {"kind": "rotary", "base": float(number("rope_theta", above=1.0)), "fraction": share}
        return {**positions, "scaling": scaling} if scaling else positions

    def check_read(self, inert: Iterable[str]) -> None:
        """Refuse settings that nothing here has read, unless they are known to change no logits.

        Args:
            inert: Settings that change no logits in this model.

        Raises:
            DataError: There is one with another value than its default.
        """
        known = {*self._read, *HARMLESS, *(self._fields.names.get(name, name) for name in inert), "rope_parameters"}
        for name, default in self._fields.defaults.items():
            if name not in known and self._values.get(name, default) != default:
                raise self.refuse(name, f"only {default!r} can be read")
        if self._fields.defaults and not has_classes():
            legacy = {"rope_scaling", "rope_theta"} if "rope_parameters" in self._fields.defaults else set()
            for name in self.given:
                own = self._fields.names.get(name, name)
                if own not in {*known, *self._fields.defaults, *_NEUTRAL, *legacy}:
                    raise DataError(
                        f"it is not known what `{name}` changes", where=self.where, got=repr(self.given[name]),
                        remedy=_INSTALL,
                    )  # fmt: skip


Number = Callable[..., float]


def _yarn(number: Number, rope: Mapping[str, Any]) -> dict[str, Any]:
    factor = number("factor")
    scaling: dict[str, Any] = {
        "kind": "yarn",
        "factor": factor,
        "original_context": number("original_max_position_embeddings"),
        "fast": number("beta_fast") if rope.get("beta_fast") else 32.0,
        "slow": number("beta_slow") if rope.get("beta_slow") else 1.0,
        "whole_pairs": bool(rope.get("truncate", True)),
    }
    if rope.get("attention_factor") is not None:
        scaling["temperature"] = number("attention_factor")
    elif rope.get("mscale") and rope.get("mscale_all_dim"):
        turned, whole = (0.1 * number(name) * math.log(factor) + 1 for name in ("mscale", "mscale_all_dim"))
        scaling["temperature"] = turned / whole
    return scaling


_SCALINGS: dict[str, Callable[[Number, Mapping[str, Any]], dict[str, Any]]] = {
    "default": lambda number, rope: {},
    "linear": lambda number, rope: {"kind": "linear", "factor": number("factor")},
    "llama3": lambda number, rope: {
        "kind": "llama3",
        "factor": number("factor"),
        "low_frequency": number("low_freq_factor"),
        "high_frequency": number("high_freq_factor"),
        "original_context": number("original_max_position_embeddings"),
    },
    "yarn": _yarn,
    "longrope": lambda number, rope: {
        "kind": "longrope",
        "factor": number("factor"),
        "original_context": number("original_max_position_embeddings"),
        "short": rope.get("short_factor"),
        "long": rope.get("long_factor"),
        **({} if rope.get("attention_factor") is None else {"temperature": number("attention_factor")}),
    },
    "dynamic": lambda number, rope: {
        "kind": "dynamic",
        "factor": number("factor"),
        "original_context": number("original_max_position_embeddings"),
    },
}
"""Their scalings of rotary frequencies to ours."""


def to_rope(scaling: Any) -> dict[str, Any]:
    """A scaling of rotary frequencies as `rope_parameters`, which `Config.rotary` reads."""
    if scaling.kind == "none":
        return {"rope_type": "default"}
    names = {
        "factor": "factor",
        "original_context": "original_max_position_embeddings",
        "low_frequency": "low_freq_factor",
        "high_frequency": "high_freq_factor",
        "fast": "beta_fast",
        "slow": "beta_slow",
        "whole_pairs": "truncate",
        "temperature": "attention_factor",
        "short": "short_factor",
        "long": "long_factor",
    }
    values = {names[name]: value for name, value in scaling.model_dump().items() if name in names and value is not None}
    return {"rope_type": scaling.kind, **values}


def layer_types(spec: ModelSpec) -> list[str]:
    """The kind of each layer, as `Config.layers` reads it."""
    return ["full_attention" if layer.window is None else "sliding_attention" for layer in spec.blocks]


def to_ropes(spec: ModelSpec) -> dict[str, Any]:
    """The rotary positions of each kind of layer as `rope_parameters`, which `Config.rotary` reads."""
    found: dict[str, Any] = {}
    for kind, layer in zip(layer_types(spec), spec.blocks, strict=True):
        positions: Any = layer.positions or spec.positions
        found[kind] = {**to_rope(positions.scaling), "rope_theta": positions.base}
    return found


@functools.cache
def has_classes() -> bool:
    """Whether the configuration classes of `transformers` can be asked."""
    if missing_packages("transformers"):
        return False
    return int(importlib.metadata.version("transformers").split(".")[0]) >= _OLDEST


def resolve(plain: Mapping[str, Any], where: str) -> Config:
    """The settings of a `config.json` whose `model_type` is known.

    Raises:
        DataError: They need `transformers`, which is not installed.
        Exception: The configuration class refuses them; it raises errors of many types.
    """
    kind = plain["model_type"]
    for name, neutral in _NEUTRAL.items():
        if plain.get(name, neutral) != neutral:
            raise Config({}, plain, Fields({}, {}), where).refuse(name, f"only {neutral!r} can be read", plain[name])
    if not has_classes() or kind not in _stored_fields():
        fields = _stored_fields().get(kind, Fields({}, {}))
        return Config(_filled_in(plain, fields, where), plain, fields, where)
    config_class = _config_class(kind)
    with _Quiet():
        config = config_class.from_dict(json.loads(json.dumps(plain)))
        if getattr(config, "rope_parameters", None):
            config.standardize_rope_params()  # as the modelling code does, now that all settings are there
    return Config(vars(config), plain, _fields_of_class(config_class), where)


def defaults_taken(plain: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that a `config.json` whose `model_type` is known leaves out, with their defaults."""
    kind = plain["model_type"]
    fields = _fields_of_class(_config_class(kind)) if has_classes() else _stored_fields().get(kind, Fields({}, {}))
    given = {fields.names.get(name, name) for name in plain}
    theirs = {ours: name for name, ours in fields.names.items()}
    return {theirs.get(name, name): default for name, default in fields.defaults.items() if name not in given}


def _filled_in(plain: Mapping[str, Any], fields: Fields, where: str) -> dict[str, Any]:
    """The settings of a file with the defaults of the class where they are left out.

    Raises:
        DataError: The configuration class of `transformers` would do more, or a setting is not of its type.
    """
    given = {fields.names.get(name, name): value for name, value in plain.items()}
    for name, value in given.items():
        default = fields.defaults.get(name)
        allowed = (int, float) if isinstance(default, float) else type(default)
        plain_value = isinstance(default, (bool, int, float)) and isinstance(value, (str, bool, int, float))
        if plain_value and (not isinstance(value, allowed) or isinstance(value, bool) != (allowed is bool)):
            raise DataError(
                f"`{name}` must be of the type of {default!r}", where=where, got=repr(value),
                remedy="Correct it, or install `ablate-blocks[transformers]`, which may allow it.",
            )  # fmt: skip
    values = {**fields.defaults, **given}
    if values.get("num_key_value_heads", 0) is None:
        values["num_key_value_heads"] = values["num_attention_heads"]
    for name in _LISTS:
        if values.get(name, ()) is None:
            del values[name]  # the class works it out from others
    if "rope_parameters" in fields.defaults:
        older = values.pop("rope_scaling", None) or values.get("partial_rotary_factor")
        declared, rope = "original_max_position_embeddings" in fields.defaults, values["rope_parameters"]
        plain_rope = isinstance(rope, Mapping) and rope.get("rope_type") == "default"
        if older or ("original_max_position_embeddings" in values and not (declared and plain_rope)):
            raise DataError("its rotary positions are written in an older form", where=where, remedy=_INSTALL)
        theta = values.pop("rope_theta", None)
        if rope is None and theta is not None and fields.rope.get("rope_type") == "default":
            rope = {"rope_type": "default", "rope_theta": theta}
        if rope is None:
            del values["rope_parameters"]  # the class has other ones
        else:
            share = {name: one for name, one in fields.rope.items() if name == "partial_rotary_factor"}
            values["rope_parameters"] = {**share, **rope} if isinstance(rope, Mapping) else rope
    return values


def _config_class(kind: str) -> Any:
    from transformers import CONFIG_MAPPING

    return CONFIG_MAPPING[kind]


def _fields_of_class(config_class: Any) -> Fields:
    names = dict(config_class.attribute_map)
    declared = {
        field.name: None if field.default is dataclasses.MISSING else field.default
        for field in dataclasses.fields(config_class)
    }
    return Fields({names.get(name, name): default for name, default in declared.items()}, names)


@functools.cache
def _stored_fields() -> dict[str, Fields]:
    plain = json.loads(_STORED.read_text(encoding="utf-8"))
    return {kind: Fields(one["defaults"], one["names"], one["rope"]) for kind, one in plain.items()}


def declared(kind: str) -> frozenset[str]:
    """The settings that the configuration class of a model declares, by the names that `transformers` writes."""
    return frozenset(_stored_fields()[kind].defaults)


class _Quiet:
    """`transformers` says nothing meanwhile."""

    def __enter__(self) -> None:
        from transformers.utils import logging

        self._before = logging.get_verbosity()
        logging.set_verbosity(100)

    def __exit__(self, *error: object) -> None:
        from transformers.utils import logging

        logging.set_verbosity(self._before)


def stored_text(kinds: Iterable[str]) -> str:
    """The content of `settings.json`: the fields of the configuration classes of these models."""

    def one(kind: str) -> dict[str, Any]:
        fields = _fields_of_class(_config_class(kind))
        defaults = {name: value for name, value in fields.defaults.items() if name not in HARMLESS - {"pad_token_id"}}
        with _Quiet():
            rope = getattr(_config_class(kind)(), "rope_parameters", None) or {}
        return {"defaults": json.loads(json.dumps(defaults)), "names": dict(fields.names), "rope": dict(rope)}

    return json.dumps({kind: one(kind) for kind in kinds}, indent=1, sort_keys=True) + "\n"


def paths(plain: Mapping[str, Any], place: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The path of every setting, those inside others first."""
    for name, value in plain.items():
        if isinstance(value, Mapping):
            yield from paths(value, (*place, name))
        yield (*place, name)


def main() -> None:
    """Print the content of `settings.json` for every architecture that it has, and for those that are named."""
    sys.stdout.write(stored_text(sorted({*_stored_fields(), *sys.argv[1:]})))


if __name__ == "__main__":
    main()
