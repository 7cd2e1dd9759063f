"""Final weights of trials, one safetensors file each, in the folder `weights` beside the store; variants read back.

A file says in its metadata what is needed to build the model again: variant, seed and fingerprint of the data.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import os
import sqlite3
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from pydantic import ValidationError
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import nn

from ablate.errors import AblateError, DataError, NotFoundError, PluginError, SpaceError
from ablate.locations import check_regular, real_path
from ablate.nn.pack import Packed
from ablate.plugins import plugin_kinds
from ablate.spec.code import Code, code_changes
from ablate.spec.sentences import describe
from ablate.spec.variant import VariantSpec


def stored_variant(plain: Any, where: str, *, homes: Mapping[str, str], trained_with: str) -> VariantSpec:
    """The variant of a trial.

    Args:
        where: Names the trial in messages.
        homes: Kind of a plugin to the file or package that defined it, as far as that is known.
        trained_with: The version of ablate that trained the trial, in words.

    Raises:
        PluginError: It names a kind that is not known here.
        SpaceError: This version of ablate cannot read it.
    """
    try:
        return VariantSpec.model_validate(plain)
    except ValidationError as error:
        raise _unreadable(error, where, homes, trained_with) from None


def check_code(now: Code, trained_by: Code, where: str, say: Callable[[str], None], *, accept: bool | None) -> None:
    """Refuse what a trial left if the code of its kinds has changed; say so if that is accepted or not known.

    Args:
        where: Names the trial in messages.
        say: Receives a warning.
        accept: Whether the code may have changed; None if it never may, as for what is published.

    Raises:
        PluginError: The code has changed.
    """
    if now.identity == trained_by.identity:
        return
    changes = code_changes(trained_by.content, now.content)
    texts = [f"{change.kind} ({change.what})" for change in changes] or ["its kinds"]
    if trained_by.identity and not accept:
        raise PluginError(
            f"the code is not that with which the trial was trained: {'; '.join(texts)}",
            where=where,
            remedy="Bring back the file as it was."
            if accept is None
            else "Bring back the file as it was. --accept-changed-code takes the code as it is now.",
        )
    known = "another version of" if trained_by.identity else "a version that was not recorded of"
    say(f"{where} was trained with {known} {'; '.join(texts)}")


def _unreadable(error: ValidationError, where: str, homes: Mapping[str, str], trained_with: str) -> AblateError:
    for line in error.errors(include_url=False):
        if line["type"] == "unknown_kind":
            noun, kind = line["ctx"]["noun"], line["ctx"]["kind"]
            home = homes.get(kind)
            return PluginError(
                f"the trial uses the {noun} kind `{kind}`, which no loaded plugin defines",
                where=where,
                expected=f"the plugin {home}" if home else f"the plugin that defines the {noun} kind `{kind}`",
                remedy=f"Name its file: `--plugin {home}`."
                if home and home.endswith(".py")
                else f"Install the package {home}."
                if home
                else "Name its file with `--plugin FILE`, or install the package that brings it.",
            )
    (path, problem), *_ = describe(error)
    return SpaceError(
        f"this version of ablate cannot read its spec: `{'.'.join(map(str, path))}`: {problem}",
        where=where,
        remedy="If one of your plugins has changed, load it as it was; else install the version of ablate that "
        f"trained the trial ({trained_with}).",
    )


SUFFIX = ".safetensors"
_SQLITE = b"SQLite format 3\0"
"""The beginning of a store in a file."""
_SHORTEST = 4
_CHECKSUM = "sha256"
"""In the metadata: the checksum of all other metadata and of the tensors."""


@dataclass(frozen=True, slots=True)
class Weights:
    """The weights of one trial.

    Attributes:
        fingerprint: Of the data that it saw.
        tensors: Name to value; those of packed modules have K = 1.
        code: Of the kinds of the variant, as it was then; unknown if an older version of ablate wrote the file.
    """

    key: str
    variant: VariantSpec
    seed: int
    fingerprint: str
    tensors: dict[str, torch.Tensor]
    code: Code = Code.unknown


def weights_folder(store: str) -> Path:
    """Where the weights of a store's trials are kept; for a database on a server, `studies/weights` of the user."""
    return Path("studies/weights").absolute() if "://" in store else Path(store).absolute().parent / "weights"


def weights_file(key: str, store: str) -> str:
    """Where the weights of a trial of a store are kept."""
    return str(weights_folder(store) / f"{key}{SUFFIX}")


