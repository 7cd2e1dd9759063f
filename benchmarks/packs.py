"""Trials per hour: the local engine compared with a serial loop, Optuna and Ray Tune, and packs with single trials.

All rows train the same trials, and their final losses are compared before anything is printed. Workers, joblib's
processes and Ray are started beforehand; the overhead of each trial is included. The rows run in turns. Two ratios are
printed for each: of wall time, for which a user waits, and of processor time over all processes of a row, which other
load on the machine affects less. The baseline is the best of the other ways, by wall time.
"""

from __future__ import annotations

import fcntl
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TextIO

import psutil
import torch

from ablate.execution.driver import run_study
from ablate.execution.engine import Observer
from ablate.execution.environment import describe_environment
from ablate.execution.local import LocalEngine
from ablate.execution.options import RunOptions
from ablate.machine import available_cores
from ablate.nn.kernels.processor import keep_freed_memory
from ablate.planning.packing import Packing
from ablate.planning.plan import Trial
from ablate.planning.planner import Planner, make_plan
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
OPTUNA, REUSED = "Optuna with joblib", "Ray Tune, reused and placed"
AIMS = {SERIAL: 1.5, RAY: 2.0}
"""Target ratios of trials per hour of the local engine to those of other ways."""
OTHERS = (SERIAL, OPTUNA, RAY, REUSED)
"""The ways that are not ours; the best of them is the baseline."""

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


def ray_tune_placed(trials: Sequence[Trial], cache: Path) -> Losses:
    """Train with Ray Tune's reused actors, placed as our workers are: one thread each, pinned to a core of its own."""
    from ray import tune

    jobs = {t.key: (t.variant.spec.model_dump_json(), t.seed, t.variant.fingerprint) for t in trials}

    class Placed(tune.Trainable):
        """One trial a step; `reset_config` gives the actor its next one."""

        def setup(self, config: dict[str, Any]) -> None:
            place(cache)
            self._key = config["key"]

        def reset_config(self, new_config: dict[str, Any]) -> bool:
            self._key = new_config["key"]
            return True

        def step(self) -> dict[str, Any]:
            text, seed, fingerprint = jobs[self._key]
            loss = final_loss(VariantSpec.model_validate_json(text), seed, cache, fingerprint)
            return {"loss": loss, "done": True}

    with tempfile.TemporaryDirectory() as folder:
        tuner = tune.Tuner(
            tune.with_resources(Placed, {"cpu": 1}),
            param_space={"key": tune.grid_search(list(jobs))},
            tune_config=tune.TuneConfig(reuse_actors=True),
            run_config=tune.RunConfig(
                storage_path=folder, checkpoint_config=tune.CheckpointConfig(checkpoint_at_end=False), verbose=0
            ),
        )
        results = tuner.fit()
    trial_results = [results[number] for number in range(len(results))]
    return {
        result.config["key"]: result.metrics["loss"] for result in trial_results if result.config and result.metrics
    }


_held: list[TextIO] = []
"""Files whose locks reserve cores for this process."""


def place(folder: Path) -> None:
    """Give this process one thread, memory that stays with it, and a core that no other process of this folder has."""
    torch.set_num_threads(1)
    keep_freed_memory()
    if sys.platform != "linux" or _held:
        return
    for core in sorted(os.sched_getaffinity(0)):
        file = (folder / f"core{core}").open("w")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.close()
            continue
        _held.append(file)
        os.sched_setaffinity(0, {core})
        return


def optuna_joblib(trials: Sequence[Trial], cache: Path, jobs: int) -> Losses:
    """Train with plain Optuna: a study in a journal file, a trial a task of joblib's processes, one thread each."""
    import joblib  # type: ignore[import-untyped]
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    with tempfile.TemporaryDirectory() as folder:
        file = f"{folder}/journal"
        study = optuna.create_study(study_name="packs", storage=_journal(file))
        for number in range(len(trials)):
            study.enqueue_trial({"number": number})
        texts = [(t.variant.spec.model_dump_json(), t.seed, t.variant.fingerprint) for t in trials]
        tasks = (joblib.delayed(optuna_trial)(file, texts, cache, alone=jobs > 1) for _ in trials)
        joblib.Parallel(n_jobs=jobs)(tasks)
        ended = optuna.load_study(study_name="packs", storage=_journal(file)).trials
    return {trials[trial.params["number"]].key: float(trial.value) for trial in ended if trial.value is not None}


