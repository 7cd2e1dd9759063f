"""Sparse Sinkhorn attention against its equations; its sorting is doubly stochastic, and hard where the scores are."""

from __future__ import annotations

import pytest
import torch
from every_pair import every_pair
from patterns import LENGTHS, H, K, Slow, assert_is, heads_of, matrix, mixer_of, text
from torch import Tensor, nn

from ablate.kinds.mixers.sinkhorn import SinkhornSpec


def reference(mixer: nn.Module, b: int) -> Slow:
    """Sections 3.1 and 3.2, blocks as lists of tokens; a block without a real token stays where it is."""

    def sorting(k: int, h: int, x: Tensor, real: list[bool]) -> Tensor:
        T = len(x)
        n = -(-T // b)
        most = mixer.sort.weight.shape[-1] // H
        members = [[t for t in range(i * b, min(T, (i + 1) * b)) if real[t]] for i in range(n)]
        filled = [i for i in range(n) if members[i]]
        whole = torch.eye(n, dtype=x.dtype)
        if not filled:
            return whole
        psi = torch.stack([x[members[i]].sum(0) for i in filled])
        S = torch.exp((psi @ mixer.sort.weight[k][:, h * most : (h + 1) * most])[:, filled] / mixer.spec.temperature)
        for _ in range(mixer.spec.iterations):
            S = S / S.sum(1, keepdim=True)
            S = S / S.sum(0, keepdim=True)
        whole[torch.tensor(filled)[:, None], torch.tensor(filled)] = S
        return whole

    def slow(k: int, x: Tensor, real: list[bool]) -> Tensor:
        T = len(x)
        n = -(-T // b)
        q, key, v = (heads_of(mixer, name, k, x) for name in ("query", "key", "value"))
        joined = []
        for h in range(H):
            S = sorting(k, h, x, real)
            rows = []
            for i in range(n):
                own = list(range(i * b, min(T, (i + 1) * b)))
                beside = []  # for each filled place of the sorted block its key and value
                for place in range(b):
                    filled = [j for j in range(n) if j * b + place < T and real[j * b + place]]
                    tokens = [j * b + place for j in filled]
                    if filled:
                        beside.append((S[i, filled] @ key[h, tokens], S[i, filled] @ v[h, tokens]))
                keys = torch.cat([key[h, own], *(k_[None] for k_, _ in beside)])
                values = torch.cat([v[h, own], *(v_[None] for _, v_ in beside)])
                seen = [[real[j] or j == t for j in own] + [True] * len(beside) for t in own]
                rows.append(matrix(q[h, own], keys, seen) @ values)
            joined.append(torch.cat(rows))
        return torch.cat(joined, 1) @ mixer.output.weight[k]

    return slow


@pytest.mark.independent_check("mixers", "sinkhorn", against="arXiv:2002.11296 sec. 3")
@every_pair(
    {
        "block, temperature, iterations": [(4, 0.75, 7), (5, 20.0, 1), (50, 0.75, 3)],
        "length": LENGTHS,
        "padded": [False, True],
    }
)
def test_sinkhorn_is_its_equation(block: int, temperature: float, iterations: int, length: int, padded: bool) -> None:
    spec = SinkhornSpec(block=block, temperature=temperature, iterations=iterations)
    mixer = mixer_of(spec, length)
    assert_is(mixer, reference(mixer, block), length, padded)


def test_sorting_is_doubly_stochastic_over_real_blocks() -> None:
    mixer = mixer_of(SinkhornSpec(block=3, temperature=30.0, iterations=300), 13)
    padding = (torch.arange(13) < 8).expand(K, 2, -1)
    for mask, real in ((None, 5), (padding, 3)):
        S = mixer.sorting(text(13), mask)
        ones = torch.ones(S.shape[:-1], dtype=torch.float64)
        torch.testing.assert_close(S.sum(-1), ones, rtol=1e-6, atol=1e-6)
        torch.testing.assert_close(S.sum(-2), ones, rtol=1e-6, atol=1e-6)
        assert (S[..., :real, real:] == 0).all()
        torch.testing.assert_close(S[..., real:, real:], torch.eye(5 - real, dtype=torch.float64).expand(4, H, -1, -1))
