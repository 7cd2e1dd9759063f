"""The whole text of answers to simulated studies, which somebody has read beside what was simulated.

A change of an answer shows as a change of `golden_answers/NAME.md`. `python tests/analysis/test_golden_answers.py`
writes them; who commits them has read the difference.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path += map(str, Path(__file__).resolve().parents[:3])

import numpy as np
import pytest
from designed_study import on_off, run
from fake_store import NOON, FakeStore, fake_store
from rich.console import Console
from test_claim_verdicts import claim, store_with
from test_numbering import studied as numbered
from test_read_course import studied as moving
from test_read_ladder import loss
from test_read_ladder import studied as climbing
from test_read_scaling import studied as budgeted
from test_read_scaling import swept
from test_read_schedule import SCHEDULED, store_of
from test_suite import MEANS, drawn, suite
from test_target import studied as reaching

from ablate.analysis.answer import answer_of
from ablate.analysis.findings import read_findings
from ablate.analysis.search import fresh_values, what_best_has, which_seeds
from ablate.analysis.status import read_overview
from ablate.analysis.why import why
from ablate.render.answer import answer_text, print_why
from ablate.render.formats import render_report
from ablate.render.table import print_study
from ablate.roles import TrialRole
from ablate.spec.suite import on_data
from ablate.spec.task import task_hash
from ablate.store.records import (
    WINDOWS,
    Declaration,
    JudgedRuns,
    PlannedTrial,
    Recording,
    SharedTrials,
    SpeedTiming,
    TrialState,
)

GOLDEN = Path(__file__).with_name("golden_answers")
EFFECTS = {"a": 0.5, "b": 0.02, "c": -0.4, "d": 0.09}
"""Of each part that is taken away; without `a` and `b` it is 0.3 worse than their sum."""
LONG = {name: {"removes": f"the {of} of the attention sub-layer"}
        for name, of in (("a", "skip"), ("b", "output projection"), ("c", "value projection"))}  # fmt: skip
WORDS = {"a": {"removes": "the skip"}, "b": {"removes": "the norm"}, "c": {"replaces": "ReLU by GELU"}}
DESIGNS: dict[str, dict[str, Any]] = {
    "leave_one_out": {"seeds": 4},
    "grid": {"seeds": 2},
    "fractional": {"resolution": "III", "seeds": 2},
    "simplify": {"seeds": 3, "beam": 2, "confirm": 3},
    "add_one_in": {"seeds": 3},
    "sweep": {"path": "model.heads", "values": [1, 2, 4], "seeds": 3},
    "search": {"sampler": "random", "points": 6, "seeds": 3, "objectives": ["objective", "parameters"]},
}
NUMBERS = {"confirm": 3, "objectives": ["objective"], "ranges": {"model.heads": {"low": 1, "high": 4}}}


def designed(
    kind: str,
    words: Mapping[str, Any] = WORDS,
    design: Mapping[str, Any] = {},
    effects: Mapping[str, float] = EFFECTS,
    **options: Any,
) -> FakeStore:
    sign = 1 if options.get("direction", "minimize") == "minimize" else -1
    heads = options.get("plain", {}).get("model.heads", 0)

    def truth(settings: Mapping[str, str], values: Mapping[str, Any]) -> float | None:
        off = {name for name, setting in settings.items() if setting == "off"}
        if kind == "leave_one_out" and "e" in off:
            return None
        return 3 + sign * (sum(effects.get(name, 0.0) for name in off) + 0.3 * ({"a", "b"} <= off)
                           - values.get("model.heads", heads) / 10)  # fmt: skip

    names = "abcde" if kind == "leave_one_out" else "abc"
    both = {"a": "off", "b": "off"}
    variants = (
        {"plain": {"a": "off"}}
        if kind == "sweep"
        else {"both": both, "again": {"a": "off"}}
        if kind == "leave_one_out"
        else {}
    )
    made = run({"kind": kind} | DESIGNS[kind] | design, on_off(*names), truth, noise=0.02, variants=variants, **options)
    switches = {name: {"on": {}, "off": words.get(name, {})} for name in names}
    made.record = replace(made.record, space=made.record.space | {"switches": switches})
    return made


def with_failures() -> FakeStore:
    """A trial failed of an undecided variant that keeps three pairs, and three of one that would be as good."""
    made = designed("leave_one_out")
    for name, seed in (("d=off", 1), ("b=off", 0), ("b=off", 1), ("b=off", 3)):
        made.add(name, seed, state=TrialState.FAILED, reason="out of memory")
    return made


def failed_once() -> FakeStore:
    """Of two seeds, one failed of one variant and none finished of the other."""
    made = designed("leave_one_out", design={"seeds": 2})
    made.add("d=off", 1, state=TrialState.FAILED, reason="out of memory")
    for seed in (0, 1):
        made.add("b=off", seed, state=TrialState.FAILED, reason="out of memory")
    return made


def timed() -> FakeStore:
    """A ladder whose variant needs half the compute, and twice the seconds for a token."""
    made = climbing(lambda compute: loss(2 * compute))
    for rung, spread in ((4, 1.0), (5, 3.0)):
        ours, theirs = (50.0, 50.0 + spread, 50.0 - spread) * 4, (100.0, 99.0, 101.0) * 4
        made.timed[f"a=off@rung={rung}/0"] = (SpeedTiming(f"hash of baseline@rung={rung}", ours, theirs, "cpu"),)
    return made


def scheduled_later() -> FakeStore:
    """The study declared three seeds and, after their results, a schedule; one of its trials has not finished."""
    made = store_of(SCHEDULED, {"start": 3, "max": 8})
    before = Declaration(made.record.objective, [], NOON, 9, 3)
    made.record = replace(made.record, declared_before=(before,))
    del made.trial_records["near=x/4"]
    return made


def lost_in_a_sweep() -> FakeStore:
    """A trial of the baseline diverged at the second of four values, and one of the variant failed at the third."""
    made = designed("sweep", design={"values": [1, 2, 4, 8]})
    made.add("baseline@model.heads=2", 1, {}, state=TrialState.DIVERGED)
    made.add("plain@model.heads=4", 2, state=TrialState.FAILED, reason="out of memory")
    return made


def lost_in_a_suite() -> FakeStore:
    made = suite(drawn(np.random.default_rng(1), MEANS))
    made.add("linear@task=copy", 1, state=TrialState.FAILED, reason="out of memory")
    made.add("delta@task=parity", 2, {}, state=TrialState.DIVERGED)
    return made


def suite_of_six() -> FakeStore:
    """More tasks than a headline speaks of; the variants differ on four of them."""
    by = {"baseline": 0.0, "linear": -0.15, "delta": 0.06, "mamba": 0.0}
    means = {name: {f"t{task}": 0.8 + more * (task % 3) for task in range(6)} for name, more in by.items()}
    return suite(drawn(np.random.default_rng(1), means))


def suite_ended_early() -> FakeStore:
    """Runs of a trainer of the user's own on each task, of which two of one variant ended before the others."""
    made = suite(drawn(np.random.default_rng(1), MEANS))
    spec = {"trainer": {"command": "python train.py", "steps": 100}}
    made.record = replace(made.record, variants=tuple(replace(one, spec=spec) for one in made.record.variants))
    for key, trial in made.trial_records.items():
        early = key in ("delta@task=copy/0", "delta@task=copy/2")
        made.trial_records[key] = replace(trial, steps=60 if early else 100)
    return made


