"""A driver that is killed at any moment loses nothing that it had recorded, and leaves nothing half-written."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from pathlib import Path

from sqlalchemy import func, select
from store_samples import begin, curve, digest, sql

from ablate.store import TrialState, open_store
from ablate.store.tables import curves, trials

WRITE = """
import sys
sys.path.insert(0, sys.argv[2])
from store_samples import HERE, begin, curve, outcome, start
from ablate.store import open_store
with open_store(sys.argv[1]) as store, store.lease("s") as lease:
    seed = int(sys.argv[3])
    while True:
        key = start(store, "baseline", seed)
        for point in curve(3):
            store.record_points({key: [point]})
        store.record_outcome(outcome("baseline", seed, points=20), HERE)
        print(seed, flush=True)
        lease.renew()
        seed += 1
"""


def test_kill_again_and_again(location: str) -> None:
    chance = random.Random(0)
    with open_store(location) as store:
        begin(store)
    done: list[int] = []
    for turn in range(8):
        command = [sys.executable, "-c", WRITE, location, str(Path(__file__).parent), str(1000 * turn)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
            assert writer.stdout is not None
            done += [int(writer.stdout.readline()) for _ in range(chance.randint(1, 5))]
            time.sleep(chance.uniform(0, 0.03))
            writer.kill()
            done += [int(line) for line in writer.stdout.read().split()]
        keys = [digest(("baseline", seed)) for seed in done]
        with open_store(location) as store:
            records = store.trials(keys)
            assert list(records) == keys
            assert {trial.state for trial in records.values()} == {TrialState.FINISHED}
            assert store.curves(keys) == dict.fromkeys(keys, curve(20))
            cut_off = [digest(("baseline", done[-1] + 1))]
            if all(trial.state is TrialState.RUNNING for trial in store.trials(cut_off).values()):
                store.forget_unfinished(cut_off)
                assert store.trials(cut_off) == {}
    with sql(location) as connection:
        complete = select(func.count()).select_from(trials).where(trials.c.state == TrialState.FINISHED)
        points = select(func.count()).select_from(curves)
        assert connection.execute(points).scalar() == 20 * connection.execute(complete).scalar_one()
