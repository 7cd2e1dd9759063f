"""Activations, as `cost` counts them, against the memory that a training step of each named block really takes."""

from __future__ import annotations

import itertools

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile

from ablate.model.build import build_model, model_cost
from ablate.spec.block import BlockSpec
from ablate.spec.model import ModelSpec
from ablate.spec.named import block_names, named_block

BYTES = 4
LENGTH, WIDTH, HEADS = 200, 64, 2


def model_of(name: str) -> ModelSpec:
    block = BlockSpec.model_validate(named_block(name).block)
    family = "decoder" if block.mixer.causal_form else "encoder"
    return ModelSpec.model_validate({"family": family, "depth": 6, "width": WIDTH, "heads": HEADS, "block": name})


def train(model: nn.Module, tokens: Tensor) -> None:
    logits = model(tokens)
    F.cross_entropy(logits.flatten(0, 2), tokens.flatten()).backward()


def peak_bytes(model: nn.Module, tokens: Tensor) -> int:
    """The most memory that is allocated at any time of one step, besides the parameters and their gradients."""
    train(model, tokens)  # gradients, and what is made once (tables, the plans of transforms), are there from here on
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiled:
        train(model, tokens)
    # `profiled.events()` has only what is allocated outside of operators.
    events = [event for event in profiled.profiler.kineto_results.events() if event.name() == "[memory]"]
    changes = [event.nbytes() for event in sorted(events, key=lambda event: event.start_ns())]
    return max(itertools.accumulate(changes))


@pytest.mark.parametrize("name", block_names())
def test_activations_predict_the_peak_of_a_step(name: str) -> None:
    """What there is once for all sequences (the spectra of filters, the sum of a gradient) falls out."""
    vocabulary, few, many = 256, 12, 20
    spec = model_of(name)
    model = build_model(spec, vocabulary=vocabulary, context=LENGTH, seeds=[0]).train()
    small, large = (peak_bytes(model, torch.randint(vocabulary, (1, batch, LENGTH))) for batch in (few, many))
    measured = (large - small) / (many - few)
    predicted = BYTES * model_cost(spec, vocabulary=vocabulary, context=LENGTH).activations
    print(f"{name}: predicted/measured {predicted / measured:.3f}")  # `pytest -rP` shows them all
    assert predicted == pytest.approx(measured, rel=0.15)