def held_by_other_stores(keys: Iterable[str], store: str) -> set[str]:
    """Those of some trials that other stores in files have too, whose weights are kept in the same folder.

    Args:
        store: Path or URL of the store that is not looked at.
    """
    wanted, held = sorted(keys), set[str]()
    own = None if "://" in store else real_path(store)
    for file in weights_folder(store).parent.iterdir() if wanted else ():
        if real_path(file) == own or not file.is_file():
            continue
        with suppress(sqlite3.Error, OSError), file.open("rb") as opened:
            if opened.read(len(_SQLITE)) != _SQLITE:
                continue
            with closing(sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True)) as database:
                query = "SELECT 1 FROM trials WHERE key = ?"
                held.update(key for key in wanted if database.execute(query, (key,)).fetchone())
    return held


def save_weights(
    path: Path,
    model: nn.Module,
    member: int,
    variant: VariantSpec,
    seed: int,
    fingerprint: str,
    code: Code = Code.unknown,
) -> None:
    """Write the weights of one member of a pack; the file is there whole or not at all."""
    packed = {name for name, module in model.named_modules() if isinstance(module, Packed)}
    tensors = {
        name: (value[member : member + 1] if name.rpartition(".")[0] in packed else value).detach().cpu().clone()
        for name, value in model.state_dict().items()
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    # Two studies may train the same trial at once, each into its own file.
    writing = path.with_name(f".{path.name}.{os.getpid()}")
    metadata = {
        "variant": variant.model_dump_json(),
        "seed": str(seed),
        "fingerprint": fingerprint,
        "plugins": json.dumps(plugin_kinds(variant)),
        **({"code": json.dumps(code.content)} if code.content else {}),
        "ablate": importlib.metadata.version("ablate-blocks"),
    }
    metadata[_CHECKSUM] = _checksum(metadata, tensors)
    try:
        writing.touch(mode=0o644)
        readable = writing.stat().st_mode  # as the umask has it; safetensors makes a file that only its owner may read
        save_file(tensors, writing, metadata)
        writing.chmod(readable)
        with writing.open("rb") as file:
            os.fsync(file.fileno())
        os.replace(writing, path)
    finally:
        writing.unlink(missing_ok=True)


def load_weights(folder: Path, trial: str) -> Weights:
    """The weights of a trial.

    Args:
        folder: Where the weights of its store are kept.
        trial: Its key, or the first characters of it.

    Raises:
        NotFoundError: No such weights are kept, or several trials begin so.
        DataError: The file is damaged or cannot be read.
        PluginError: The trial uses a kind of a plugin that is not loaded.
        SpaceError: This version of ablate cannot read its spec.
    """
    files = sorted(folder.glob(f"{trial}*{SUFFIX}")) if len(trial) >= _SHORTEST and trial.isalnum() else []
    if len(files) != 1:
        raise NotFoundError(
            "several trials begin so" if files else "no weights of this trial are kept",
            where=str(folder),
            expected=f"the key of a trial that kept its weights, or {_SHORTEST} or more of its first characters",
            got=repr(trial),
            remedy="Give more characters of the key."
            if files
            else "Set `save_weights: true` under `training` in the space, and run it into a new store.",
        )
    return read_weights(files[0])


def read_weights(path: Path) -> Weights:
    """The weights in a file that `save_weights` wrote.

    Raises:
        DataError: The file is damaged or cannot be read.
        PluginError: The trial uses a kind of a plugin that is not loaded.
        SpaceError: This version of ablate cannot read its spec.
    """
    check_regular(path, DataError)
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (no mapping)
        plain, seed, fingerprint = json.loads(metadata["variant"]), int(metadata["seed"]), metadata["fingerprint"]
        homes = json.loads(metadata.get("plugins", "{}"))  # an older ablate wrote none
        if _CHECKSUM in metadata and metadata[_CHECKSUM] != _checksum(metadata, tensors):  # an older ablate wrote none
            raise ValueError("their checksum is not the one that was written with them")
    except OSError as error:
        raise DataError(
            f"the weights cannot be read ({error.strerror or error})",
            where=str(path),
            remedy="Check that you may read the file.",
        ) from None
    except (SafetensorError, KeyError, ValueError) as error:
        raise DataError(
            f"these weights cannot be read ({str(error).partition(chr(10))[0]})",
            where=str(path),
            remedy="Restore the file from a copy, or train the trial again, into a new store in another folder.",
        ) from None
    trained_with = metadata.get("ablate", "not recorded")
    variant = stored_variant(plain, f"trial {path.stem[:12]}", homes=homes, trained_with=trained_with)
    return Weights(path.stem, variant, seed, fingerprint, tensors, Code(json.loads(metadata.get("code", "{}"))))


def _checksum(metadata: Mapping[str, str], tensors: Mapping[str, torch.Tensor]) -> str:
    signed = {name: text for name, text in metadata.items() if name != _CHECKSUM}
    digest = hashlib.sha256(json.dumps(signed, sort_keys=True).encode())
    for name, tensor in sorted(tensors.items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()
