"""Writing token by token: what a mixer that keeps what it has read gains over reading the whole text each time."""

from __future__ import annotations

import time
from statistics import median
from typing import Any

import torch

from ablate.nn.model.build import build_model
from ablate.nn.model.decoder import Decoder, States
from ablate.spec.model import ModelSpec

MIXERS = ("attention", "linear", "retention", "gated_linear_attention", "he", "hyena", "local")
CONTEXT, VOCABULARY, REPEATS = 256, 2048, 3
TOLERANCE = 1e-3
"""Between logits, which are rounded in another order."""
MODEL: dict[str, Any] = {"family": "decoder", "depth": 4, "width": 128, "heads": 4, "init_std": 0.1}


@torch.no_grad()
def _anew(model: Decoder, ids: torch.Tensor) -> list[torch.Tensor]:
    return [model(ids[..., : place + 1])[:, :, -1] for place in range(ids.shape[-1])]


@torch.no_grad()
def _kept(model: Decoder, ids: torch.Tensor) -> list[torch.Tensor]:
    states: States = ()
    found = []
    for place in range(ids.shape[-1]):
        logits, states = model.step(ids[..., place : place + 1], place, states)
        found.append(logits[:, :, 0])
    return found


def main(smoke: bool = False) -> None:
    """Print tokens a second of one text of 256 tokens, both ways by turns, and the largest gap between the logits.

    `hyena` and `local` have no form of their own for one more token and read their inputs again; the rest of the model
    then still reads one token.
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
        found = []
        for _ in range(repeats):
            for side, way in enumerate((_anew, _kept)):
                begin = time.process_time()
                found.append(way(model, ids))
                seconds[side].append(time.process_time() - begin)
        gap = max((a - b).abs().max().item() for a, b in zip(found[-2], found[-1], strict=True))
        assert gap < TOLERANCE, f"the two ways of {name} differ by {gap:.1e}"
        ratios = sorted(slow / fast for slow, fast in zip(*seconds, strict=True))
        speeds = [context / median(times) for times in seconds]
        spread = f"{ratios[0]:.1f} to {ratios[-1]:.1f}"
        print(f"{name:24} {speeds[0]:12.0f} {speeds[1]:12.0f} {median(ratios):6.1f}x {spread:>13} {gap:8.1e}")


if __name__ == "__main__":
    main()
