"""A model of `transformers` in a folder: `config.json`, and weights in safetensors files."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import torch
from pydantic import ValidationError
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from ablate.errors import DataError
from ablate.nn.model.build import outline
from ablate.spec.model import ModelSpec
from ablate.spec.sentences import describe
from ablate.trained.hugging_face.architecture import Architecture, Config, architectures

CONFIG = "config.json"
SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"
_PICKLED = ("*.bin", "*.pt", "*.pth", "*.ckpt", "*.h5", "*.msgpack")


@dataclass(frozen=True, slots=True)
class Imported:
    """What a `config.json` says, in our words.

    Attributes:
        architecture: The sort of model.
        config: Its settings.
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
    """What the `config.json` of a folder says.

    Raises:
        DataError: There is none, it is broken, or it describes a model that cannot be read.
    """
    return understand(_json(folder / CONFIG, "the folder of a model of `transformers`"), str(folder / CONFIG))


def understand(plain: Mapping[str, Any], where: str) -> Imported:
    """What the content of a `config.json` says.

    Args:
        plain: The content.
        where: Names the file in messages.

    Raises:
        DataError: It describes a model that cannot be read.
    """
    known, kind = architectures(), plain.get("model_type")
    if kind not in known:
        near = difflib.get_close_matches(str(kind), known, n=1)
        raise DataError(
            "models of this `model_type` cannot be read",
            where=where,
            expected=f"one of {', '.join(known)}",
            got=repr(kind),
            remedy=f"`{near[0]}` can be." if near else "`ablate kinds` lists the parts that a model may be written of.",
        )
    if plain.get("quantization_config"):
        raise DataError(
            "its weights are quantised",
            where=where,
            expected="weights in a float type",
            remedy="Save the model with its weights dequantised (`transformers`, `from_pretrained`, `dequantize`).",
        )
    architecture = known[kind]
    config = Config(plain, architecture.defaults, where, architecture.renamed)
    try:
        model = architecture.model(config)
        spec = ModelSpec.model_validate(model)
        vocabulary, context = int(config["vocab_size"]), int(architecture.context(config))
        spec.check_context(context)
    except ValidationError as error:
        (path, sentence), *_ = describe(error)
        raise _no_model(where, f"`model.{'.'.join(map(str, path))}`: {sentence}") from None
    except (ArithmeticError, AttributeError, KeyError, TypeError, ValueError) as error:
        raise _no_model(where, f"{type(error).__name__}: {error}") from None
    return Imported(architecture, config, model, spec, vocabulary, context)


def _no_model(where: str, why: str) -> DataError:
    return DataError(
        f"its settings make no model ({why})", where=where, remedy="Take the file that belongs to the weights."
    )


def read_tensors(folder: Path, imported: Imported, dtype: torch.dtype = torch.float32) -> dict[str, Tensor]:
    """The weights of a folder under our names, as the `state_dict` of a pack of one.

    Args:
        folder: The folder.
        imported: What its `config.json` says.
        dtype: Of the tensors.

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
        DataError: Some are missing, have another shape, or have no place in the model.
    """
    architecture, config = imported.architecture, imported.config
    named = {architecture.tensor_name(_full_name(name, theirs, architecture)): name for name in theirs}
    tied = architecture.tied(config)
    ours: dict[str, Tensor] = {}
    used: set[str] = set()
    for link in architecture.links(config):
        values = []
        for name in link.theirs:
            found = name if name in named else tied.get(name, name)
            if found not in named:
                raise DataError(
                    f"the weights have no tensor `{name}`",
                    where=str(Path(config.where).parent),
                    remedy=f"See that the weights belong to this `{CONFIG}`, and that all files are there.",
                )
            used.add(found)
            values.append(theirs[named[found]].to(dtype))
        try:
            made = link.conversion.to_ours(tuple(values))
        except (RuntimeError, IndexError) as error:
            raise DataError(
                f"the tensors {', '.join(link.theirs)} have other shapes than `{CONFIG}` says "
                f"({str(error).splitlines()[0]})",
                where=str(Path(config.where).parent),
                remedy=f"See that the weights belong to this `{CONFIG}`.",
            ) from None
        ours |= {name: one.unsqueeze(0).contiguous() for name, one in zip(link.ours, made, strict=True)}
    left = sorted(name for name in named.keys() - used if not _is_unused(name, architecture, tied))
    if left:
        raise DataError(
            f"{len(left)} of the weights' tensors have no place in the model, such as `{left[0]}`",
            where=str(Path(config.where).parent),
            remedy=f"See that the weights belong to this `{CONFIG}`.",
        )
    return ours


def to_theirs(ours: Mapping[str, Tensor], imported: Imported) -> dict[str, Tensor]:
    """Our tensors [1, ...] under their names, as their files have them; ties are left out."""
    tied = imported.architecture.tied(imported.config)
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
    odd = odd or sorted(name for name, one in tensors.items() if one.shape != known[name].shape)
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


def _is_unused(name: str, architecture: Architecture, tied: Mapping[str, str]) -> bool:
    return name in tied or any(fnmatch(name, pattern) for pattern in architecture.unused)


def _json(path: Path, what: str) -> dict[str, Any]:
    try:
        plain = json.loads(path.read_text(encoding="utf-8"), object_hook=_number)
    except FileNotFoundError:
        raise DataError(
            f"there is no `{path.name}`", where=str(path.parent), expected=what, remedy="Name such a folder."
        ) from None
    except (OSError, ValueError) as error:
        raise DataError(f"this cannot be read ({error})", where=str(path), remedy="Restore it from a copy.") from None
    if not isinstance(plain, dict):
        raise DataError("this is no mapping", where=str(path), remedy="Restore it from a copy.")
    return plain


def _number(plain: dict[str, Any]) -> Any:
    """Decode numbers that JSON does not have, written as `{"__float__": "Infinity"}`."""
    return float(plain["__float__"]) if plain.keys() == {"__float__"} else plain


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
                    f"`{INDEX}` names a file that is not there", where=str(path), remedy="Bring all files of the model."
                )
            try:
                opened: Any = safe_open(path, framework="pt")
            except (SafetensorError, OSError) as error:
                raise DataError(
                    f"this is no safetensors file that can be read ({str(error).splitlines()[0]})",
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
                    "this is no index of weights", where=str(self._folder / INDEX), remedy="Restore it from a copy."
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