def suite_extended() -> FakeStore:
    """A suite with five seeds, which declared three and, when they had ended, two more."""
    made = suite(drawn(np.random.default_rng(1), MEANS, 5), seeds=5)
    design = made.record.space["design"] | {"seeds": 3}
    seen = dict.fromkeys((variant.name for variant in made.record.variants), 3)
    before = Declaration(
        made.record.objective, [], NOON, 9, 3, space=made.record.space | {"design": design}, variants=seen, pairs=3
    )
    made.record = replace(made.record, declared_before=(before,))
    return made


def easily_reached() -> FakeStore:
    """A target that the trivial baseline reaches."""
    made = reaching({"baseline": [900, 950, 920], "fast": [600, 640, 610]})
    made.record = replace(made.record, trivial={"unigram": {"val_loss": 1.8}})
    return made


def judged() -> FakeStore:
    """Runs that were trained elsewhere, one for each of four tasks; those of one variant are not paired."""
    made = of_unknown_models({})
    names = {variant.name for variant in made.record.variants}
    units = dict(enumerate(("arc", "boolq", "piqa", "sciq")))
    notes, limits = ("1 row without a loss was left out.",), (("weak", "one of the tasks has few questions"),)
    runs = JudgedRuns("task", frozenset(names - {"b=off"}), "4 tasks", limits, notes, units=units)  # type: ignore[arg-type]
    made.record = replace(made.record, judged=runs, source="scores.csv")
    return made


def of_unknown_models(space: Mapping[str, Any]) -> FakeStore:
    """A study whose models ablate has not built."""
    made = designed("leave_one_out")
    variants = tuple(replace(variant, parameters=None, activation_bytes=None) for variant in made.record.variants)
    made.record = replace(made.record, variants=variants, space=made.record.space | space)
    return made


def tuned(waiting: str = "d=off", noise: float = 0.0, plain: float = 0.2) -> FakeStore:
    """Each variant was tuned over three rates with two seeds. Without the skip the largest won; one waits."""
    made, rates = designed("leave_one_out"), (0.1, 0.2, 0.4)
    best, rng = {"a=off": 0.4, "again": 0.4, "baseline": plain}, np.random.default_rng(3)
    variants, tried, planned = [], [], []
    for variant in made.record.variants:
        variants.append(replace(variant, spec={"training": {"lr": best.get(variant.name, 0.2)}}))
        for rate in rates:
            name = f"{variant.name} (training.lr={rate})"
            tried.append(replace(variant, name=name, hash=f"hash {name}", spec={"training": {"lr": rate}}))
            for seed in (1000, 1001):
                planned.append(PlannedTrial(f"{name}/{seed}", name, seed, TrialRole.TUNING))
                if variant.name != waiting or rate < 0.4:
                    off = abs(rate - best.get(variant.name, 0.2))
                    made.add(name, seed, {"val_loss": 3.0 + off + seed / 1e5 + noise * rng.normal()}, flops=1e8)
    kept = tuple(one for one in made.record.planned if one.variant != waiting)
    space = made.record.space | {"tune": {"grid": {"training.lr": [*rates]}, "seeds": 2}}
    made.record = replace(made.record, space=space, variants=tuple(variants), planned=kept,
                          scout_variants=tuple(tried), scout_trials=tuple(planned))  # fmt: skip
    return made


