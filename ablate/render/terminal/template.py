"""`ablate new`: a commented space to start from."""

from __future__ import annotations

from pathlib import Path

from ruamel.yaml import YAML

from ablate.errors import SpaceError
from ablate.spec.annotations import STUDY_NAME

TEMPLATE = """\
# A space: a baseline model, a task, switches, and the question that they answer.
# `ablate validate FILE` checks it, `ablate plan FILE` lists what it trains, `ablate study FILE` answers it.
name: {name}
question: Does a small language model need the skip around its attention, and its value and output projections?

task:
  kind: language_model
  data: builtin:python_stdlib # the standard library of this interpreter; `file:PATH` reads your own text
  tokenizer: bytes # a short run learns more of them than of the words of {{kind: bpe, vocab_size: 2048}}
  context: 64

# The baseline. `block` names a block of `ablate kinds`, or is a block spec of your own.
model: {{family: decoder, depth: 4, width: 48, heads: 3, block: pre_ln, positions: rotary}}

training:
  steps: 700
  batch_size: 8
  optimizer: {{kind: adamw, lr: 4.0e-3, betas: [0.9, 0.99], weight_decay: 0.1}}
  schedule: {{kind: linear, warmup: 0.05}}

# What is turned. The first setting of each switch is the baseline's; a setting names the paths that it sets. `removes`
# (or `replaces: this by that`), in a switch or a setting, says in the words of the answer what that does.
switches:
  attention_skip:
    removes: the skip around attention
    kept: {{}}
    removed: {{block.skips.mixer: 0}}
  values:
    dense: {{}}
    identity: {{block.mixer.value: identity}}
  projection:
    dense: {{}}
    identity: {{block.mixer.output: identity}}

# Named variants join the design.
variants:
  no_maps: {{values: identity, projection: identity}}

design: {{kind: leave_one_out, seeds: 3}}

# A comparison at one learning rate favours the variant that it suits. To try each variant with several, with seeds of
# their own, and to compare each at its best (four times the trials):
# tune: {{training.optimizer.lr: [1.0e-3, 2.0e-3, 4.0e-3], seeds: 3}}
# What all have as much of: steps (if left out), tokens, seconds, flops or parameters.
# match: flops

# How large a difference matters to you, in units of the metric. Decide before you look at results.
objective: {{metric: val_loss, direction: minimize, margin: 0.05}}
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
