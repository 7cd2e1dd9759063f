"""Token-by-token decoding: the gain of cached states over a full forward pass for each token."""

from __future__ import annotations

import time
from statistics import median
from typing import Any

import torch

from ablate.nn.model import build_model
from ablate.nn.model.decoder import Decoder, States
from ablate.spec.model import ModelSpec

MIXERS = ("attention", "linear", "retention", "gated_linear_attention", "he", "hyena", "local")
CONTEXT, VOCABULARY, REPEATS = 256, 2048, 3
TOLERANCE = 1e-3
"""Maximum difference of logits, which are rounded in different orders."""
MODEL: dict[str, Any] = {"family": "decoder", "depth": 4, "width": 128, "heads": 4, "init_std": 0.1}


@torch.no_grad()
def _full_passes(model: Decoder, ids: torch.Tensor) -> list[torch.Tensor]:
    return [model(ids[..., : position + 1])[:, :, -1] for position in range(ids.shape[-1])]


@torch.no_grad()
def _cached(model: Decoder, ids: torch.Tensor) -> list[torch.Tensor]:
    states: States = ()
    logits_by_position = []
    for position in range(ids.shape[-1]):
        logits, states = model.step(ids[..., position : position + 1], position, states)
        logits_by_position.append(logits[:, :, 0])
    return logits_by_position


def main(smoke: bool = False) -> None:
    """Print tokens per second for a text of 256 tokens, timed in turns, and the largest difference of the logits.

    `hyena` and `local` have no incremental form: they read all inputs again, but the rest of the model reads one token.
    """
    mixers, context, repeats = (MIXERS[:1], 4, 1) if smoke else (MIXERS, CONTEXT, REPEATS)
    torch.set_num_threads(1)
    print(f"{'block':24} {'whole text':>12} {'one token':>12} {'ratio':>7} {'spread':>13} {'gap':>8}   tokens a second")
    for name in mixers:
        block = name if name == "he" else {"mixer": name}
        spec = ModelSpec.model_validate({**MODEL, "block": block})
        model = build_model(spec, vocabulary=VOCABULARY, context=context, seeds=[0]).eval()
        assert isinstance(model, Decoder)
        ids = torch.randint(VOCABULARY, (1, 1, context), generator=torch.Generator().manual_seed(0))
        seconds: tuple[list[float], list[float]] = ([], [])
        outputs = []
        for _ in range(repeats):
            for side, way in enumerate((_full_passes, _cached)):
                begin = time.process_time()
                outputs.append(way(model, ids))
                seconds[side].append(time.process_time() - begin)
        gap = max((a - b).abs().max().item() for a, b in zip(outputs[-2], outputs[-1], strict=True))
        assert gap < TOLERANCE, f"the two ways of {name} differ by {gap:.1e}"
        ratios = sorted(slow / fast for slow, fast in zip(*seconds, strict=True))
        speeds = [context / median(times) for times in seconds]
        spread = f"{ratios[0]:.1f} to {ratios[-1]:.1f}"
        print(f"{name:24} {speeds[0]:12.0f} {speeds[1]:12.0f} {median(ratios):6.1f}x {spread:>13} {gap:8.1e}")


if __name__ == "__main__":
    main()