def of_windows() -> FakeStore:
    """One trained model, compared on validation windows; `b=off` was trained further."""
    made, rng = (
        fake_store({name: ({"a": name}, 10) for name in ("baseline", "a=off", "b=off")}, 1),
        np.random.default_rng(2),
    )
    base = rng.normal(3.0, 0.4, 40)
    steps = {"baseline": 0, "a=off": 0, "b=off": 50}
    made.record = replace(made.record, variants=tuple(
        replace(one, spec={"training": {"steps": steps[one.name]}}) for one in made.record.variants))  # fmt: skip
    for name, worse in (("baseline", 0.0), ("a=off", 0.3), ("b=off", 0.001)):
        values = (base + worse + rng.normal(0, 0.02 * (worse > 0), 40)).tolist()
        made.add(name, 0, {"val_loss": float(np.mean(values))})
        made.recorded[f"{name}/0"] = (Recording(0, {WINDOWS: {"val_loss": values}}),)
    return made


def with_pruned(count: int = 2) -> FakeStore:
    """A search that ended the trials of so many of its six points early."""
    made = designed("search", design={"objectives": ["objective"]})
    for variant in made.record.variants[-count:]:
        for seed in range(3):
            made.add(variant.name, seed, state=TrialState.PRUNED)
    return made


def with_another_metric() -> FakeStore:
    """The table shows costs, and an accuracy that one trial lacks."""
    made = designed("grid")
    made.record = replace(made.record, space=made.record.space | {"columns": ["val_accuracy", "flops"]})
    for number, (key, trial) in enumerate(made.trial_records.items()):
        if trial.metrics and key != "b=off/1":
            made.trial_records[key] = replace(trial, metrics=trial.metrics | {"val_accuracy": 0.5 + number / 100})
    return made


def ended_early() -> FakeStore:
    """Runs of a trainer of the user's own, of which one variant's ended before the others."""
    made = of_unknown_models({"trainer": {"command": "python train.py", "steps": 100}})
    spec = {"trainer": {"command": "python train.py", "steps": 100}}
    made.record = replace(made.record, variants=tuple(replace(one, spec=spec) for one in made.record.variants))
    for key, trial in made.trial_records.items():
        made.trial_records[key] = replace(trial, steps=60 if key in ("c=off/0", "c=off/2") else 100)
    return made


def longer() -> FakeStore:
    """Two differences still move at the end of a training whose length the space says."""
    made = moving(lambda step: 0.0002 * step - 0.02)
    made.record = replace(made.record, space=made.record.space | {"training": {"steps": 1200}})
    return made


def read_before() -> FakeStore:
    """Trials of two variants were compared in two earlier studies, and the store has one more study."""
    made = designed("leave_one_out")
    before = (SharedTrials("first", ("a=off", "c=off")), SharedTrials("second", ("c=off",)))
    made.record = replace(made.record, shared=before, studies=2)
    return made


def unlearnt() -> FakeStore:
    """No model is better than a table of bigrams."""
    made = longer()
    made.record = replace(made.record, trivial={"bigram": {"val_loss": 1.0}})
    return made


def ladder_of_two() -> FakeStore:
    """A ladder of two variants that both need half the compute."""
    made = climbing(lambda compute: loss(2 * compute))
    for key, trial in list(made.trial_records.items()):
        if key.startswith("a=off"):
            value = trial.metrics["val_loss"] + 0.001 * (-1) ** trial.seed
            made.add(key.replace("a=", "b=").rpartition("/")[0], trial.seed, {"val_loss": value}, flops=trial.flops)
    variants, planned = list(made.record.variants), list(made.record.planned)
    variants += [replace(one, name=one.name.replace("a=", "b="), hash=f"{one.hash} of b", settings={"b": "off"})
                 for one in variants if one.name.startswith("a=off")]  # fmt: skip
    planned += [replace(one, key=one.key.replace("a=", "b="), variant=one.variant.replace("a=", "b="))
                for one in planned if one.variant.startswith("a=off")]  # fmt: skip
    made.record = replace(made.record, variants=tuple(variants), planned=tuple(planned))
    return made


def dropped() -> FakeStore:
    """A ladder of two variants, which dropped one after its third rung, where its gain had turned."""
    made = ladder_of_two()
    for seed in range(4):
        value = made.trial_records[f"a=off@rung=3/{seed}"].metrics["val_loss"]
        made.add("a=off@rung=3", seed, {"val_loss": value + 0.3}, flops=1e13)
    gone = ("a=off@rung=4", "a=off@rung=5")
    made.record = replace(made.record, planned=tuple(one for one in made.record.planned if one.variant not in gone))
    made.trial_records = {key: trial for key, trial in made.trial_records.items() if not key.startswith(gone)}
    return made


def measured_further() -> FakeStore:
    """Trials were tested and evaluated at other lengths, `b=off` at one of them; two variants were timed."""
    made = designed("leave_one_out", effects={"a": 0.05, "b": 0.02, "c": -0.05, "d": 0.09})
    for key, trial in made.trial_records.items():
        if value := trial.metrics.get("val_loss"):
            lengths = (512,) if key.startswith("b=off") else (512, 64)
            others = {f"val_loss_at_{length}": value + length / 100 for length in lengths}
            others |= {"val_accuracy_at_64": 0.5, "test_loss": value + 0.1}
            made.trial_records[key] = replace(trial, metrics=trial.metrics | others)
    for name, rates in (("a=off", (110.0, 111.0, 109.0)), ("b=off", (50.0, 250.0, 100.0))):
        made.timed[f"{name}/0"] = (SpeedTiming("hash baseline", rates, (100.0, 99.0, 101.0), "cpu"),)
    return made


def asking(question: str, seeds: int = 2) -> FakeStore:
    made = designed("grid", design={"seeds": seeds})
    made.record = replace(made.record, question=question)
    return made


