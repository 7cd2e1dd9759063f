"""Weights from which a trial starts: of a trial of the store, of a file, of a Hugging Face folder, or of the hub."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from pydantic import ValidationError
from safetensors import SafetensorError, safe_open
from torch import Tensor

from ablate.errors import DataError, NotFoundError, first_cause
from ablate.locations import check_regular, typed_path
from ablate.spec.model import ModelSpec
from ablate.trained.hugging_face.checkpoint import read_config, read_tensors
from ablate.trained.weights import SUFFIX, load_weights, read_weights

HUB = "hub:"
_PICKLED = (".pt", ".pth", ".bin")


@dataclass(frozen=True, slots=True)
class SourceWeights:
    """The weights of a model, under our names.

    Attributes:
        where: The file or folder that they were read from.
        tensors: Name to value; those of packed modules have K = 1.
        model: The spec of the model; None if the source does not say it.
    """

    where: str
    tensors: dict[str, Tensor]
    model: ModelSpec | None

    def identity(self) -> str:
        """Checksum of names and values."""
        return checksum(self.tensors)


def checksum(tensors: Mapping[str, Tensor]) -> str:
    """SHA-256 of tensors with their names, types and shapes, whatever file they stand in."""
    digest = hashlib.sha256()
    for name, tensor in sorted(tensors.items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def read_source(source: str, weights: Path) -> SourceWeights:
    """Read the weights that `init_from` names.

    Args:
        source: A file, a folder, `hub:NAME`, or the key of a trial, or its first characters.
        weights: Where the weights of the store's trials are kept.

    Raises:
        NotFoundError: There is no such file, folder or trial.
        DataError: The weights cannot be read.
    """
    if source.startswith(HUB):
        return _of_folder(_from_hub(source.removeprefix(HUB)))
    path = typed_path(source, DataError)
    if path.is_dir():
        return _of_folder(path)
    if path.is_file():
        return _of_file(path)
    if "/" in source or path.suffix:
        raise NotFoundError(
            "there is no such file or folder",
            where="training.init_from",
            expected="a file of weights, the folder of a Hugging Face model, `hub:OWNER/NAME`, or the key of a trial",
            got=repr(source),
            remedy="Paths are relative to the folder in which the command runs.",
        )
    loaded = load_weights(weights, source)
    return SourceWeights(str(weights / f"{loaded.key}{SUFFIX}"), loaded.tensors, loaded.variant.model)


def _of_folder(folder: Path) -> SourceWeights:
    imported = read_config(folder)
    return SourceWeights(str(folder), read_tensors(folder, imported), _model(imported.model, folder))


def _model(plain: object, where: Path) -> ModelSpec:
    try:
        return ModelSpec.model_validate(plain)
    except ValidationError as error:
        raise DataError(f"its model cannot be built here ({error.errors()[0]['msg']})", where=str(where)) from None


def _of_file(path: Path) -> SourceWeights:
    check_regular(path, DataError)
    if path.suffix == SUFFIX:
        return _of_safetensors(path)
    if path.suffix not in _PICKLED:
        raise DataError(
            "this is not a file of weights",
            where=str(path),
            expected=f"a name that ends in {', '.join((SUFFIX, *_PICKLED))}",
            remedy="Save the `state_dict` with safetensors.",
        )
    try:
        loaded = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # a damaged file makes the unpickler raise nearly any type
        raise _unreadable(path, error) from None
    if not isinstance(loaded, Mapping) or not all(isinstance(one, Tensor) for one in loaded.values()):
        raise DataError(
            "it holds other things than tensors by name",
            where=str(path),
            expected="a `state_dict`",
            remedy="Save the `state_dict` alone, with safetensors.",
        )
    return SourceWeights(str(path), {str(name): one for name, one in loaded.items()}, None)


def _of_safetensors(path: Path) -> SourceWeights:
    try:
        with safe_open(path, framework="pt") as file:
            written_by_us = "variant" in (file.metadata() or {})
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (no mapping)
    except (OSError, SafetensorError) as error:
        raise _unreadable(path, error) from None
    if written_by_us:
        loaded = read_weights(path)
        return SourceWeights(str(path), loaded.tensors, loaded.variant.model)
    return SourceWeights(str(path), tensors, None)


def _unreadable(path: Path, error: Exception) -> DataError:
    first_cause(error, str(path))
    why = f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
    if "weights_only" in str(error):  # torch advises to run what is in the file
        why = "it holds more than tensors, or is damaged"
    return DataError(
        f"these weights cannot be read ({why})",
        where=str(path),
        expected="tensors alone, in safetensors or as `torch.load` reads them with `weights_only=True`",
        remedy="Save the `state_dict` with safetensors.",
    )


def _from_hub(name: str) -> Path:
    from huggingface_hub import snapshot_download  # slow to import; tokenizers brings it

    repository, _, revision = name.partition("@")
    try:
        folder = snapshot_download(repository, revision=revision or None, allow_patterns=["*.json", "*.safetensors"])
    except Exception as error:  # the library raises many types of exceptions
        first_cause(error, f"{HUB}{name}, whose copy goes to HF_HOME or ~/.cache/huggingface")
        raise DataError(
            f"the model cannot be read from the hub ({str(error).strip().partition(chr(10))[0]})",
            where=f"{HUB}{name}",
            remedy="Check its name and the connection, or name the folder of a local copy.",
        ) from None
    return Path(folder)
