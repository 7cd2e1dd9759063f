"""Compiled blocks: the losses of eager ones, their time apart, refusals; kinds under bfloat16."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from engine_samples import planner
from random_tokens import CPU, RandomTokens, variant

from ablate.errors import EngineError
from ablate.execution.environment import check_compiler
from ablate.execution.local import LocalEngine
from ablate.execution.options import RunOptions
from ablate.planning.planner import make_plan
from ablate.spec.training import TrainingSpec
from ablate.training.events import TrialWarning
from ablate.training.loop import train
from ablate.training.members import Member
from ablate.training.pack import Pack
from ablate.training.program import _difference, missing_compiler  # noqa: F401 - the last in the condition of a mark

pytestmark = [  # torch warns of what it does itself
    pytest.mark.filterwarnings("ignore:.*torch.jit.script_method:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf:UserWarning"),
]

# A text is evaluated when a test runs: looking for a compiler imports that of torch.
needs_a_compiler = pytest.mark.skipif("missing_compiler('cpu')", reason="there is no C++ compiler")
MODEL = {"depth": 2, "dropout": 0.2}


@pytest.fixture(autouse=True, scope="module")
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Nothing compiled by another run, or for other instructions, is loaded.

    Each compiler that can build against the headers of torch knows AVX2 and AVX-512. Asking it takes 9 seconds.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path_factory.mktemp("compiled")))
        patch.setattr("torch._inductor.config.cpp.vec_isa_ok", True)
        yield


def losses(seeds: tuple[int, ...], **training: object) -> tuple[list[float], Pack]:
    members = [Member(variant(MODEL, steps=4, **training), seed) for seed in seeds]
    with Pack(members, RandomTokens(), CPU) as pack:
        found = []
        for step in range(1, 5):
            pack.step(step)
            found += pack.last_loss()
        return [*found, *pack.point().metrics["val_loss"]], pack


@needs_a_compiler
def test_compiled_blocks_give_the_losses_of_eager_ones_and_their_time_is_apart() -> None:
    """In a pack of two, with dropout, whose noise is the same."""
    eager, _ = losses((5, 2))
    compiled, pack = losses((5, 2), compile="blocks")
    assert compiled == pytest.approx(eager, abs=1e-5)  # fused operations sum in another order
    assert pack.compile_seconds > 0
    assert 0 < pack.seconds < pack.compile_seconds, "four tiny steps take less than their compilation"
    assert "compiling its blocks took" in pack.warning
    assert len({id(block) for block in pack.model.modules() if block._compiled_call_impl is not None}) == 2


@needs_a_compiler
def test_what_the_compiler_cannot_do_runs_eagerly_with_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    from torch._inductor.exc import InductorError

    def fail(graph: object, *_: object, **__: object) -> None:
        raise InductorError(RuntimeError("no such kernel"))

    torch.compiler.reset()
    monkeypatch.setattr("torch._inductor.compile_fx.compile_fx", fail)
    eager, _ = losses((5,))
    compiled, pack = losses((5,), compile="blocks")
    assert compiled == eager
    assert "run eagerly" in pack.warning
    events = list(train([Member(variant(MODEL, steps=2, compile="blocks"), 5)], RandomTokens(), CPU))
    assert any("run eagerly" in event.text for event in events if isinstance(event, TrialWarning))


def test_without_a_compiler_a_study_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    training = {"steps": 2, "batch_size": 2, "optimizer": {"kind": "adamw", "lr": 1e-3}}
    plan = make_plan(planner(tmp_path, training={**training, "compile": "blocks"}))
    monkeypatch.setenv("PATH", "")
    with (
        LocalEngine(RunOptions(cache=tmp_path / "cache", device="cpu", workers=1)) as engine,
        pytest.raises(EngineError, match=r"C\+\+ compiler"),
    ):
        engine.admit(plan)
    if not torch.cuda.is_available():
        with pytest.raises(EngineError, match="Triton"):
            check_compiler("cuda")
        tf32 = make_plan(planner(tmp_path, training={**training, "precision": "tf32"}))
        with (
            LocalEngine(RunOptions(cache=tmp_path / "cache", device="cpu", workers=1)) as engine,
            pytest.raises(EngineError, match="no TF32"),
        ):
            engine.admit(tf32)


def test_tf32_is_set_while_a_step_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """The settings of torch, in forward and backward pass, and as before afterwards."""
    settings = torch.backends.cuda.matmul, torch.backends.cudnn.conv
    before = [each.fp32_precision for each in settings]
    seen = []

    class Watching(RandomTokens):
        def loss(self, outputs: torch.Tensor, batch: dict[str, torch.Tensor]) -> torch.Tensor:
            look = lambda *_: seen.append([each.fp32_precision for each in settings])  # noqa: E731
            look()
            outputs.register_hook(look)
            return super().loss(outputs, batch)

    with Pack([Member(variant(precision="tf32"), 0)], Watching(), CPU) as pack:
        pack.step(1)
        pack.point()
    assert seen[:2] == [["tf32"] * 2] * 2
    assert [each.fp32_precision for each in settings] == before


def test_defaults_leave_the_hashes_of_trials_as_they_were() -> None:
    plain = TrainingSpec.model_validate({"steps": 2, "batch_size": 2, "optimizer": {"lr": 1e-3}})
    assert "compile" not in plain.canonical()
    assert plain.model_copy(update={"compile": "blocks"}).content_hash() != plain.content_hash()


BLOCKS: dict[str, dict[str, Any]] = {
    "mixture": {"mlp": {"kind": "mixture", "experts": 4, "shared": 1, "balance_loss": 0.01, "balance_rate": 0.001}},
    "squared": {"mlp": {"kind": "plain", "activation": "relu_squared"}, "arrangement": "mlp_first"},
    "dynamic_tanh": {"norm": "dynamic_tanh"},
    "sandwich": {"norm": {"kind": "layer", "place": "sandwich", "bias": False}},
    "layer_scale": {"residual": "layer_scale"},
    "unet_skip": {"residual": {"kind": "unet_skip", "embedding": {"init": 0.1, "trainable": True}}},
    "hyper_connections": {"residual": "hyper_connections"},
    "manifold_hyper_connections": {"residual": "manifold_hyper_connections"},
    "normalised": {"residual": "normalised", "norm": "none"},
    "ends": {},
}
ENDS = {"bigram": {"width": 4}, "smear": {}, "logit_cap": 30, "z_loss": 1e-3, "multi_token": {}, "initialiser": "mup"}
ENDS["loops"] = [{"first": 1, "last": 1, "times": 2}]


@pytest.mark.parametrize("name", BLOCKS)
def test_a_step_in_bfloat16_is_that_in_single_precision_within_its_rounding(name: str) -> None:
    """Bfloat16 has 8 bits; losses near log 17 agree to a hundredth, before and after a step of Muon or AdamW."""
    model = {"block": {"mixer": "attention", **BLOCKS[name]}, **(ENDS if name == "ends" else {})}
    optimizer = {"kind": "adamw" if name == "ends" else "muon", "lr": 1e-3}
    losses = []
    for precision in ("fp32", "bf16"):
        members = [Member(variant(model, precision=precision, optimizer=optimizer), seed) for seed in (3, 4)]
        with Pack(members, RandomTokens(), CPU) as pack:
            pack.step(1)
            first = pack.last_loss()
            pack.step(2)
            losses.append([*first, *pack.last_loss()])
    assert losses[1] == pytest.approx(losses[0], rel=1e-2)


def test_a_replay_may_differ_by_the_rounding_of_its_weights_and_by_no_more() -> None:
    weights, loss = torch.full((100,), 1000.0), torch.tensor([1.0])
    near = torch.nextafter(weights, 2 * weights)
    far = weights + 8 * (near - weights)
    assert _difference([near], [weights], [weights], loss, loss) == ""
    assert "off by" in _difference([far], [weights], [weights], loss, loss)
