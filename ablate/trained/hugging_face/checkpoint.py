"""A model of `transformers` in a folder: `config.json`, and weights in safetensors files."""

from __future__ import annotations

import copy
import functools
import itertools
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import torch
from pydantic import ValidationError
from pydantic_core import from_json
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from ablate.errors import DataError
from ablate.locations import check_regular, read_file
from ablate.nn.model import outline
from ablate.spec.model import ModelSpec
from ablate.spec.sentences import describe
from ablate.trained.hugging_face.architecture import Architecture, architectures
from ablate.trained.hugging_face.settings import Config, defaults_taken, paths, resolve

CONFIG = "config.json"
SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"
_PICKLED = ("*.bin", "*.pt", "*.pth", "*.ckpt", "*.h5", "*.msgpack")


@dataclass(frozen=True, slots=True)
class Imported:
    """What a `config.json` says, in our words.

    Attributes:
        architecture: The sort of model.
        model: The model section of a space.
        spec: The same, validated.
        vocabulary: Number of token ids V.
        context: The longest input in tokens.
    """

    architecture: Architecture
    config: Config
    model: dict[str, Any]
    spec: ModelSpec
    vocabulary: int
    context: int


def read_config(folder: Path) -> Imported:
    """What the `config.json` of a folder says, and, where they count more than it does, the weights beside it.

    Raises:
        DataError: There is none, it is broken, or it describes a model that cannot be read.
    """
    plain: Mapping[str, Any] = _json(folder / CONFIG, "the folder of a model of `transformers`")
    architecture = architectures().get(str(plain.get("model_type")))
    if architecture is not None:
        with suppress(DataError), _Shards(folder) as shards:  # a reader of weights reports missing ones
            plain = architecture.settled(plain, shards)
    return understand(plain, str(folder / CONFIG))


def understand(plain: Mapping[str, Any], where: str) -> Imported:
    """What the content of a `config.json` says.

    Args:
        where: Names the file in messages.

    Raises:
        DataError: It describes a model that cannot be read.
    """
    known, kind = architectures(), plain.get("model_type")
    if not isinstance(kind, str) or kind not in known:
        alike = [name for name in known if _bare(name) == _bare(str(kind))]
        raise DataError(
            "models of this `model_type` cannot be read",
            where=where,
            expected=f"one of {', '.join(known)}",
            got=repr(kind),
            remedy=f"Write `{alike[0]}`." if alike else "`ablate kinds` lists the parts that make a model here.",
        )
    if plain.get("quantization_config"):
        raise DataError(
            "its weights are quantised",
            where=where,
            expected="weights in a float type",
            remedy="Save the model with its weights dequantised (`transformers`, `from_pretrained`, `dequantize`).",
        )
    for name, value in plain.items():
        most = next((most for parts, most in _MOST if any(part in name for part in parts)), _LARGEST)
        if isinstance(value, int) and abs(value) > most:
            raise DataError(
                f"`{name}` is too large for a model",
                where=where,
                expected=f"at most {most:,}",
                got=str(value)[:40],
                remedy="Restore the file from a copy.",
            )
    try:
        return _understood(plain, where)
    except DataError:
        raise
    except Exception as error:  # the configuration classes of `transformers` raise errors of many types
        why = _reason(error)
    named = [path[-1] for path in paths(plain) if re.search(_as_written(path[-1]), why, re.IGNORECASE)]
    blamed = (
        (named if "for field" in why else [])
        or _settings_to_blame(plain, where, 1)
        or named
        or _settings_to_blame(plain, where, 2)
    )
    blamed = blamed or list(_settings_mentioned(plain, where, why))
    names = " and ".join([*(f"`{name}`" for name in dict.fromkeys(blamed)), *_defaults_blamed(plain, where, why)])
    raise DataError(
        f"{names or 'its settings'}: this is not a valid model ({why})",
        where=where,
        remedy=f"Take the `{CONFIG}` that belongs to the weights, or correct it.",
    )


_MOST = ((("layer", "experts"), 10_000), (("dim", "size", "rank", "heads", "embd"), 2**24))
"""Parts of names of settings, and the largest value of such a setting."""
_LARGEST = 2**40


