"""A trained model of tokens as a folder that `transformers` opens.

Where the model is one that `transformers` has, the folder has its format: `config.json` is made from our spec, read
back, and used only if it describes the very same model. Elsewhere the folder of a decoder holds a modelling file that
builds our modules, for `trust_remote_code=True` with `ablate` installed.
"""

from __future__ import annotations

import importlib.metadata
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from safetensors.torch import save_file
from torch import nn

from ablate.errors import AblateError, DataError, SpaceError
from ablate.spec.layer import InitialiserSpec
from ablate.spec.model import ModelSpec
from ablate.spec.task import Codec
from ablate.tasks.tokenizers.kinds import ByteTokenizer
from ablate.tasks.tokenizers.subwords import SubwordTokenizer
from ablate.trained.hugging_face.architecture import architectures
from ablate.trained.hugging_face.checkpoint import CONFIG, SINGLE, Imported, to_theirs, understand

END, MASK = "<|endoftext|>", "<|mask|>"
"""How the end of a document, and a masked token, are written."""
MODELLING = "modeling_ablate.py"
_TEMPLATE = Path(__file__).with_name("modelling.txt")


@dataclass(frozen=True, slots=True)
class Exported:
    """What was written.

    Attributes:
        model_type: `model_type` of `config.json`; `ablate` if the folder brings its own modelling file.
        tokenizer: Whether the tokenizer could be written.
    """

    model_type: str
    tokenizer: bool

    @property
    def native(self) -> bool:
        """Whether `transformers` opens it without code of the folder."""
        return self.model_type != "ablate"


def write_folder(
    folder: Path, spec: ModelSpec, model: nn.Module, codec: Codec | None, *, vocabulary: int, context: int
) -> Exported:
    """Write `config.json`, `model.safetensors` and the tokenizer.

    Args:
        folder: Where; it must not hold a model yet.
        model: A pack of one.
        codec: Its tokenizer; None if its data has none.
        vocabulary: Number of token ids V.
        context: The longest input in tokens.

    Raises:
        SpaceError: The model is not a decoder, and none of `transformers`.
        DataError: The folder holds a model already.
    """
    end = None if codec is None else codec.end_of_document
    ends = {"bos_token_id": None, "eos_token_id": end, "pad_token_id": None}
    if spec.family == "encoder_decoder":
        ends["decoder_start_token_id"] = end
    native_model = native(spec, vocabulary, context, ends)
    if native_model is None and spec.family != "decoder":
        raise SpaceError(
            "this model cannot be written for transformers",
            where="--hf",
            expected="a decoder, or exactly one of the encoders and encoder-decoders that transformers has",
            got=f"a model of family {spec.family}",
            remedy="Name the trial of a language model, or of a space that starts from `bert`, `modernbert` or `t5`.",
        )
    if (folder / CONFIG).exists():
        raise DataError("there is a model already", where=str(folder), remedy="Name another folder.")
    folder.mkdir(parents=True, exist_ok=True)
    state = {name: tensor.detach().cpu() for name, tensor in model.state_dict().items()}
    if native_model is None:
        config = {**_own_config(spec, vocabulary, context), **ends}
        tensors = {f"model.{name}": tensor.clone() for name, tensor in state.items()}
        (folder / MODELLING).write_text(_TEMPLATE.read_text(encoding="utf-8"), encoding="utf-8")
    else:
        config, imported = native_model
        tensors = to_theirs(state, imported)
    (folder / CONFIG).write_text(json.dumps(config, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    save_file(tensors, folder / SINGLE, {"format": "pt"})
    mask = vocabulary - 1 if spec.family == "encoder" else None
    return Exported(str(config["model_type"]), write_tokenizer(folder, codec, context, mask))


def native(
    spec: ModelSpec, vocabulary: int, context: int, more: Mapping[str, Any] | None = None
) -> tuple[dict[str, Any], Imported] | None:
    """The `config.json` of a model of `transformers` that is this very model; None if none is known."""
    for architecture in architectures().values():
        try:
            made = architecture.config_of(spec, vocabulary, context)
            if made is None:
                continue
            config = {**made, "model_type": architecture.model_type, **(more or {})}
            imported = understand(config, "the model to be written")
            theirs = ModelSpec.model_validate(imported.model)
        except (AttributeError, KeyError, ValidationError, AblateError):
            continue  # a part of the model has no such setting
        if _function(theirs) == _function(spec):
            return config, imported
    return None


def _function(spec: ModelSpec) -> Any:
    """What a model computes, whatever it started from and what was added to its loss."""
    start = {"initialiser": InitialiserSpec.default(), "init_std": 0.02, "z_loss": 0.0, "multi_token": None}
    return spec.model_copy(update=start).canonical()


def _own_config(spec: ModelSpec, vocabulary: int, context: int) -> dict[str, Any]:
    module = MODELLING.removesuffix(".py")
    return {
        "architectures": ["AblateForCausalLM"],
        "auto_map": {
            "AutoConfig": f"{module}.AblateConfig",
            "AutoModelForCausalLM": f"{module}.AblateForCausalLM",
        },
        "model_type": "ablate",
        "ablate_version": importlib.metadata.version("ablate-blocks"),
        "vocab_size": vocabulary,
        "max_position_embeddings": context,
        "hidden_size": spec.width,
        "num_hidden_layers": spec.depth,
        "num_attention_heads": spec.heads,
        "model": spec.model_dump(mode="json"),
        "tie_word_embeddings": False,
    }


def write_tokenizer(folder: Path, codec: Codec | None, context: int, mask: int | None = None) -> bool:
    """Write a tokenizer as `AutoTokenizer` reads it; whether that is possible.

    Args:
        mask: The id of masked tokens, which follows those of the tokenizer, if it has one.
    """
    make = _BY_TYPE.get(type(codec))
    made = None if make is None else make(codec)
    if codec is None or made is None:
        return False
    marks = {"eos_token": made.id_to_token(codec.end_of_document)}
    if mask is not None and mask == made.get_vocab_size():
        made.add_special_tokens([MASK])
        marks["mask_token"] = MASK
    (folder / "tokenizer.json").write_text(made.to_str(pretty=False), encoding="utf-8")
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        **marks,
        "model_max_length": context,
        "clean_up_tokenization_spaces": False,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(settings, indent=2) + "\n", encoding="utf-8")
    return True


def _of_bytes(codec: Any) -> Any:
    """A byte-level tokenizer without merges: each byte is written as one character, whose id is the byte."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    made = Tokenizer(models.BPE(vocab={char: byte for byte, char in enumerate(_characters())}, merges=[]))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    made.decoder = decoders.ByteLevel()
    made.add_special_tokens([AddedToken(END, normalized=False)])
    return made


def _of_subwords(codec: Any) -> Any:
    from tokenizers import AddedToken, Tokenizer

    made = Tokenizer.from_str(codec.text())
    made.post_processor = None  # what it puts around a text, such as `[CLS]` or `<s>`, the model has not seen
    if made.id_to_token(codec.end_of_document) is not None:  # a token of its own ends a document
        return made
    made.add_special_tokens([AddedToken(END, normalized=False)])
    return made if made.token_to_id(END) == codec.end_of_document else None


_BY_TYPE: dict[type[Any], Callable[[Any], Any]] = {ByteTokenizer: _of_bytes, SubwordTokenizer: _of_subwords}


def _characters() -> list[str]:
    """The characters with which byte-level tokenizers write bytes, by byte (GPT-2, `bytes_to_unicode`)."""
    shown = {*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)}
    hidden = iter(range(256, 512))
    return [chr(byte) if byte in shown else chr(next(hidden)) for byte in range(256)]