def swept_variants(count: int, truth: Callable[[str, float], float]) -> FakeStore:
    """A sweep of so many variants over three numbers of heads, of which one variant cannot have the last."""

    def value(settings: Mapping[str, str], values: Mapping[str, Any]) -> float:
        return 3 + sum(truth(name, values["model.heads"]) for name, setting in settings.items() if setting == "off")

    names = "abcde"[:count]
    variants = {f"no_{name}": {name: "off"} for name in names}
    return run({"kind": "sweep"} | DESIGNS["sweep"], on_off(*names), value, noise=0.02, variants=variants,
               refusal=lambda point: "8 heads" if point.name == "no_c@model.heads=4" else None)  # fmt: skip


def claimed(he: int = 4, far: int = 4) -> FakeStore:
    """Three variants, of which two have so many seeds, and a claim of every kind: true, false, or not decided."""
    claims = [claim(expect, id=f"{expect}-{number}") | ({} if number else {"left": "attention", "right": "he"})
              for expect in ("better", "not_worse", "worse", "equal") for number in (0, 1)]  # fmt: skip
    ordered = {"id": "o", "order": ["he", "attention", "far"], "expect": "ordered", "margin": 0.01}
    amount = {"id": "n", "subject": {"variant": "far", "quantity": "val_loss", "over": "attention"}, "expect": 0.3}
    losses = {
        "attention": [2.0, 2.1, 1.9, 2.05],
        "he": [2.12, 2.21, 2.02, 2.16][:he],
        "far": [2.3, 2.42, 2.18, 2.36][:far],
    }
    return store_with([*claims, ordered, amount | {"tolerance": 0.05}], losses)


def between(left: str, expect: str, right: str, **others: Any) -> dict[str, Any]:
    id = "-".join((*others.get("metric", "").split(), left, expect, right))
    return claim(expect, **{"id": id, "left": left, "right": right, "says": ""} | others)


def numbered_claim(
    variant: str, quantity: str, expect: float, tolerance: float = 0.0, over: str = ""
) -> dict[str, Any]:
    subject = {"variant": variant, "quantity": quantity} | ({"over": over} if over else {})
    id = f"{quantity}-of-{variant}{over and '-over-'}{over}"
    return {"id": id, "subject": subject, "expect": expect, "tolerance": tolerance}


def claimed_of_costs() -> FakeStore:
    """Claims on figures of cost. `he` was timed beside the baseline in three rounds; an old ablate stored `far`."""
    claims = [
        between(left, expect, right, metric=metric, margin=margin)
        | ({"direction": "maximize"} if metric in ("val_accuracy", "val_bleu") else {})
        for metric, expect, margin, sides in (
            ("parameters", "better", 900.0, (("he", "attention"), ("attention", "he"))),
            ("activation_bytes", "equal", 24.0, (("he", "attention"), ("he", "far"), ("far", "he"))),
            ("flops", "worse", 1e8, (("attention", "he"), ("he", "far"), ("far", "attention"))),
            ("tokens_per_second", "better", 20.0, (("he", "attention"), ("attention", "he"), ("far", "attention"))),
            ("seconds", "not_worse", 1.0, (("he", "attention"), ("attention", "he"))),
            ("val_accuracy", "equal", 0.1, (("he", "attention"), ("he", "lost"))),
            ("val_f1", "equal", 0.1, (("he", "attention"),)),
            ("val_bleu", "better", 0.1, (("he", "attention"),)),
            ("inside_largest_logit", "better", 0.1, (("he", "attention"), ("attention", "he"))),
        )
        for left, right in sides
    ]
    claims += [
        between("he", "worse", "attention", metric="parameters", direction="maximize", margin=900),
        numbered_claim("he", "parameters", 18_123_000, 7),
        numbered_claim("he", "parameters", 0.86, 0.01, "attention"),
        numbered_claim("he", "activation_bytes", 1, 0.1, "far"),
        numbered_claim("he", "flops", 3e9),
        numbered_claim("far", "flops", 3e9),
        numbered_claim("he", "tokens_per_second", 1.5, 0.2, "attention"),
        numbered_claim("he", "seconds", 12, 5),
        numbered_claim("he", "val_accuracy", 0.5, 0.01),
        numbered_claim("he", "val_accuracy", 2.0, 0.1, "attention"),
        numbered_claim("he", "val_loss", 3.0, 0.1, "lost"),
    ]
    losses = {"attention": [2.0, 2.1, 1.9], "he": [2.12, 2.21, 2.02], "far": [2.3, 2.42, 2.18]}
    made = store_with(claims, losses)
    sizes = {"attention": (20_947_008, 4096), "he": (18_123_008, 4072), "far": (None, None)}
    variants = [replace(one, parameters=sizes[one.name][0], activation_bytes=sizes[one.name][1])
                for one in made.record.variants]  # fmt: skip
    made.record = replace(made.record, variants=tuple(variants))
    only = {"attention": {"inside_largest_logit": 9.0}, "he": {"val_bleu": 0.3}}
    for name in ("attention", "he"):
        for seed, value in enumerate(losses[name]):
            accuracy = {"val_accuracy": (0.5 + seed / 200 if name == "he" else 0.25 + seed / 1000)}
            flops = 3e9 if name == "he" else 3.2e9
            made.add(name, seed, {"val_loss": value} | accuracy | only[name], tokens=2000 + seed, flops=flops)
    for seed in range(3):
        made.trial_records.pop(f"far/{seed}")
    made.time("he", (150.0, 155.0, 149.0), (100.0, 99.0, 101.0))
    return made