def _as_written(name: str) -> str:
    """The pattern of a setting in a sentence, which may have spaces in its name."""
    return rf"\b{re.escape(name).replace('_', '[_ ]')}\b"


def _reason(error: Exception) -> str:
    """Why settings make no model, on one line."""
    if isinstance(error, ValidationError):
        (path, sentence), *_ = describe(error)
        return f"`model.{'.'.join(map(str, path))}`: {sentence}"
    said = str(error.args[0]) if isinstance(error, KeyError) and error.args else str(error)
    return " ".join(line.strip() for line in said.splitlines()) or type(error).__name__


def _bare(name: str) -> str:
    return "".join(char for char in name.casefold() if char.isalnum())


def _understood(plain: Mapping[str, Any], where: str) -> Imported:
    architecture = architectures()[plain["model_type"]]
    config = resolve(plain, where)
    model = architecture.model(config)
    spec = ModelSpec.model_validate(model)
    vocabulary, context = config["vocab_size"], architecture.context(config)
    for name, size in (("vocab_size", vocabulary), ("max_position_embeddings", context)):
        if not isinstance(size, int) or isinstance(size, bool) or size < 1:
            raise config.refuse(name, "a whole number of at least 1 can be read", got=size)
    architecture.tied_names(config)
    config.check_read(architecture.inert)
    spec.check_context(context)
    return Imported(architecture, config, model, spec, vocabulary, context)


def _settings_to_blame(plain: Mapping[str, Any], where: str, together: int) -> list[str]:
    """The settings, so many together, without which, or with 1 in whose place, the others make a model."""
    blamed: list[str] = []
    for places in itertools.combinations(paths(plain), together):
        names = [".".join(path) for path in places]
        if any(inside.startswith(f"{name}.") for inside in blamed for name in names):
            continue  # what is inside of it is named already
        if any(_makes_a_model(_without(plain, places, one), where) for one in (False, True)):
            blamed += names
            if together > 1:
                break
    return blamed


def _settings_mentioned(plain: Mapping[str, Any], where: str, why: str) -> Iterator[str]:
    """The settings whose value the reason has, and without which it is another: where several are wrong at once."""
    for path in paths(plain):
        value = functools.reduce(lambda inner, key: inner[key], path, plain)
        if isinstance(value, int | float | str) and re.search(rf"(?<![\w.]){re.escape(str(value))}(?![\w.])", why):
            try:
                _understood(_without(plain, (path,), one=False), where)
            except Exception as error:
                if _reason(error) == why:
                    continue
            yield ".".join(path)


def _defaults_blamed(plain: Mapping[str, Any], where: str, why: str) -> Iterator[str]:
    """The settings that are left out, whose default the reason names, and with 1 in whose place there is a model."""
    for name, default in defaults_taken(plain).items():
        said = isinstance(default, int) and default > 1 and re.search(rf"\b{default}\b", why)
        if said and _makes_a_model({**plain, name: 1}, where):
            yield f"`{name}` ({default} where it is left out)"


def _without(plain: Mapping[str, Any], places: Iterable[tuple[str, ...]], one: bool) -> dict[str, Any]:
    """The settings without those at some places, or with 1 there."""
    changed = copy.deepcopy(dict(plain))
    for path in places:
        home: Any = functools.reduce(lambda inner, key: inner[key], path[:-1], changed)
        if one:
            home[path[-1]] = 1
        else:
            home.pop(path[-1], None)
    return changed


def _makes_a_model(plain: Mapping[str, Any], where: str) -> bool:
    try:
        _understood(plain, where)
    except Exception:  # see `understand`
        return False
    return True


def read_tensors(folder: Path, imported: Imported, dtype: torch.dtype = torch.float32) -> dict[str, Tensor]:
    """The weights of a folder under our names, as the `state_dict` of a pack of one.

    Args:
        imported: What its `config.json` says.

    Raises:
        DataError: Weights are missing, broken, no safetensors, or others than `config.json` says.
    """
    with _Shards(folder) as shards:
        tensors = to_ours(shards, imported, dtype)
    _check_fit(outline(imported.spec, vocabulary=imported.vocabulary, context=imported.context), tensors, str(folder))
    return tensors


