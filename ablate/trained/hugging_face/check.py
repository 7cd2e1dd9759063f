"""A model that was read, beside the same model as `transformers` reads it: how far their logits are apart."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ablate.errors import DataError
from ablate.extras import require
from ablate.nn.model.build import build_model
from ablate.trained.hugging_face.checkpoint import Imported, load_tensors

_TEXTS, _TOKENS = 3, 33


def largest_difference(folder: Path, imported: Imported, tensors: dict[str, Tensor]) -> float:
    """The largest difference of logits on random tokens, some of them padding, in single precision.

    Args:
        folder: The files, which `transformers` reads again.
        imported: What their `config.json` says.
        tensors: Their weights under our names.

    Raises:
        MissingPackageError: `transformers` is not installed.
        DataError: `transformers` cannot read the folder.
    """
    require("transformers", "comparing logits with those of transformers", where="--check")
    theirs = _theirs(folder, imported)
    ours = build_model(imported.spec, vocabulary=imported.vocabulary, context=imported.context, seeds=[0])
    load_tensors(ours, tensors)
    length = min(_TOKENS, imported.context)
    generator = torch.Generator().manual_seed(0)
    tokens = torch.randint(imported.vocabulary, (_TEXTS, length), generator=generator)
    # Texts of different lengths; the longest has no padding.
    lengths = torch.linspace(max(1, length // 3), length, _TEXTS).long()
    real = torch.arange(length) < lengths[:, None]
    pad = imported.config.get("pad_token_id")
    if isinstance(pad, int) and 0 <= pad < imported.vocabulary:
        tokens[tokens == pad] = (pad + 1) % imported.vocabulary
        tokens[~real] = pad
    texts: dict[str, Tensor] = {"input_ids": tokens, "attention_mask": real.long()}
    arguments: tuple[Tensor, ...] = (tokens[None], real[None])
    if imported.architecture.sees_padding:
        texts, arguments, real = {"input_ids": tokens}, (tokens[None],), torch.ones_like(real)
    if imported.spec.family == "encoder_decoder":  # which reads the texts and writes them
        texts |= {"decoder_input_ids": tokens, "decoder_attention_mask": real.long()}
        arguments = (tokens[None], tokens[None], real[None], real[None])
    with torch.no_grad():
        expected = theirs(**texts).logits.float()
        found = ours.eval()(*arguments)[0]
    return float((found - expected)[real].abs().max())


def _theirs(folder: Path, imported: Imported) -> Any:
    import transformers

    logging: Any = transformers.utils.logging
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    auto = getattr(transformers, imported.architecture.auto_class)
    try:
        model = auto.from_pretrained(
            folder,
            dtype=torch.float32,
            attn_implementation="eager",
            local_files_only=True,
            trust_remote_code=False,
            use_safetensors=True,
        )
    except (OSError, ValueError, RuntimeError, ImportError) as error:
        raise DataError(
            f"`transformers` cannot read this model ({str(error).strip().splitlines()[0]})",
            where=str(folder),
            remedy="Leave `--check` out, or mend the folder.",
        ) from None
    return model.eval()