def with_seeds(made: FakeStore, seeds: Sequence[int]) -> FakeStore:
    """The same study with these seeds instead of 0, 1, 2 ..."""
    made.record = replace(made.record, planned=tuple(replace(one, seed=seeds[one.seed]) for one in made.record.planned))
    for key, trial in made.trial_records.items():
        made.trial_records[key] = replace(trial, seed=seeds[trial.seed])
    return made


def claimed_of_lost() -> FakeStore:
    """Claims on trials that diverged (`gone`, `also`), failed (`he`), or have an infinite perplexity (`far`)."""
    pairs = (
        *(("he", "attention"), ("attention", "he"), ("gone", "attention"), ("he", "gone"), ("gone", "also")),
        *(("also", "far"), ("far", "also")),
    )
    claims = [between(left, expect, right)
              for expect in ("not_worse", "worse") for left, right in pairs]  # fmt: skip
    claims += [
        claim("better", id="perplexity", left="far", right="attention", metric="val_perplexity", direction="minimize"),
        claim("ordered", id="order", order=["far", "he", "attention"], margin=0.01),
        claim("ordered", id="noisy", order=["attention", "noisy", "far"], margin=0.01),
        numbered_claim("he", "val_loss", 2.0, 0.5),
        numbered_claim("gone", "val_loss", 2.0, 0.5),
        numbered_claim("far", "val_loss", 1.0, 0.5, "gone"),
        numbered_claim("attention", "val_perplexity", 1.0, 0.5, "noisy"),
        numbered_claim("he", "val_loss", 3.0, 0.1, "lost"),
    ]
    base = [2.0, 2.1, 1.9, 2.05]
    names = {"attention": 0.0, "he": 0.2, "far": 0.4, "gone": 0.1, "also": 0.1}
    losses = {name: [one + worse + worse / 50 * (-1) ** seed for seed, one in enumerate(base)]
              for name, worse in names.items()} | {"noisy": [2.4, 2.0, 1.9, 2.3]}  # fmt: skip
    made = store_with(claims, losses)
    for name in ("attention", "far", "noisy"):
        for seed, value in enumerate(losses[name]):
            perplexity = float("inf") if name == "far" and seed == 2 else 9.0 * (name != "noisy" or seed % 2 == 0)
            made.add(name, seed, {"val_loss": value, "val_perplexity": perplexity})
    for name, seed in (("gone", 1), ("gone", 3), ("also", 3)):
        made.add(name, seed, state=TrialState.DIVERGED, stopped_at=5)
    made.add("he", 3, state=TrialState.FAILED, reason="out of memory")
    made.add("far", 3, state=TrialState.FAILED, reason="out of memory")
    return with_seeds(made, (9, 8, 3, 1))


def claimed_of_trends(direction: str = "minimize") -> FakeStore:
    """How the gaps of three mixers move along contexts: one grows, one shrinks, one grows at its first step alone."""
    sign, rng = 1 if direction == "minimize" else -1, np.random.default_rng(4)
    gaps = {"attention": (0.0,) * 3, "he": (0.1, 0.2, 0.4), "far": (0.3, 0.28, 0.24), "bent": (0.1, 0.4, 0.405)}
    claims = [between(left, expect, right, along="context", margin=0.01)
              for left, right in (("he", "attention"), ("attention", "he"), ("bent", "attention"), ("far", "he"))
              for expect in ("grows", "shrinks")]  # fmt: skip
    losses, settings = {}, {}
    for place, context in enumerate((64, 128, 512)):
        base = rng.normal(3.0, 0.2, 4)
        for mixer, better in gaps.items():
            name = f"{mixer},context={context}" if place else mixer
            losses[name] = base - sign * better[place] + rng.normal(0, 0.002, 4)
            settings[name] = {"mixer": mixer, "context": str(context)}
    return store_with(claims, losses, settings, direction=direction)


def claimed_of_target() -> FakeStore:
    """Claims on the time to a target, which two seeds of `slow` did not reach."""
    sides = (("fast", "baseline"), ("baseline", "fast"), ("slow", "baseline"), ("fast", "slow"))
    claims = [between(left, expect, right)
              for expect in ("better", "equal") for left, right in sides]  # fmt: skip
    claims += [
        numbered_claim("fast", "steps_to_1.9", 600, 50),
        numbered_claim("slow", "steps_to_1.9", 1.5, 0.3, "fast"),
    ]
    times = {"baseline": [900, 950, 920], "fast": [600, 640, 610], "slow": [1500, 1400, 1100]}
    return reaching(times, claims=claims)


def claimed_of_unlearnt(bigram: float = 2.2) -> FakeStore:
    """Two of three variants, or all, do not beat what counting gives; claims on costs and numbers do not need that."""
    made = claimed()
    claims = [between("attention", "better", "he"), between("far", "worse", "he"), *made.record.space["claims"][-2:]]
    claims += [between("far", "equal", "he", metric="parameters"), between("far", "equal", "he", metric="val_f1")]
    trivial = {"bigram": {"val_loss": bigram}}
    made.record = replace(made.record, trivial=trivial, space=made.record.space | {"claims": claims})
    return made


def claimed_in_looks() -> FakeStore:
    """Claims of a study that looks at its results after each seed from the third on."""
    claims = [between(left, expect, "attention") for expect in ("better", "equal") for left in ("he", "near")]
    claims += [
        claim("ordered", id="order", order=["attention", "near", "he"]),
        numbered_claim("he", "val_loss", 2.1, 0.2),
    ]
    losses = {"attention": [2.0, 2.1, 1.9, 2.05], "he": [2.12, 2.21, 2.02, 2.16], "near": [2.03, 2.08, 1.99, 2.02]}
    return store_with(claims, losses, seeds={"start": 3, "max": 8})


