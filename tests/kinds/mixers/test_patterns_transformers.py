"""Sparse patterns against those of `transformers`, weights copied over: outputs and gradients of the input."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from patterns import D, H, mixer_of
from torch import Tensor, nn

from ablate.kinds.mixers.bigbird import BigBirdSpec
from ablate.kinds.mixers.patterns import LocalSpec
from ablate.kinds.mixers.reformer import ReformerSpec, attend_in_buckets
from ablate.nn.pack import split_heads
from ablate.nn.pack.initial import stream

B = 3


@pytest.fixture(scope="module")
def big_bird() -> Any:
    """Imported when a test runs, as the next two: it takes seconds, which the collection need not wait for."""
    return pytest.importorskip("transformers.models.big_bird.modeling_big_bird")


@pytest.fixture(scope="module")
def reformer() -> Any:
    return pytest.importorskip("transformers.models.reformer.modeling_reformer")


def text(length: int) -> Tensor:
    return torch.randn(B, length, D, generator=stream(3, "x"), dtype=torch.float64).requires_grad_()


def right_padding(length: int, *real: int) -> Tensor:
    return torch.arange(length) < torch.tensor(real)[:, None]


@torch.no_grad()
def copy(mixer: nn.Module, theirs: nn.Module, **names: str) -> None:
    """The maps of member 0 into those of theirs, whose biases become 0; our output map becomes the identity."""
    for ours, their in names.items():
        linear = getattr(theirs, their)
        linear.weight.copy_(getattr(mixer, ours).weight[0].mT)
        if linear.bias is not None:
            linear.bias.zero_()
    mixer.output.weight.copy_(torch.eye(D))


def assert_same(ours: Tensor, theirs: Tensor, x: Tensor, real: Tensor, tolerance: float = 1e-9) -> None:
    torch.testing.assert_close(ours[real], theirs[real], rtol=tolerance, atol=tolerance)
    direction = torch.randn(ours.shape, generator=stream(3, "direction"), dtype=torch.float64) * real[..., None]
    gradients = [torch.autograd.grad((y * direction).sum(), x)[0] for y in (ours, theirs)]
    torch.testing.assert_close(*gradients, rtol=tolerance, atol=tolerance)


@pytest.mark.independent_check("mixers", "bigbird", against="BigBird of `transformers`")
@pytest.mark.parametrize("r", [1, 2])
def test_bigbird(big_bird: Any, r: int, monkeypatch: pytest.MonkeyPatch) -> None:
    block, n = 4, 12
    length = block * n
    mixer = mixer_of(BigBirdSpec(block=block, random_blocks=r), length, pack=1)
    config = big_bird.BigBirdConfig(
        hidden_size=D,
        num_attention_heads=H,
        block_size=block,
        num_random_blocks=r,
        use_bias=False,
        max_position_embeddings=length,
    )
    theirs = big_bird.BigBirdBlockSparseAttention(config, seed=0).double()
    copy(mixer, theirs, query="query", key="key", value="value")
    drawn = [np.asarray(blocks) for blocks in mixer.lots(n, r)[0][0, :, 1:-1]]
    monkeypatch.setattr(theirs, "_bigbird_block_rand_mask_with_head", lambda **_: drawn)
    real = right_padding(length, 48, 31, 13)
    x = text(length)
    blocked, band, of_query, of_key = big_bird.BigBirdModel.create_masks_for_block_sparse_attn(real.double(), block)
    expected, _ = theirs(x, band, of_query, of_key, blocked, blocked)
    assert_same(mixer(x[None], real[None])[0], expected, x, real)


def configured(reformer: Any, chunk: int, hashes: int, causal: bool, before: int) -> Any:
    return reformer.ReformerConfig(
        hidden_size=D,
        num_attention_heads=H,
        attention_head_size=D // H,
        is_decoder=causal,
        num_hashes=hashes,
        num_buckets=2,
        lsh_attn_chunk_length=chunk,
        lsh_num_chunks_before=before,
        lsh_num_chunks_after=0,
        lsh_attention_probs_dropout_prob=0.0,
        local_attn_chunk_length=chunk,
        local_num_chunks_before=before,
        local_num_chunks_after=0,
        local_attention_probs_dropout_prob=0.0,
    )


def test_reformer_chunks_of_one_bucket(reformer: Any) -> None:
    """One bucket: chunks see themselves and the one before. (In theirs the first sees the last, which is padding.)"""
    chunk, length = 5, 30
    mixer = mixer_of(ReformerSpec(hashes=1, chunk=chunk, buckets=2), length, pack=1)
    mixer.hash.rotations.zero_()
    theirs = reformer.LSHSelfAttention(configured(reformer, chunk, 1, causal=False, before=1)).double()
    copy(mixer, theirs, query="query_key", value="value")
    real = right_padding(length, 25, 22, 12)
    x = text(length)
    expected = theirs(x, attention_mask=real, buckets=torch.zeros(B, H, length, dtype=torch.long)).hidden_states
    assert_same(mixer(x[None], real[None])[0], expected, x, real)


@pytest.mark.independent_check("mixers", "reformer", against="Reformer of `transformers`")
@pytest.mark.parametrize("causal", [True, False], ids=["causal", "bidirectional"])
def test_reformer_sorts_and_joins_hashes(reformer: Any, causal: bool) -> None:
    """Two hashes whose buckets fill a chunk each; no two tokens share both, since theirs would count them twice."""
    chunk = 5
    length = chunk * chunk
    mixer = mixer_of(ReformerSpec(hashes=2, chunk=chunk), length, causal, pack=1)
    theirs = reformer.LSHSelfAttention(configured(reformer, chunk, 2, causal, before=0)).double()
    copy(mixer, theirs, query="query_key", value="value")
    shuffled = torch.stack([torch.randperm(length, generator=stream(3, f"{i}")) for i in range(B * H)]).view(
        B, H, length
    )
    buckets = torch.stack([shuffled // chunk, shuffled % chunk], 2)  # [B, H, R, T]
    x = text(length)
    apart = torch.cat([buckets[:, :, 0], buckets[:, :, 1] + chunk], -1)
    expected = theirs(x, buckets=apart).hidden_states
    q, v = (split_heads(project(x[None]), H).flatten(0, 1) for project in (mixer.query, mixer.value))
    found = attend_in_buckets(q, v, buckets, chunk, causal).transpose(1, 2).flatten(2)
    assert_same(found, expected, x, torch.ones(B, length, dtype=torch.bool))


@pytest.mark.independent_check("mixers", "local", against="local attention of Reformer in `transformers`")
@pytest.mark.parametrize("causal", [True, False], ids=["causal", "bidirectional"])
def test_local_blocks(reformer: Any, causal: bool) -> None:
    chunk, length = 5, 30
    mixer = mixer_of(LocalSpec(window=chunk), length, causal, pack=1)
    theirs = reformer.LocalSelfAttention(configured(reformer, chunk, 1, causal, before=0)).double()
    copy(mixer, theirs, query="query", key="key", value="value")
    real = right_padding(length, 30, 22, 12)
    x = text(length)
    assert_same(mixer(x[None], real[None])[0], theirs(x, attention_mask=real).hidden_states, x, real)
