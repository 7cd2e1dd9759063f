"""The queue of waiting trials: which start together as one pack, and how large it is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from engine_samples import planner

from ablate.planning.packing import Packing, Queue, ResumablePack, WaitingTrial
from ablate.planning.plan import Trial
from ablate.planning.planner import make_plan

RATES = {
    "switches": {"rate": {f"r{i}": {"training.optimizer.lr": 10.0**-i} for i in (1, 2, 3, 4)}},
    "design": {"kind": "leave_one_out", "seeds": 2},
}
"""Eight trials of one structure."""

Trials = Callable[..., list[Trial]]


@pytest.fixture
def trials(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Trials:
    monkeypatch.chdir(tmp_path)
    return lambda **changes: list(make_plan(planner(tmp_path, **{**RATES, **changes})).trials)


def filled(packing: Packing, trials: Sequence[Trial], workers: int = 1) -> Queue:
    queue = Queue(packing, lambda: workers)
    for trial in trials:
        queue.add(trial)
    return queue


def taken(trials: Sequence[Trial], packing: Packing, workers: int = 1) -> list[list[int]]:
    """Packs of the places of these trials."""
    queue, packs = filled(packing, trials, workers), []
    while queue:
        packs.append([trials.index(waiting.trial) for waiting in queue.take().waiting])
    return packs


def test_packs_are_as_large_as_memory_allows(trials: Trials, monkeypatch: pytest.MonkeyPatch) -> None:
    from ablate.planning.memory import trial_bytes

    made = trials()
    three = 3.5 * trial_bytes(made[0].variant) / 0.8
    monkeypatch.setattr("ablate.planning.packing.free_bytes", lambda device: three)
    assert taken(made, Packing(64, "cuda")) == [[0, 1, 2], [3, 4, 5], [6, 7]]
    assert taken(made, Packing(64, "cuda"), workers=2)[0] == [0, 1, 2]
    assert taken(made, Packing(64), workers=2)[0] == [0], "workers on a processor share its memory"
    monkeypatch.setattr("ablate.planning.packing.free_bytes", lambda device: 1)
    assert taken(made, Packing(64, "cuda")) == [[i] for i in range(8)]


def test_by_default_a_pack_on_a_cpu_is_as_large_as_is_faster(trials: Trials, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ablate.planning.packing.free_bytes", lambda device: 2.0**40)
    made = trials()
    assert taken(made, Packing()) == [list(range(8))]
    wide = {"family": "decoder", "depth": 4, "width": 512, "heads": 2, "block": {"mixer": "attention"}}
    made = trials(model=wide, training={"steps": 2, "batch_size": 32, "optimizer": {"lr": 1e-3}})
    assert taken(made, Packing()) == [[i] for i in range(8)]
    assert taken(made, Packing(device="cuda")) == [list(range(8))]


def test_packs_shrink_when_a_cluster_grows(trials: Trials) -> None:
    made = trials()
    workers = 1
    queue = Queue(Packing(4), lambda: workers)
    for trial in made:
        queue.add(trial)
    assert len(queue.take().waiting) == 4
    workers = 4
    assert len(queue.take().waiting) == 1


def test_the_last_trials_are_divided_among_workers_unless_others_run_long(trials: Trials) -> None:
    """Four trials wait for two: if one worker is nearly done each gets two; if it is busy the other gets all."""
    made = trials()
    for running, wanted in ((0.4, 2), (4.0, 4)):
        queue = filled(Packing(8), made[:4], 2)
        assert len(queue.take(running).waiting) == wanted


def test_a_pack_of_a_dead_driver_continues_as_it_was(trials: Trials) -> None:
    """Its checkpoint has these members in this order; members that are complete or have left only fill their places."""
    made = trials()
    keys = [trial.key for trial in made]
    queue = Queue(Packing(2), lambda: 1)
    for i in (0, 1, 3, 4, 5):  # 2 and 6 are complete; 3 has left, and is requested again
        queue.add(made[i])
    lefts = [
        ResumablePack(tuple(keys[i] for i in (6, 4, 1, 3)), frozenset(keys[i] for i in (6, 4, 1))),
        ResumablePack(("?",), {"?"}),
    ]
    queue.resume(lefts, {trial.key: trial for trial in made})
    first, second, third = queue.take(), queue.take(), queue.take()
    assert [made.index(waiting.trial) for waiting in first.waiting] == [0, 3]
    assert first.whole == ()
    assert [made.index(waiting.trial) for waiting in second.waiting] == [1, 4]
    assert [made.index(trial) for trial in second.whole] == [6, 4, 1, 3]
    assert ([made.index(waiting.trial) for waiting in third.waiting], third.whole) == ([5], ())


def test_a_trial_that_lost_its_worker_alone_is_tried_alone(trials: Trials) -> None:
    made = trials()
    queue = filled(Packing(8), made[1:], 1)
    queue.put_back([WaitingTrial(made[0], 2)])
    assert [waiting.trial for waiting in queue.take().waiting] == [made[0]]
    assert len(queue.take().waiting) == 7


def test_a_pack_that_broke_is_retried_first_in_its_order_and_in_halves(trials: Trials) -> None:
    made = trials()
    queue = filled(Packing(8), made[:2])
    queue.split([WaitingTrial(trial) for trial in made[2:]], 6)
    packs = [[made.index(waiting.trial) for waiting in queue.take().waiting] for _ in range(3)]
    assert packs == [[2, 3, 4], [5, 6, 7], [0, 1]]
