"""A model that was read, beside the same model as `transformers` reads it: how far their logits are apart.

Both compute in double precision where memory allows: then logits of equal models differ by rounding alone, far below
what any setting changes. Elsewhere both compute in single precision, and what they may differ by is measured: by how
much the logits of `transformers` move when each of its weights is rounded another way.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from ablate.errors import DataError
from ablate.extras import require
from ablate.machine import available_memory
from ablate.nn.model import build_model, model_cost
from ablate.trained.hugging_face.checkpoint import Imported, load_tensors, read_tensors

_TEXTS, _LEAST = 3, 33
_DOUBLE = 1e-8
"""The largest difference in double precision, as a share of the largest logit."""
_SINGLE = 1e-5
"""The same in single precision, where that is more than what rounding the weights another way changes."""
_TIMES = 32
"""How many times the change by rounding the weights another way logits in single precision may differ."""


Texts = tuple[dict[str, Tensor], tuple[Tensor, ...], Tensor]


@dataclass(frozen=True, slots=True)
class Compared:
    """Logits of both.

    Attributes:
        difference: The largest difference; NaN if a logit is not a number.
        bound: What equal models may differ by.
        double: Whether both computed in double precision.
        tokens: Length of the longest text.
    """

    difference: float
    bound: float
    double: bool
    tokens: int

    @property
    def same(self) -> bool:
        """Whether the models are equal."""
        return self.difference <= self.bound


def compare(folder: Path, imported: Imported) -> Compared:
    """Compare the logits of random texts, longer than every window, some of them padded.

    Args:
        folder: The files, which `transformers` reads again.
        imported: What their `config.json` says.

    Raises:
        MissingPackageError: `transformers` is not installed.
        DataError: `transformers` cannot read or run the model, or the weights do not fit it.
    """
    require(
        "transformers", "comparing logits with those of transformers (unless `--no-verify` says not to)", where="import"
    )
    lengths = _lengths(imported)
    double = _bytes_in_double(imported, lengths[-1]) < available_memory()
    dtype = torch.float64 if double else torch.float32
    with torch.no_grad(), in_double(*_modules(imported)) if double else _as_it_is():
        ours = build_model(imported.spec, vocabulary=imported.vocabulary, context=imported.context, seeds=[0]).to(dtype)
        load_tensors(ours, read_tensors(folder, imported, dtype))
        theirs = _theirs(folder, imported, dtype)
        texts = [random_texts(imported, length) for length in lengths]
        try:
            expected = _logits(theirs, texts)
            moved = expected if double else _logits(_round_another_way(theirs), texts)
        except Exception as error:  # whatever their code does with settings that it does not allow
            raise _refusal("run", folder, error) from None
        logits = [ours.eval()(*arguments)[0][real] for _, arguments, real in texts]
    found = []
    for length, wanted, rounded, got in zip(lengths, expected, moved, logits, strict=True):
        scale, change = float(wanted.abs().max()), float((rounded - wanted).abs().max())
        bound = _DOUBLE * scale if double else max(_SINGLE * scale, _TIMES * change)
        found.append(Compared(float((got - wanted).abs().max()), bound, double, length))
    return next((one for one in found if not one.same), found[-1])


def _logits(theirs: Any, texts: Sequence[Texts]) -> list[Tensor]:
    return [theirs(**given, return_dict=True).logits[real] for given, _, real in texts]


def random_texts(imported: Imported, length: int) -> Texts:
    """Random texts of different lengths, of which the longest has no padding.

    Returns:
        Arguments by name of the model of `transformers`; those of ours, in order; which logits to compare [B, T].
    """
    generator = torch.Generator().manual_seed(0)
    tokens = torch.randint(imported.vocabulary, (_TEXTS, length), generator=generator)
    lengths = torch.linspace(max(1, length // 3), length, _TEXTS).long()
    real = torch.arange(length) < lengths[:, None]
    pad = imported.config.get("pad_token_id")
    if isinstance(pad, int) and 0 <= pad < imported.vocabulary:
        tokens[tokens == pad] = (pad + 1) % imported.vocabulary
        tokens[~real] = pad
    if imported.architecture.sees_padding:
        return {"input_ids": tokens}, (tokens[None],), torch.ones_like(real)
    texts = {"input_ids": tokens, "attention_mask": real.long()}
    if imported.spec.family == "encoder_decoder":  # which reads the texts and writes them
        texts |= {"decoder_input_ids": tokens, "decoder_attention_mask": real.long()}
        return texts, (tokens[None], tokens[None], real[None], real[None]), real
    return texts, (tokens[None], real[None]), real


def _lengths(imported: Imported) -> list[int]:
    """A length beyond every window, and every distance that relative positions tell apart; also a short one, where
    longer texts have other positions.
    """
    distances = [block.window for block in imported.spec.blocks]
    limit = imported.spec.incremental_limit
    distances += [getattr(imported.spec.positions, "longest_distance", None), limit]
    longest = min(imported.context, _LEAST + max(distance or 0 for distance in distances))
    return [longest] if limit is None else [min(limit, _LEAST, longest), longest]


def _bytes_in_double(imported: Imported, length: int) -> float:
    spec = imported.spec
    cost = model_cost(spec, vocabulary=imported.vocabulary, context=imported.context, length=1)
    return 8 * (3 * cost.parameters + 4 * _TEXTS * length * (spec.heads * length + imported.vocabulary))


def _modules(imported: Imported) -> list[ModuleType]:
    from transformers import CONFIG_MAPPING

    config_class = CONFIG_MAPPING[imported.architecture.model_type]
    names = config_class.__module__.replace("configuration_", "modeling_"), "transformers.modeling_rope_utils"
    return [importlib.import_module(name) for name in names]


class _DoubledTorch:
    """`torch` for a module, its single precision being double."""

    float32 = float = torch.float64

    def __getattr__(self, name: str) -> Any:
        return getattr(torch, name)


@contextmanager
def in_double(*modules: ModuleType) -> Iterator[None]:
    """Compute in double precision what the code of these modules asks for in single precision (norms, angles), or
    leaves open.
    """
    single, doubled, default = Tensor.float, _DoubledTorch(), torch.get_default_dtype()
    kept = {module: vars(module)["torch"] for module in modules if "torch" in vars(module)}
    for module in kept:
        setattr(module, "torch", doubled)  # noqa: B010
    Tensor.float = Tensor.double  # type: ignore[method-assign]
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(default)
        Tensor.float = single  # type: ignore[method-assign]
        for module, before in kept.items():
            setattr(module, "torch", before)  # noqa: B010


@contextmanager
def _as_it_is() -> Iterator[None]:
    yield


def _round_another_way(model: Any) -> Any:
    """The model with each weight moved by up to one unit in its last place, at random."""
    generator = torch.Generator().manual_seed(1)
    for parameter in model.parameters():
        noise = torch.rand(parameter.shape, generator=generator, dtype=parameter.dtype)
        parameter.mul_(1 + torch.finfo(parameter.dtype).eps * (2 * noise - 1))
    return model


def _theirs(folder: Path, imported: Imported, dtype: torch.dtype) -> Any:
    import transformers

    logging: Any = transformers.utils.logging
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    auto = getattr(transformers, imported.architecture.auto_class)
    try:
        model, loaded = auto.from_pretrained(
            folder,
            output_loading_info=True,
            dtype=dtype,
            attn_implementation="eager",
            experts_implementation="eager",
            return_dict=True,
            chunk_size_feed_forward=0,  # changes no logits, but chunks must divide the texts
            local_files_only=True,
            trust_remote_code=False,
            use_safetensors=True,
            **imported.architecture.exactly,
        )
    except Exception as error:  # as above
        raise _refusal("read", folder, error) from None
    for name, twin in imported.architecture.tied_names(imported.config).items():
        if name in loaded["missing_keys"]:  # then their class makes it anew: Kimi Linear's ties nothing
            parent, _, last = name.rpartition(".")
            setattr(model.get_submodule(parent), last, model.get_parameter(twin))
    model.config.use_cache = False
    return model.eval()


def _refusal(verb: str, folder: Path, error: Exception) -> DataError:
    reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
    return DataError(
        f"`transformers` cannot {verb} this model ({reason})",
        where=str(folder),
        remedy="Mend the folder, or leave the comparison out with `--no-verify`.",
    )
