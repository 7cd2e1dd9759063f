"""Trials per hour: the local engine compared with a serial loop and Ray Tune, and packs with single trials.

All rows train the same trials, and their final losses are compared before anything is printed. Workers and Ray are
started beforehand; the overhead of each trial is included.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

from ablate.cores import available_cores
from ablate.execution.driver import run_study
from ablate.execution.environment import describe_environment
from ablate.execution.local import LocalEngine
from ablate.execution.observer import Observer
from ablate.planning.packing import Packing
from ablate.planning.plan import make_plan
from ablate.planning.planned import Trial
from ablate.planning.planner import Planner
from ablate.spec.space import SpaceSpec
from ablate.spec.variant import VariantSpec
from ablate.store import open_store
from ablate.training.events import Measurement
from ablate.training.loop import train
from ablate.training.members import Member
from ablate.training.pack import Pack
from benchmarks.machine import OWN_SOURCE

SEEDS = 4
REPEATS = 3
TOLERANCE = 2e-3
SIZES = {
    "width 32, 2 layers, 8 x 32 tokens": ({"depth": 2, "width": 32, "heads": 4}, 32, 150),
    "width 64, 2 layers, 8 x 64 tokens": ({"depth": 2, "width": 64, "heads": 4}, 64, 100),
}
PACKS = (1, 2, 4, 8, 16)
SERIAL, OURS, RAY = "serial loop, all threads", "local engine, --pack auto", "Ray Tune, fresh actors"
AIMS = {SERIAL: 1.5, RAY: 2.0}
"""Target ratios of trials per hour of the local engine to those of other ways."""

Losses = dict[str, float]
"""Final validation loss of each trial, by key."""


def space(
    model: dict[str, int], context: int, steps: int, seeds: int, data: str = "builtin:python_stdlib"
) -> SpaceSpec:
    """A space with two learning rates of one model."""
    return SpaceSpec.model_validate(
        {
            "name": "packs",
            "question": "How many trials per hour?",
            "task": {
                "kind": "language_model",
                "data": data,
                "tokenizer": {"kind": "bytes"},
                "context": context,
                "validation_windows": 32,
            },
            "model": {"family": "decoder", "block": "pre_ln", **model},
            "training": {"steps": steps, "batch_size": 8, "optimizer": {"lr": 1e-3}, "evaluations": 5},
            "switches": {"rate": {"low": {}, "high": {"training.optimizer.lr": 2e-3}}},
            "design": {"kind": "leave_one_out", "seeds": seeds},
            "objective": {"metric": "val_loss", "direction": "minimize", "margin": 0.1},
        }
    )


def final_loss(variant: VariantSpec, seed: int, cache: Path, fingerprint: str) -> float:
    """Train one trial alone."""
    task = variant.task.open(cache, fingerprint)
    events = train([Member(variant, seed)], task, torch.device("cpu"))
    return [event.metrics["val_loss"][0] for event in events if isinstance(event, Measurement)][-1]


def serial(trials: Sequence[Trial], cache: Path) -> Losses:
    """Train in a plain loop in one process that uses all cores."""
    torch.set_num_threads(available_cores())
    return {t.key: final_loss(t.variant.spec, t.seed, cache, t.variant.fingerprint) for t in trials}


def ray_tune(trials: Sequence[Trial], cache: Path) -> Losses:
    """Train with Ray Tune's defaults: a function, and a new actor with one core for each trial."""
    from ray import tune

    jobs = {t.key: (t.variant.spec.model_dump_json(), t.seed, t.variant.fingerprint) for t in trials}

    def trainable(config: dict[str, Any]) -> dict[str, float]:
        torch.set_num_threads(1)
        text, seed, fingerprint = jobs[config["key"]]
        return {"loss": final_loss(VariantSpec.model_validate_json(text), seed, cache, fingerprint)}

    with tempfile.TemporaryDirectory() as folder:
        tuner = tune.Tuner(
            tune.with_resources(trainable, {"cpu": 1}),
            param_space={"key": tune.grid_search(list(jobs))},
            run_config=tune.RunConfig(storage_path=folder, verbose=0),
        )
        results = tuner.fit()
    trial_results = [results[number] for number in range(len(results))]
    return {
        result.config["key"]: result.metrics["loss"] for result in trial_results if result.config and result.metrics
    }


def local(engine: LocalEngine, study_space: SpaceSpec, cache: Path, most: int | None) -> Losses:
    """Run a whole study, including planning and storing."""
    with tempfile.TemporaryDirectory() as folder, open_store(Path(folder) / "store.db") as store:
        planner = Planner(study_space, cache, lambda line: None)
        run_study(planner, store, engine, describe_environment("cpu"), Observer(), Packing(most))
        keys = [planned.key for planned in store.study(study_space.name).planned]
        return {key: record.metrics["val_loss"] for key, record in store.trials(keys).items()}


