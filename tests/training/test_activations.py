"""Insides as metrics, against numpy, scipy and torch.linalg on tensors that plain hooks take from random models."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import scipy.special
import scipy.stats
import torch
from families import a_family_for
from random_tokens import CPU, RandomTokens, T, V, losses, points, run, variant
from test_checkpoint import state_at
from torch import Tensor, nn

from ablate.metrics import INSIDE, INSIDES, OF_ATTENTION, inside_names
from ablate.nn.model import build_model
from ablate.spec.block import BlockSpec
from ablate.spec.model import ModelSpec
from ablate.spec.named import block_names, named_block
from ablate.training.activations import (
    SAMPLE_TOKENS,
    Insides,
    loss_on_random_tokens,
    loss_on_validation,
    measure_insides,
)
from ablate.training.events import Measurement
from ablate.training.loop import train
from ablate.training.members import Member
from ablate.training.pack import Pack

if TYPE_CHECKING:
    from ablate.spec.task import Batch

DEPTH, HEADS, WIDTH, K = 2, 2, 8, 2


@pytest.mark.parametrize("context", [T, 2 * SAMPLE_TOKENS])
def test_the_loss_on_random_tokens_of_a_model_that_knows_nothing_is_that_of_guessing(context: int) -> None:
    found = loss_on_random_tokens(V, context, CPU, K)(lambda tokens: torch.zeros(*tokens.shape, V))
    torch.testing.assert_close(found, torch.full((K,), math.log(V)))


def model_of(block: Any, **more: Any) -> nn.Module:
    plain = {"family": "decoder", "depth": DEPTH, "width": WIDTH, "heads": HEADS, "block": block, "init_std": 0.5}
    spec = ModelSpec.model_validate({**plain, **more})
    return build_model(spec, vocabulary=V, context=T, classes=2, seeds=range(K))


class Few(RandomTokens):
    """Four windows, the last tokens of two of which may be padding."""

    def __init__(self, padded: int = 0, length: int = T) -> None:
        super().__init__()
        self.padded, self.length = padded, length

    def validation_batches(self, batch_size: int) -> Iterator[Batch]:
        batch = self._draw("fixed", 4)
        padding = torch.ones(4, self.length, dtype=torch.bool)
        padding[:, self.length - self.padded :] = not self.padded
        cut = {name: values[:, : self.length] for name, values in batch.items()}
        yield {**cut, "weight": torch.ones(4)} | ({"padding": padding} if self.padded else {})

    def loss(self, outputs: Tensor, batch: Batch) -> Tensor:
        real = batch.get("padding", torch.ones_like(batch["targets"], dtype=torch.bool))
        nats = torch.nn.functional.cross_entropy(outputs.movedim(-1, 1), batch["targets"], reduction="none")
        return (nats * real).sum((1, 2)) / real.sum((1, 2))


def insides_of(model: nn.Module, task: Few | None = None) -> Insides:
    return measure_insides(model, loss_on_validation(task or Few(), CPU, K))


def hooked(model: nn.Module, parts: dict[str, nn.Module]) -> tuple[dict[str, Tensor], dict[str, Tensor], Tensor]:
    """Inputs and outputs of parts, whose gradients are kept, and the loss of all members."""
    given: dict[str, Tensor] = {}
    made: dict[str, Tensor] = {}

    def take(name: str, x: Tensor, y: Tensor) -> None:
        given[name], made[name] = x, y
        for tensor in (x, y):
            tensor.retain_grad() if tensor.requires_grad else None

    hooks = [p.register_forward_hook(lambda _, x, y, name=name: take(name, x[0], y)) for name, p in parts.items()]
    task = Few()
    batch = {name: x.expand(K, *x.shape) for name, x in next(task.validation_batches(4)).items()}
    loss = task.loss(task.outputs(model.eval(), batch), batch).sum()
    loss.backward()
    for hook in hooks:
        hook.remove()
    return given, made, loss


@pytest.mark.parametrize("block", ["pre_ln", "parallel", {"mixer": "mamba2"}, {"norm": "none", "mixer": "linear"}])
def test_streams_by_depth_against_numpy_and_scipy(block: Any) -> None:
    model = model_of(block)
    found = insides_of(model).by_block
    given, made, _ = hooked(model, {f"block {i + 1}": block for i, block in enumerate(model.blocks)})
    streams = {"block 0": given["block 1"], **made}
    for name, stream in streams.items():
        for member in range(K):
            x = stream[member].detach().double().numpy().reshape(-1, WIDTH)
            singular = torch.linalg.svdvals(torch.from_numpy(x)).numpy()
            gradient = stream.grad[member].double().numpy()
            expected = {
                "massive_activation": np.abs(x).max() / np.sort(np.abs(x).ravel())[(x.size - 1) // 2],
                "kurtosis": scipy.stats.kurtosis(x, axis=None, fisher=False),
                "effective_rank": math.exp(scipy.stats.entropy(singular)),
                "stream_rms": np.sqrt((x**2).mean()),
                "gradient_rms": np.sqrt((gradient**2).mean()),
            }
            if name in made:
                before = given[name][member].detach().double().numpy().reshape(-1, WIDTH)
                norms = np.linalg.norm(before, axis=1) * np.linalg.norm(x, axis=1)
                expected["depth_similarity"] = ((before * x).sum(1) / norms).mean()
            assert {measure: found[measure][name][member] for measure in expected} == pytest.approx(expected, rel=1e-4)
    assert list(found["stream_rms"]) == ["block 0", "block 1", "block 2"]


def softmax(logits: np.ndarray) -> np.ndarray:
    return scipy.special.softmax(logits, axis=-1)


@pytest.mark.parametrize("logits", [{}, {"soft_cap": 0.5}, {"sinks": True}])
def test_attention_against_its_equation(logits: dict[str, Any]) -> None:
    """Of the fused kernel, of logits that are capped, and of a sink without a value."""
    model = model_of({"mixer": {"kind": "attention", "logits": logits}})
    found = insides_of(model).by_block
    for number, block in enumerate(model.blocks, 1):
        _, made, _ = hooked(model, {"query": block.mixer.query, "key": block.mixer.key})
        for member in range(K):
            q, k = (made[name][member].detach().double().numpy().reshape(4, T, HEADS, -1) for name in ("query", "key"))
            scores = np.einsum("bthd,bshd->bhts", q, k) / math.sqrt(WIDTH // HEADS)
            if cap := logits.get("soft_cap"):
                scores = cap * np.tanh(scores / cap)
            scores = np.where(np.tril(np.ones((T, T), dtype=bool)), scores, -np.inf)
            weights = softmax(scores)
            if block.mixer.sinks is not None:
                sink = block.mixer.sinks.logit[member].detach().double().numpy()[None, :, None, None]
                weights = softmax(np.concatenate([scores, np.broadcast_to(sink, (*scores.shape[:3], 1))], -1))[..., :-1]
            expected = {
                "attention_entropy": scipy.special.entr(weights).sum(-1).mean(),
                "first_token_share": weights[:, :, 1:, 0].mean(),
                "largest_logit": scores.max(),
            }
            of_block = {measure: found[measure][f"block {number}"][member] for measure in expected}
            assert of_block == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("block", ["pre_ln", {"mixer": "latent_attention"}, {"mixer": "mamba2"}])
def test_padding_counts_nowhere(block: Any) -> None:
    model = model_of(block)
    for left in (T - 3, 2):
        padded, cut = (insides_of(model, few).by_block for few in (Few(padded=T - left), Few(length=left)))
        assert ("first_token_share" in padded) == (block != {"mixer": "mamba2"})
        for measure, blocks in cut.items():
            for name, values in blocks.items():
                assert padded[measure][name] == pytest.approx(values, rel=1e-4), (measure, name)


def test_summaries_are_means_or_the_largest_and_growths_are_ratios() -> None:
    insides = insides_of(model_of("pre_ln"))
    metrics, by_block = insides.metrics(initial=True), insides.by_block
    for measure, blocks in by_block.items():
        of_blocks = np.array([values for name, values in blocks.items() if name != "block 0"])
        largest = measure in ("largest_logit", "massive_activation")
        expected = of_blocks.max(0) if largest else of_blocks.mean(0)
        assert metrics[f"inside_{measure}"] == pytest.approx(expected.tolist())
    rms, gradients = by_block["stream_rms"], by_block["gradient_rms"]
    grown = [after / before for after, before in zip(rms["block 2"], rms["block 0"], strict=True)]
    assert metrics["inside_initial_forward_growth"] == pytest.approx(grown)
    grown = [early / late for early, late in zip(gradients["block 0"], gradients["block 2"], strict=True)]
    assert metrics["inside_initial_backward_growth"] == pytest.approx(grown)


def test_update_ratios_are_those_of_the_weights_before_and_after_a_step() -> None:
    spec = variant({"depth": DEPTH}, steps=2, insides="evaluations")
    with Pack([Member(spec, 0), Member(spec, 1)], RandomTokens(), CPU) as training:
        for step in (1, 2):
            before = {name: x.detach().clone() for name, x in training.model.named_parameters()}
            training.step(step)
        metrics = training.point().metrics
    after = dict(training.model.named_parameters())
    for place in ("", "_block_1", "_block_2"):
        inner = f"blocks.{int(place[-1]) - 1}." if place else ""
        names = [name for name in before if name.startswith(inner)]
        for member in range(2):
            old, new = (
                np.concatenate([x[name][member].detach().double().numpy().ravel() for name in names])
                for x in (before, after)
            )
            expected = np.linalg.norm(new - old) / np.linalg.norm(old)
            assert metrics[f"inside_update_ratio{place}"][member] == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("name", block_names())
def test_of_every_block_they_are_measured_or_absent_with_a_reason_and_change_no_loss(name: str) -> None:
    named = named_block(name)
    model = {"depth": 2, "width": 12, "family": a_family_for(name), "block": {**named.block, "dropout": 0.1}}
    model["exceptions"] = named.exceptions
    kind = BlockSpec.model_validate(named.block).mixer.kind_name()
    plain, seen = (variant(model, steps=2, insides=insides) for insides in ("none", "evaluations"))
    events = run(seen, [0, 1])
    torch.testing.assert_close(losses(events), losses(run(plain, [0, 1])), rtol=0, atol=0)
    last = points(events)[-1].metrics
    measured = {name for name in last if name.startswith(INSIDE)}
    assert measured <= inside_names(depth=2)
    absent = {measure for measure in INSIDES if f"inside_{measure}" not in measured}
    warnings = [event.text for event in events if type(event).__name__ == "TrialWarning"]
    assert not absent or absent == OF_ATTENTION
    assert bool(absent) == any(kind in text and "attention_entropy" in text for text in warnings)
    assert all(math.isfinite(value) for name in measured for value in last[name])
    together = points(events)[0].metrics  # training would let them drift
    started = train([Member(seen, 1)], RandomTokens(), CPU)
    alone = next(event.metrics for event in started if isinstance(event, Measurement))
    expected = {name: values[0] for name, values in alone.items()}
    assert {name: together[name][1] for name in expected} == pytest.approx(expected, rel=1e-3, abs=1e-6)


def test_a_resumed_trial_keeps_what_was_measured_before_its_first_step() -> None:
    spec = variant({"depth": 2}, steps=4, evaluations=2, insides="ends")
    whole = points(run(spec, [0]))
    state = state_at(spec, [0], 3)
    resumed = points(train([Member(spec, 0)], RandomTokens(), CPU, start=state))
    assert resumed[-1].metrics == whole[-1].metrics
    assert whole[-1].metrics["inside_initial_stream_rms"] == whole[0].metrics["inside_stream_rms"]
    assert not any(name.startswith(INSIDE) for name in whole[1].metrics)