def optuna_trial(file: str, texts: Sequence[tuple[str, int, str]], cache: Path, *, alone: bool) -> None:
    """Train the next trial that waits in a study of Optuna; `alone`: in a process of its own, with one thread."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    if alone:
        torch.set_num_threads(1)

    def objective(trial: optuna.Trial) -> float:
        text, seed, fingerprint = texts[trial.suggest_int("number", 0, len(texts) - 1)]
        return final_loss(VariantSpec.model_validate_json(text), seed, cache, fingerprint)

    optuna.load_study(study_name="packs", storage=_journal(file)).optimize(objective, n_trials=1)


def _journal(file: str) -> Any:
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend

    return JournalStorage(JournalFileBackend(file))


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
    with (
        LocalEngine(RunOptions(cache=cache, device="cpu")) as pinned,
        LocalEngine(RunOptions(cache=cache, device="cpu"), pinned=False) as free,
    ):
        for name, (model, context, steps) in SIZES.items():
            study_space = space(model, context, steps, SEEDS)
            trials = make_plan(Planner(study_space, cache, lambda line: None)).trials
            rows: dict[str, Callable[[], Losses]] = {
                SERIAL: partial(serial, trials, cache),
                "local engine, --pack 1": partial(local, pinned, study_space, cache, 1),
                "  the same, not pinned": partial(local, free, study_space, cache, 1),
                OURS: partial(local, pinned, study_space, cache, None),
            }
            if find_spec("optuna") is not None and find_spec("joblib") is not None:
                rows[OPTUNA] = partial(optuna_joblib, trials, cache, available_cores())
                rows[OPTUNA]()  # starts joblib's processes, which it keeps
            if with_ray:
                rows[RAY] = partial(ray_tune, trials, cache)
                rows[REUSED] = partial(ray_tune_placed, trials, cache)
            for engine in (pinned, free):
                local(engine, space(model, context, 2, 2), cache, 1)  # starts the workers and opens the data
            print(f"{name}, {steps} steps, {len(trials)} trials")
            race(rows, len(trials), REPEATS)
    if with_ray:
        ray.shutdown()


def small(cache: Path) -> None:
    """Compare ways without Ray, in one process each, on the smallest study."""
    study_space = space({"depth": 1, "width": 16, "heads": 2}, 16, 2, 1, OWN_SOURCE)
    trials = make_plan(Planner(study_space, cache, lambda line: None)).trials
    with LocalEngine(RunOptions(cache=cache, device="cpu", workers=1)) as engine:
        rows: dict[str, Callable[[], Losses]] = {
            SERIAL: partial(serial, trials, cache),
            OURS: partial(local, engine, study_space, cache, None),
        }
        if find_spec("optuna") is not None and find_spec("joblib") is not None:
            rows[OPTUNA] = partial(optuna_joblib, trials, cache, 1)
        race(rows, len(trials), 1)


def race(rows: Mapping[str, Callable[[], Losses]], trials: int, repeats: int) -> None:
    """Run the rows in turns, compare their losses and print their times."""
    walls: dict[str, list[float]] = {name: [] for name in rows}
    used: dict[str, list[float]] = {name: [] for name in rows}
    expected: Losses = {}
    for _ in range(repeats):
        for name, row in rows.items():
            begin, before = time.perf_counter(), processor_seconds()
            losses = row()
            walls[name].append(time.perf_counter() - begin)
            used[name].append(processor_seconds() - before)
            expected = expected or losses
            assert losses.keys() == expected.keys(), f"{name} trained different trials"
            worst = max(abs(losses[key] - loss) for key, loss in expected.items())
            assert worst < TOLERANCE, f"{name} is {worst:.1e} off"
    medians = {name: statistics.median(times) for name, times in walls.items()}
    baseline = min((name for name in rows if name in OTHERS), key=medians.__getitem__)
    print(f"  {'':28}{'trials/h':>9}{'wall s':>9}{'cpu s':>8}   ours is faster by: wall, cpu (medians of turns)")
    for name in rows:
        ratios = [statistics.median(_by_turn(times, name)) for times in (walls, used)]  # other load affects both alike
        aim = f"  aim {AIMS[name]}" if name in AIMS else ""
        print(
            f"  {name:28}{3600 * trials / medians[name]:9,.0f}{medians[name]:9.1f}{statistics.median(used[name]):8.1f}"
            f"   {ratios[0]:5.2f} {ratios[1]:5.2f}{aim}{'  <- the baseline' if name == baseline else ''}",
            flush=True,
        )


def _by_turn(times: Mapping[str, Sequence[float]], name: str) -> list[float]:
    """The time of a row over ours, turn by turn."""
    return [theirs / ours for theirs, ours in zip(times[name], times[OURS], strict=True)]


def processor_seconds() -> float:
    """Processor time of this process and of all that it started, those that ended and were waited for among them."""
    own = psutil.Process()
    total = 0.0
    for process in (own, *own.children(recursive=True)):
        with suppress(psutil.NoSuchProcess):
            taken = process.cpu_times()
            total += taken.user + taken.system + taken.children_user + taken.children_system
    return total


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
