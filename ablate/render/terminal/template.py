"""`ablate new`: a commented space to start from."""

from __future__ import annotations

from pathlib import Path

from ruamel.yaml import YAML

from ablate.errors import SpaceError
from ablate.spec.annotations import STUDY_NAME

TEMPLATE = """\
# `ablate validate FILE` checks this space, `ablate plan FILE` lists what it trains, `ablate study FILE` answers it.
name: {name}
question: Does a small language model need the skip around its attention, and its value and output projections?
task: {{kind: language_model, data: builtin:python_stdlib, tokenizer: bytes, context: 64}} # `file:PATH`: your text
model: {{family: decoder, depth: 4, width: 48, heads: 3, block: pre_ln, positions: rotary}} # or a block of your own
training:
  steps: 700
  batch_size: 8
  optimizer: {{kind: adamw, lr: 4.0e-3, betas: [0.9, 0.99], weight_decay: 0.1}}
  schedule: {{kind: linear, warmup: 0.05}}
switches: # the first setting is the baseline's; a setting may set several spec paths at once
  attention_skip:
    kept: {{}}
    removed: {{block.skips.mixer: 0, removes: the attention skip}} # `removes` and `replaces` are texts for the answer
    shaped: {{block.skips.mixer: 0, block.mixer.shaping: shaped, replaces: the attention skip by shaped attention}}
  values:
    dense: {{}}
    identity: {{block.mixer.value: identity}}
  projection:
    dense: {{}}
    identity: {{block.mixer.output: identity}}
variants: # named combinations join the design
  no_maps: {{values: identity, projection: identity}}
design: {{kind: leave_one_out, seeds: 3}} # the baseline, and each switch turned on its own
# tune: {{training.optimizer.lr: [1.0e-3, 2.0e-3, 4.0e-3], seeds: 3}} # each at its best rate, four times the trials
# match: flops # what all have as much of: steps (if left out), tokens, seconds, flops or parameters
objective: {{metric: val_loss, direction: minimize, margin: 0.05}} # decide before you look at results
"""


def write_template(name: str, folder: Path) -> Path:
    """Write `NAME.yaml` into a folder and return its path; an existing file is left alone.

    Raises:
        SpaceError: The name is no name for a study, the file exists, or the folder cannot be written to.
    """
    stem = name.removesuffix(".yaml")
    if not STUDY_NAME.fits(stem):
        raise SpaceError(
            f"this is no name for a space: {STUDY_NAME.rule}",
            where=name,
            remedy="Choose such a name; the file is written into the working folder.",
        )
    path = folder / f"{stem}.yaml"
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(TEMPLATE.format(name=_in_yaml(stem)))
    except FileExistsError:
        raise SpaceError("this file exists", where=str(path), remedy="Choose another name.") from None
    except OSError as error:
        raise SpaceError(f"this cannot be written ({error.strerror})", where=str(path)) from None
    return path


def _in_yaml(name: str) -> str:
    """A name as YAML reads it back: in quotes where it would be read as something else (`null`, `1e3`)."""
    return name if YAML(typ="safe", pure=True).load(name) == name else f'"{name}"'