def to_ours(theirs: Mapping[str, Tensor], imported: Imported, dtype: torch.dtype = torch.float32) -> dict[str, Tensor]:
    """Their tensors under our names, [1, ...].

    Raises:
        DataError: Some are missing, have another shape, have no place in the model, or differ from those that they are
            tied to.
    """
    architecture, config = imported.architecture, imported.config
    named = {architecture.tensor_name(_full_name(name, theirs, architecture)): name for name in theirs}
    if len(named) < len(theirs):
        twice = min(set(theirs) - set(named.values()))
        raise DataError(
            f"the tensor `{twice}` is there under an older name and a newer one",
            where=str(Path(config.where).parent),
            remedy="Remove one of the two.",
        )
    tied = architecture.tied_names(config)
    ours: dict[str, Tensor] = {}
    used: set[str] = set()
    for link in architecture.links(config):
        values = []
        for name in link.theirs:
            source = name if name in named else tied.get(name, name)
            if source not in named:
                raise DataError(
                    f"the weights have no tensor `{name}`",
                    where=str(Path(config.where).parent),
                    remedy=f"Check that the weights belong to this `{CONFIG}`, and that all files are there.",
                )
            used.add(source)
            values.append(theirs[named[source]].to(dtype))
            if not bool(torch.isfinite(values[-1]).all()):
                raise DataError(
                    f"the tensor `{name}` holds values that are not finite numbers",
                    where=str(Path(config.where).parent),
                    remedy="Restore the weights from a copy, or take an earlier checkpoint of the model.",
                )
        try:
            made = link.conversion.to_ours(tuple(values))
        except (RuntimeError, IndexError) as error:
            raise DataError(
                f"the tensors {', '.join(link.theirs)} have other shapes than `{CONFIG}` says "
                f"({str(error).splitlines()[0]})",
                where=str(Path(config.where).parent),
                remedy=f"Check that the weights belong to this `{CONFIG}`.",
            ) from None
        ours |= {name: one.unsqueeze(0).contiguous() for name, one in zip(link.ours, made, strict=True)}
    left = set()
    for name in named.keys() - used:
        if name in tied:
            _check_tie(name, tied[name], theirs, named, config)
        elif not any(fnmatch(name, pattern) for pattern in architecture.unused):
            left.add(name)
    if left:
        raise DataError(
            f"{len(left)} of the weights' tensors have no place in the model, such as `{min(left)}`",
            where=str(Path(config.where).parent),
            remedy=f"Check that the weights belong to this `{CONFIG}`.",
        )
    return ours


def to_theirs(ours: Mapping[str, Tensor], imported: Imported) -> dict[str, Tensor]:
    """Our tensors [1, ...] under their names, as their files have them; ties are left out."""
    tied = imported.architecture.tied_names(imported.config)
    theirs: dict[str, Tensor] = {}
    for link in imported.architecture.links(imported.config):
        made = link.conversion.to_theirs(tuple(ours[name][0] for name in link.ours))
        theirs |= {
            name: one.clone(memory_format=torch.contiguous_format)
            for name, one in zip(link.theirs, made, strict=True)
            if name not in tied
        }
    return theirs