def engines(cache: Path) -> None:
    """Print trials per hour of each way to train the same trials."""
    with_ray = find_spec("ray") is not None
    if with_ray:
        import ray

        os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
        os.environ.setdefault("RAY_AIR_NEW_OUTPUT", "0")  # the new output ignores verbose=0
        quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
        ray.init("local", num_cpus=available_cores(), include_dashboard=False, **quiet)
    with LocalEngine(cache) as pinned, LocalEngine(cache, pinned=False) as free:
        for name, (model, context, steps) in SIZES.items():
            study_space = space(model, context, steps, SEEDS)
            trials = make_plan(Planner(study_space, cache, lambda line: None)).trials
            rows: dict[str, Callable[[], Losses]] = {
                SERIAL: partial(serial, trials, cache),
                "local engine, --pack 1": partial(local, pinned, study_space, cache, 1),
                "  the same, not pinned": partial(local, free, study_space, cache, 1),
                OURS: partial(local, pinned, study_space, cache, None),
            }
            if with_ray:
                rows[RAY] = partial(ray_tune, trials, cache)
            for engine in (pinned, free):
                local(engine, space(model, context, 2, 2), cache, 1)  # starts the workers and opens the data
            print(f"{name}, {steps} steps, {len(trials)} trials")
            race(rows, len(trials), REPEATS)
    if with_ray:
        ray.shutdown()


def small(cache: Path) -> None:
    """Compare two ways without Ray on the smallest study."""
    study_space = space({"depth": 1, "width": 16, "heads": 2}, 16, 2, 1, OWN_SOURCE)
    trials = make_plan(Planner(study_space, cache, lambda line: None)).trials
    with LocalEngine(cache, workers=1) as engine:
        ours: dict[str, Callable[[], Losses]] = {OURS: partial(local, engine, study_space, cache, None)}
        race({SERIAL: partial(serial, trials, cache)} | ours, len(trials), 1)


def race(rows: Mapping[str, Callable[[], Losses]], trials: int, repeats: int) -> None:
    """Run the rows in turns, compare their losses and print their times."""
    seconds: dict[str, list[float]] = {name: [] for name in rows}
    expected: Losses = {}
    for _ in range(repeats):
        for name, row in rows.items():
            begin = time.perf_counter()
            losses = row()
            seconds[name].append(time.perf_counter() - begin)
            expected = expected or losses
            worst = max(abs(losses[key] - loss) for key, loss in expected.items())
            assert losses.keys() == expected.keys(), f"{name} trained different trials"
            assert worst < TOLERANCE, f"{name} is {worst:.1e} off"
    medians = {name: statistics.median(times) for name, times in seconds.items()}
    for name, times in seconds.items():
        ratio = medians[SERIAL] / medians[name]
        spread = f"{min(times):.1f} to {max(times):.1f} s"
        print(f"  {name:28}{3600 * trials / medians[name]:9,.0f} trials/h  {ratio:5.2f}x   {spread}", flush=True)
    for other, aim in AIMS.items():
        if other in medians:  # by turn, so that other load affects both alike
            turns = sorted(theirs / ours for theirs, ours in zip(seconds[other], seconds[OURS], strict=True))
            print(f"  ours over {other}: {statistics.median(turns):.2f} ({turns[0]:.2f} to {turns[-1]:.2f}), aim {aim}")


def packs(cache: Path) -> None:
    """Steps of K members as one program on one core, compared with K single steps."""
    torch.set_num_threads(1)
    shapes = {
        "width 16, 2 layers, 8 x 32": ({"depth": 2, "width": 16, "heads": 2}, 32),
        "width 32, 2 layers, 8 x 32": ({"depth": 2, "width": 32, "heads": 4}, 32),
        "width 64, 2 layers, 8 x 64": ({"depth": 2, "width": 64, "heads": 4}, 64),
        "width 128, 4 layers, 8 x 128": ({"depth": 4, "width": 128, "heads": 4}, 128),
    }
    print("member steps per second on one core, relative to K = 1 (all learning rates differ)")
    print(f"  {'':30}" + "".join(f"{f'K={pack}':>8}" for pack in PACKS))
    for name, (model, context) in shapes.items():
        variant = space(model, context, 10_000, 1).resolve({})
        task = variant.task.open(cache, variant.task.prepare(cache, lambda line: None))
        runs = {k: Pack(_members(variant, k), task, torch.device("cpu")) for k in PACKS}
        rates: dict[int, list[float]] = {pack: [] for pack in PACKS}
        for turn in range(REPEATS + 1):
            for size, run in runs.items():
                steps = max(1, (32 if context < 128 else 16) // size)
                begin = time.process_time()  # one thread: other load has less effect
                for step in range(steps):
                    run.step(1 + step)
                if turn:
                    rates[size].append(size * steps / (time.process_time() - begin))
        single = statistics.median(rates[1])
        print(
            f"  {name:30}" + "".join(f"{statistics.median(rate) / single:8.2f}" for rate in rates.values()), flush=True
        )


def _members(variant: VariantSpec, count: int) -> list[Member]:
    training = variant.training
    rates = [training.optimizer.model_copy(update={"lr": 1e-3 * (1 + k)}) for k in range(count)]
    changed = [training.model_copy(update={"optimizer": rate}) for rate in rates]
    return [Member(variant.model_copy(update={"training": each}), k) for k, each in enumerate(changed)]


def main(smoke: bool = False) -> None:
    """Print both tables."""
    threads = torch.get_num_threads()
    with tempfile.TemporaryDirectory() as folder:
        try:
            if smoke:
                small(Path(folder))
                return
            packs(Path(folder))
            print()
            engines(Path(folder))
        finally:
            torch.set_num_threads(threads)


if __name__ == "__main__":
    main()