def claimed_in_a_suite() -> FakeStore:
    """Claims on the mean score and on single tasks of a suite, which was declared again when results had been seen."""
    sides = (("linear", "baseline"), ("delta", "linear"))
    claims = [
        between(left, "worse", right) | ({"id": f"{left}-{task}", "task": task} if task else {})
        for task in ("", "recall", "copy")
        for left, right in sides
    ]
    made = suite(drawn(np.random.default_rng(1), MEANS), claims)
    seen = dict.fromkeys((variant.name for variant in made.record.variants), 3)
    before = Declaration(made.record.objective, claims, NOON, 9, 3, space=made.record.space, variants=seen, pairs=3)
    made.record = replace(made.record, declared_before=(before,))
    return made


def grid_lost(direction: str = "minimize") -> FakeStore:
    """A grid in which all trials without `a` and `b` diverged, and one trial without `c`."""
    made = designed("grid", direction=direction)
    for key in list(made.trial_records):
        name, _, seed = key.partition("/")
        if ("a=off" in name and "b=off" in name) or key == "c=off/1":
            made.add(name, int(seed), {}, state=TrialState.DIVERGED, stopped_at=7)
    return made


def grid_tuned() -> FakeStore:
    """A grid whose variants were each tuned over two learning rates with two seeds; the first rate is better."""
    made = designed("grid")
    grid = {"training.lr": [0.1, 0.2]}
    variants = tuple(replace(one, spec={"training": {"lr": 0.1}}) for one in made.record.variants)
    tried, planned = [], []
    for variant in variants:
        for rate in grid["training.lr"]:
            name = f"{variant.name} (training.lr={rate})"
            tried.append(replace(variant, name=name, hash=f"hash {name}", spec={"training": {"lr": rate}}))
            for seed in (1000, 1001):
                planned.append(PlannedTrial(f"{name}/{seed}", name, seed, TrialRole.TUNING))
                noise = 0.03 * (seed == 1000) * (rate == 0.2) + 0.01 * (variant.name == "a=off")
                made.add(name, seed, {"val_loss": 3.0 + rate / 10 - noise}, flops=1e8)
    space = made.record.space | {"tune": {"grid": grid, "seeds": 2}}
    made.record = replace(made.record, space=space, variants=variants, scout_variants=tuple(tried),
                          scout_trials=tuple(planned))  # fmt: skip
    return made


def with_tail(direction: str = "minimize") -> FakeStore:
    """Eight variants, of each of which one of six seeds ends far worse than the others."""
    sign = 1 if direction == "minimize" else -1
    names = ["baseline", *(f"{name}=off" for name in "abcdefgh")]
    made = fake_store({name: ({"part": name}, 100) for name in names}, 6, margin=0.1, direction=direction)
    for place, name in enumerate(names):
        for seed in range(6):
            far = 0.5 * (seed == place % 6) + 0.004 * (-1) ** seed + 0.5 * (place == 8) if place else 0.0
            made.add(name, seed, {"val_loss": 3.0 + seed / 50 + sign * far})
    return made


def in_seconds(rounds: int, device: str = "") -> FakeStore:
    """Seconds to a target: `fast` was timed in so many rounds, `slow` in 3 on this device, or not at all."""
    times = {"baseline": [900, 950, 920], "fast": [600, 640, 610], "slow": [1100, 1150, 1190]}
    claims = [between("slow", "worse", "baseline"), between("fast", "better", "slow")]
    made = reaching(times, measure="seconds", claims=claims)
    if rounds:
        made.time("fast", (200.0, 205.0, 195.0, 201.0)[:rounds], (100.0, 101.0, 99.0, 100.0)[:rounds])
    if device:
        made.timed["slow/0"] = (SpeedTiming("hash of baseline", (90.0, 91.0, 89.0), (100.0,) * 3, device),)
    return made


def on_other_tasks() -> FakeStore:
    """Five variants: of another tokenizer, of a task without rules, and between the bars of counting."""
    names = {"baseline": 2.0, "other": 2.3, "free": 2.4, "near": 2.2, "far": 2.9}
    made = fake_store({name: ({"part": name}, 100) for name in names}, 3, margin=0.1)
    tasks = {name: {"kind": "mine", "tokenizer": name if name in ("other", "free") else "bytes"} for name in names}
    trivial: dict[str, dict[str, float]] = {}
    for task, shift in (("baseline", 0.0), ("other", 0.5)):
        end = task_hash(json.dumps(tasks[task]))
        values = {"unigram": 3.3, "bigram": 2.5, "trigram": 2.1}
        trivial |= {on_data(name, end): {"val_loss": value + shift} for name, value in values.items()}
    variants = tuple(replace(one, spec={"task": tasks[one.name]}) for one in made.record.variants)
    made.record = replace(made.record, variants=variants, trivial=trivial)
    for name, value in names.items():
        for seed in range(3):
            made.add(name, seed, {"val_loss": value + seed / 100 + 0.002 * (seed - 1) * len(name)})
    return made


