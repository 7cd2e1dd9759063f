"""What the driver writes of a plan that is larger than a driver may be silent for."""

from __future__ import annotations

from pathlib import Path

import pytest
from engine_samples import ENVIRONMENT, planner

from ablate.engine import ledger
from ablate.engine.ledger import Ledger
from ablate.engine.plan import make_plan
from ablate.store import open_store
from ablate.store.leases import Lease


@pytest.mark.parametrize("at_once", [1, 2, 5, 100])
def test_a_plan_that_is_written_in_parts_is_the_plan(
    at_once: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(ledger, "_AT_ONCE", at_once)
    signs: list[str] = []
    renew = Lease.renew
    monkeypatch.setattr(Lease, "renew", lambda self: [signs.append("sign"), renew(self)])
    plan = make_plan(planner(tmp_path))
    assert (len(plan.variants), len(plan.trials)) == (3, 6)
    with open_store(tmp_path / "store.db") as store, store.lease("sample") as lease:
        for _ in range(2):  # the second time in place of the first
            Ledger(store, lease, ENVIRONMENT).begin(plan, {})
            study = store.study("sample")
            assert [variant.name for variant in study.variants] == [variant.name for variant in plan.variants]
            assert [trial.key for trial in study.planned] == [trial.key for trial in plan.trials]
    parts = -(-3 // at_once) - 1 + (0 if at_once >= 6 else -(-6 // at_once))
    assert len(signs) == 2 * (parts + 1)