def load_tensors(model: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    """Give a pack of one the tensors of `to_ours`; fixed gains, which those do not have, stay as they are.

    Raises:
        DataError: The model is another one.
    """
    _check_fit(model, tensors, "weights of a model of `transformers`")
    model.load_state_dict(dict(tensors), strict=False)


def _check_fit(model: nn.Module, tensors: Mapping[str, Tensor], where: str) -> None:
    known, trained = model.state_dict(), {name for name, _ in model.named_parameters()}
    odd = sorted({*(tensors.keys() - known.keys()), *(trained - tensors.keys())})
    odd = odd or sorted(name for name, tensor in tensors.items() if tensor.shape != known[name].shape)
    if odd:
        expected, got = (str(list(one[odd[0]].shape)) if odd[0] in one else "none" for one in (known, tensors))
        raise DataError(
            f"the weights do not fit the model, first at `{odd[0]}`",
            where=where,
            expected=f"a tensor of shape {expected}",
            got=got,
            remedy=f"Take the `{CONFIG}` that belongs to them, with its vocabulary and context.",
        )


def _full_name(name: str, theirs: Mapping[str, Tensor], architecture: Architecture) -> str:
    """The name of a tensor in a file of the whole model, where the file may be of its body alone."""
    whole = any(other.startswith(architecture.prefix) for other in theirs)
    return name if whole or not architecture.prefix else architecture.prefix + name


def _check_tie(name: str, twin: str, theirs: Mapping[str, Tensor], named: Mapping[str, str], config: Config) -> None:
    """Refuse a tensor that is not equal to the one that it is tied to."""
    if not torch.equal(theirs[named[name]], theirs[named[twin]]):
        raise DataError(
            f"the tensor `{name}` differs from `{twin}`, to which `{CONFIG}` ties it",
            where=str(Path(config.where).parent),
            expected="equal tensors, or one of them",
            got="two tensors of different values",
            remedy=f"Set `tie_word_embeddings: false` in `{CONFIG}` if the model has both, or save one of them.",
        )


_MOST_JSON = 64 << 20
"""Bytes of an index of weights, which has a line for each tensor; a configuration has a few kB."""


def _json(path: Path, what: str) -> dict[str, Any]:
    if not path.exists():
        raise DataError(
            f"there is no `{path.name}`", where=str(path.parent), expected=what, remedy="Name the folder that has it."
        )
    try:
        plain = _with_numbers(from_json(read_file(path, _MOST_JSON, DataError, noun=what)))
    except ValueError as error:
        raise DataError(f"this cannot be read ({error})", where=str(path), remedy="Restore it from a copy.") from None
    if not isinstance(plain, dict):
        raise DataError("this is not a mapping", where=str(path), remedy="Restore it from a copy.")
    return plain


def _with_numbers(plain: Any) -> Any:
    """Plain data with numbers that JSON does not have, written as `{"__float__": "Infinity"}`."""
    if isinstance(plain, list):
        return [_with_numbers(item) for item in plain]
    if not isinstance(plain, dict):
        return plain
    if plain.keys() == {"__float__"} and isinstance(plain["__float__"], str):
        return float(plain["__float__"])
    return {name: _with_numbers(item) for name, item in plain.items()}


class _Shards(Mapping[str, Tensor]):
    """The tensors of the safetensors files of a folder, each read when it is looked up."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._files: list[Any] = []
        self._home: dict[str, Any] = {}

    def __enter__(self) -> _Shards:
        for file in self._names():
            path = self._folder / file
            if not path.is_file():
                raise DataError(
                    f"`{INDEX}` names a file that is not there",
                    where=str(path),
                    remedy="Download it, or copy the whole folder.",
                )
            check_regular(path, DataError)
            try:
                opened: Any = safe_open(path, framework="pt")
            except (SafetensorError, OSError) as error:
                raise DataError(
                    f"this safetensors file cannot be read ({str(error).splitlines()[0]})",
                    where=str(path),
                    remedy="Restore it from a copy.",
                ) from None
            self._files.append(opened.__enter__())
            self._home |= dict.fromkeys(opened.keys(), opened)
        return self

    def __exit__(self, *error: object) -> None:
        for file in self._files:
            file.__exit__(*error)

    def _names(self) -> list[str]:
        if (self._folder / SINGLE).is_file():
            return [SINGLE]
        if (self._folder / INDEX).is_file():
            index = _json(self._folder / INDEX, "an index of weights").get("weight_map")
            if not isinstance(index, dict) or not all(isinstance(file, str) for file in index.values()):
                raise DataError(
                    "this is not an index of weights", where=str(self._folder / INDEX), remedy="Restore it from a copy."
                )
            return sorted({Path(file).name for file in index.values()})
        other = sorted(file.name for pattern in _PICKLED for file in self._folder.glob(pattern))
        raise DataError(
            "there are no weights in safetensors files",
            where=str(self._folder),
            expected=f"`{SINGLE}` or `{INDEX}`",
            got=f"`{other[0]}`, which is loaded by running what is in it" if other else None,
            remedy="Save the model with `transformers` (`save_pretrained`), which writes safetensors.",
        )

    def __getitem__(self, name: str) -> Tensor:
        tensor: Tensor = self._home[name].get_tensor(name)
        return tensor

    def __iter__(self) -> Iterator[str]:
        return iter(self._home)

    def __len__(self) -> int:
        return len(self._home)