def claimed_at_budgets(bigram: float) -> FakeStore:
    """Claims on a gap that shrinks with the budget, within a budget, between two, and along all."""
    claims = [
        between("baseline", "grows", "a=off", id="grows", along="budget", margin=0.01),
        between("baseline", "shrinks", "a=off", id="shrinks", along="budget", margin=0.01),
        *(
            between("a=off" + end, "worse", "baseline" + end, id=f"worse-at-{end[8:] or 1}")
            for end in ("", "@budget=4")
        ),
        between("baseline", "worse", "baseline@budget=4", id="longer"),
        claim("ordered", id="order", order=["baseline@budget=4", "baseline@budget=2", "baseline"]),
        numbered_claim("a=off@budget=2", "val_loss", 1.02, 0.01, "baseline@budget=2") | {"id": "ratio"},
    ]
    made = budgeted(lambda at: 0.16 - 0.04 * at)
    made.add("a=off@budget=4", 2, state=TrialState.FAILED, reason="out of memory")
    made.record = replace(
        made.record, trivial={"bigram": {"val_loss": bigram}}, space=made.record.space | {"claims": claims}
    )
    return made


CASES: dict[str, Callable[[], FakeStore]] = {
    **{kind: lambda kind=kind: designed(kind) for kind in DESIGNS},  # type: ignore[misc]
    "maximized": lambda: designed("leave_one_out", direction="maximize"),
    "letters": lambda: designed("grid", LONG),
    "simplify_begun": lambda: designed("simplify", most=9),
    "letters_of_some": lambda: designed("leave_one_out", LONG),
    "ladder_drops": dropped,
    "measured_further": measured_further,
    "asked": lambda: asking("Do the skip and the norm replace each other?"),
    "asked_apart": lambda: asking("Do the norm and GELU interact?", 6),
    "asked_undecided": lambda: asking("Do the norm and GELU interact?"),
    "asked_all": lambda: asking("Do the skip or the norm interact with GELU?"),
    "search_chosen": lambda: designed("search", design={"objectives": ["objective"]}, effects={"a": -0.4, "b": 0.1}),
    "search_confirming": lambda: designed("search", design={"confirm": 3, "objectives": ["objective"]}, most=20),
    "search_in_vain": lambda: designed(
        "search", design={"confirm": 3, "objectives": ["objective"]}, effects={"a": 0.5, "b": 0.4, "c": 0.3}
    ),
    "simplify_past_undecided": lambda: designed("simplify", effects={"a": -0.02, "b": 0.02, "c": 0.01}),
    "suite_of_six": suite_of_six,
    "suite_ended_early": suite_ended_early,
    "suite_unlearnt": lambda: suite(
        drawn(np.random.default_rng(1), {name: of | {"parity": 0.5} for name, of in MEANS.items()})
    ),
    "sweep_of_four": lambda: swept_variants(
        4, lambda name, heads: {"a": 0.5, "b": 0.02, "c": 0.09 * heads, "d": 0.3 - 0.1 * heads}[name]
    ),
    "sweep_of_five_holds": lambda: swept_variants(5, lambda name, heads: {"a": -0.5, "b": 0.4}.get(name, -0.05)),
    "ladder_of_two": ladder_of_two,
    "ladder_lacks_seeds": lambda: climbing(
        lambda compute: loss(2 * compute), design={"seeds_per_rung": [3, 4, 5, 4, 5]}
    ),
    "grid_begun": lambda: designed("grid", most=7),
    "ladder": lambda: climbing(lambda compute: loss(2 * compute)),
    "ladder_fades": lambda: climbing(lambda compute: loss(compute) - 0.3 * (compute / 1e12) ** -0.8),
    "ladder_two_seeds": lambda: climbing(lambda compute: loss(2 * compute), seeds=2),
    "ladder_short": lambda: climbing(lambda compute: loss(2 * compute), rungs=2),
    "budgets": lambda: budgeted(lambda at: 0.1 - 0.02 * at),
    "search_confirmed": lambda: designed("search", design={"confirm": 3, "objectives": ["objective"]}),
    "search_of_numbers": lambda: designed("search", design=NUMBERS, direction="maximize", plain={"model.heads": 2}),
    "add_one_in": lambda: designed("add_one_in"),
    "grid_maximized": lambda: designed("grid", direction="maximize"),
    "sweep_lost": lost_in_a_sweep,
    "judged": judged,
    "own_trainer": lambda: of_unknown_models({"trainer": {"command": "python train.py"}}),
    "tuned": tuned,
    "tuned_noisily": lambda: tuned(noise=0.3),
    "windows": of_windows,
    "pruned": with_pruned,
    "all_pruned": lambda: with_pruned(5),
    "another_metric": with_another_metric,
    "all_worse": lambda: designed("grid", LONG, effects={"a": 0.5, "b": 0.4, "c": 0.3}),
    "ended_early": ended_early,
    "search_begun": lambda: designed("search", most=1),
    "suite_extended": suite_extended,
    "target_reached_easily": easily_reached,
    "sweep_one_seed": lambda: designed("sweep", design={"values": [1, 2, 4, 8], "seeds": 1}),
    "swept": lambda: swept({32: 0.0, 64: 0.02, 128: 0.1}),
    "suite": lambda: suite(drawn(np.random.default_rng(1), MEANS)),
    "suite_lost": lost_in_a_suite,
    "failures": with_failures,
    "failed_once": failed_once,
    "flat": lambda: store_of({"baseline": [3.0, 3.5, 2.5], "near=x": [3.03125, 3.53125, 2.53125]}),
    "ladder_timed": timed,
    "ladder_worse": lambda: climbing(lambda compute: loss(compute / 3)),
    "ladder_open": lambda: climbing(lambda compute: loss(compute / 1.3), margin=loss(1e14 / 1.3) - loss(1e14)),
    "scheduled_later": scheduled_later,
    "growing": lambda: moving(lambda step: 0.0002 * step - 0.02),
    "looks": lambda: store_of(SCHEDULED, {"start": 3, "max": 8}),
    "looks_used_up": lambda: store_of({name: one[:4] for name, one in SCHEDULED.items()}, {"start": 3, "max": 4}),
    "tuned_to_the_end": lambda: tuned("", 0.05),
    "tuned_at_the_edge": lambda: tuned("", plain=0.1),
    "simplify_confirm_begun": lambda: designed("simplify", most=32),
    "seeds_of_two": lambda: designed("leave_one_out", effects=EFFECTS | {"b": 0.06, "d": 0.103}),
    "ladder_few_seeds": lambda: climbing(
        lambda compute: loss(compute) + 0.016, noise=0.004, design={"seeds_per_rung": [4, 4, 4, 4, 4]}
    ),
    "target_open": lambda: reaching({"baseline": [900, 950, 920], "fast": [600, 640, 610], "near": [890, 980, 960]}),
    "grid_one_seed": lambda: designed("grid", design={"seeds": 1}),
    "search_one_seed": lambda: designed("search", design={"seeds": 1, "confirm": 2, "objectives": ["objective"]}),
    "search_confirm_begun": lambda: designed("search", design={"confirm": 3, "objectives": ["objective"]}, most=19),
    "elsewhere": read_before,
    "longer": longer,
    "unlearnt": unlearnt,
    "unfinished": lambda: numbered(6, 6, 1, {"seeds": 6}),
    "extended": lambda: numbered(6, 8, 2, {"seeds": 8}),
    "claims": claimed,
    "claims_begun": lambda: claimed(3, 1),
    "claims_of_costs": claimed_of_costs,
    "claims_of_lost": claimed_of_lost,
    "claims_of_trends": claimed_of_trends,
    "claims_of_trends_maximized": lambda: claimed_of_trends("maximize"),
    "claims_of_target": claimed_of_target,
    "claims_of_unlearnt": claimed_of_unlearnt,
    "claims_of_none_learnt": lambda: claimed_of_unlearnt(1.9),
    "claims_in_looks": claimed_in_looks,
    "claims_in_a_suite": claimed_in_a_suite,
    "claims_at_budgets": lambda: claimed_at_budgets(9.0),
    "claims_at_budgets_that_suffice": lambda: claimed_at_budgets(2.9),
    "grid_lost": grid_lost,
    "grid_lost_maximized": lambda: grid_lost("maximize"),
    "grid_tuned": grid_tuned,
    "tail": with_tail,
    "tail_maximized": lambda: with_tail("maximize"),
    "seconds": lambda: in_seconds(4, "cpu"),
    "seconds_of_one": lambda: in_seconds(4),
    "seconds_in_two_rounds": lambda: in_seconds(2),
    "seconds_on_two_devices": lambda: in_seconds(4, "cuda: H100"),
    "other_tasks": on_other_tasks,
    "target": lambda: reaching({"baseline": [900, 950, 920], "fast": [600, 640, 610], "slow": [1500, 1400, 1100]}),
}


def said(made: FakeStore) -> str:
    """The answer, why each variant has its verdict, the table in a narrow window, and the report without the space."""
    found = read_findings(made, "a_study")
    answer, told = answer_of(found.report), StringIO()
    for row in (row for group in answer.groups for row in group.rows):
        print_why(why(found.report, row.variant), Console(file=told, width=120))
    report = str(render_report(found, "md")).partition("\n## How to reproduce")[0]
    with (narrow := Console(width=76)).capture() as table:
        print_study(found.report, narrow)
    seeds = which_seeds(found.report, answer, found.runs, found.fresh)
    fresh = (title for title, _ in fresh_values(found.report, answer, found.fresh).values())
    best = "\n".join((f"{what_best_has(found.report, answer)} {seeds}", *fresh))
    parts = (answer_text(answer, 100), best, told.getvalue(), table.get().partition("\n±")[0], report)
    return (
        "\n\n".join("\n".join(line.rstrip() for line in part.strip().splitlines()) for part in parts if part.strip())
        + "\n"
    )


@pytest.mark.parametrize("name", CASES)
def test_an_answer_is_as_it_was_read(name: str) -> None:
    assert said(CASES[name]()).splitlines() == (GOLDEN / f"{name}.md").read_text().splitlines()


@pytest.mark.parametrize(
    ("name", "best", "simplest", "trials", "verdicts"),
    [
        ("grid", "c=off", "b=off,c=off", 16, "worse, worse, better"),
        ("leave_one_out", "c=off", "c=off", 32, "better, can go, must stay, must stay, worse, undecided, lost"),
        ("search_confirmed", "b=off", "b=off", 24, "can go"),
        ("simplify", "c=off", "b=off,c=off", 33, "better, better, can go, must stay"),
        ("pruned", "baseline", "baseline", 18, "lost, lost"),
        ("own_trainer", "c=off", "baseline", 32, "better, can go, must stay, must stay, worse, undecided, lost"),
    ],
)
def test_an_overview_names_the_best_and_the_simplest_and_counts_what_the_headline_does(
    name: str, best: str, simplest: str, trials: int, verdicts: str
) -> None:
    """Average effects of a grid, and else variants with a verdict or lost ones; of unknown models no size."""
    found = read_overview(CASES[name](), "a_study")
    assert (found.best, found.simplest, ", ".join(found.verdicts)) == (best, simplest, verdicts)
    assert (found.seconds, found.seconds_left) == (10.0 * trials, None)
    assert (found.flops is None) == (found.simplest_parameters is None) == (name == "own_trainer")


if __name__ == "__main__":
    GOLDEN.mkdir(exist_ok=True)
    for name, made in CASES.items():
        (GOLDEN / f"{name}.md").write_text(said(made()))
