"""One trial of the user's trainer: its rows, how it fails, and that no process of it is left."""

from __future__ import annotations

import csv
import json
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import psutil
import pytest
import torch
from own_trainers import trainer, write_script

from ablate.execution import own_trainer
from ablate.execution.attempt import curve_point
from ablate.execution.call_function import call
from ablate.execution.job_runner import JobRunner
from ablate.execution.own_trainer import (
    TrainerFailedError,
    TrainerFolders,
    _Curve,
    run_trainer,
    visible_devices,
)
from ablate.execution.protocol import Broken, Done, Happened, Job, JobMember, Message
from ablate.spec.trainer import MetricsSpec
from ablate.spec.trainer_variant import TrainerVariant
from ablate.training.events import Diverged, Event, Measurement, Tick

TELLS = "import json, sys; print(json.dumps({'arguments': sys.argv[1:], %s}), file=open(sys.argv[1], 'w'))"


@pytest.fixture
def places(tmp_path: Path) -> TrainerFolders:
    write_script(tmp_path)
    return TrainerFolders(str(tmp_path), str(tmp_path / "trial"))


def variant(changes: dict[str, Any] | None = None, **parameters: Any) -> TrainerVariant:
    return TrainerVariant(trainer=trainer(**(changes or {})), parameters=parameters)


def prints(code: str, **changes: Any) -> TrainerVariant:
    """A trainer that is this code; `sys.argv[1]` is its metrics file."""
    command = ["{python}", "-c", code, "{folder}/rows", "{seed}", "{x}"]
    return TrainerVariant(trainer={"command": command, "parameters": {"x": 1.0}, **changes}, parameters={})


def measured(events: Sequence[Event]) -> list[tuple[int, dict[str, float]]]:
    points = {}
    for event in events:
        if isinstance(event, Measurement):
            points[event.step] = {name: value for name, (value,) in event.metrics.items()}
    return list(points.items())


def is_gone(number: int) -> bool:
    return not psutil.pid_exists(number) or psutil.Process(number).status() == psutil.STATUS_ZOMBIE


def until(condition: Any, seconds: float = 600.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_rows_arrive_while_it_runs(places: TrainerFolders) -> None:
    events = run_trainer(variant(does="wait"), 4, places)
    first = next(event for event in events if isinstance(event, Measurement))
    assert first.step == 1
    assert first.train_loss == pytest.approx([first.metrics["val_loss"][0] + 0.1])
    Path(places.folder, "output", "go").touch()
    assert [step for step, _ in measured(list(events))] == [2, 3]
    assert Path(places.folder, "log.txt").read_text() == "begins\n"


def test_a_seed_gives_the_same_batches_to_all_variants(places: TrainerFolders) -> None:
    ends = {}
    for seed, rate in ((0, 0.1), (0, 0.3), (1, 0.1)):
        (_, last) = measured(list(run_trainer(variant(lr=rate), seed, places)))[-1]
        ends[seed, rate] = last["val_loss"]
    assert ends[0, 0.3] - ends[0, 0.1] == pytest.approx(0.2, abs=0.02)
    assert ends[1, 0.1] != ends[0, 0.1]


@pytest.mark.parametrize(
    ("does", "changes", "reason", "log"),
    [
        ("exit", {}, "it ended with exit code 1", "begins\nValueError: the rate is too large"),
        ("hang", {"timeout": 1.5}, "it took longer than the timeout of 1.5 s, and was ended", "begins"),
        (
            "damage",
            {},
            'its metrics file metrics.jsonl is damaged: line 2, expected a JSON object, got \'{"step": 2, "val_l\'',
            "begins",
        ),
        (
            "train",
            {"metrics": {"file": "{folder}/other.jsonl"}},
            "it ended without metrics in other.jsonl (there is no such file)",
            "begins",
        ),
        (
            "train",
            {"metrics": {"file": "{log}", "format": "log", "line": r"loss (?P<val_loss>\S+)"}},
            "it ended without metrics in log.txt (`line` matches none of its lines)",
            "begins",
        ),
    ],
)
def test_a_failure_says_why_with_the_end_of_the_log(
    places: TrainerFolders, does: str, changes: dict[str, Any], reason: str, log: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = Path(places.folder, "log.txt")
    clock = SimpleNamespace(monotonic=lambda: 1000.0 * (said.exists() and said.read_text() != ""))  # as slow as it is
    monkeypatch.setattr(own_trainer, "time", clock)
    with pytest.raises(TrainerFailedError) as failed:
        list(run_trainer(variant(changes, does=does), 0, places))
    assert (failed.value.reason, failed.value.log) == (reason, log)


@pytest.mark.parametrize(
    ("code", "changes", "reason"),
    [
        ("import os; os.kill(os.getpid(), 15)", {}, "it was killed by SIGTERM"),
        (
            "import os, sys; open(sys.argv[1], 'w').write('1,2')",
            {},
            "damaged: line 1, expected a JSON object, got '1,2'",
        ),
        ("import os, sys; open(sys.argv[1], 'w').write('step,val_loss\\n1,0.5\\n2')", {"format": "csv"}, "2 cells"),
        (
            "print('step 1: loss 0.5'); print('step 2: loss n/a')",
            {"format": "log", "file": "{log}", "line": r"step (?P<step>\d+): loss (?P<val_loss>\S+)"},
            "damaged: line 2, expected a number for `val_loss`, got 'n/a'",
        ),
        ("import sys; open(sys.argv[1], 'w').write('[1]')", {"format": "json"}, "the file, expected a JSON object"),
        (
            "import sys; open(sys.argv[1], 'w').write('step,val_loss,val_loss\\n1,0.5,0.7')",
            {"format": "csv"},
            "line 1, expected another name for each column",
        ),
        (
            "import sys; open(sys.argv[1], 'w').write('{\"eval_loss\": 1, \"val_loss\": 2}')",
            {"rename": {"eval_loss": "val_loss"}},
            "expected one value of each metric once names are changed by `rename`, got 'eval_loss'",
        ),
        (
            "import sys; open(sys.argv[1], 'w').write('{\"step\": -1, \"a\": 1}')",
            {},
            "expected a whole step from 0, got '-1.0'",
        ),
        ("import sys; open(sys.argv[1], 'w').write('{\"step\": 1.5}')", {}, "expected a whole step from 0, got '1.5'"),
        ("import sys; open(sys.argv[1], 'w').write('{\"a\": 1' + '0' * 400 + '}')", {}, "expected a JSON object"),
        ("import sys; open(sys.argv[1], 'w').write('[' * 10**5)", {}, "expected a JSON object"),
        (
            "import sys; open(sys.argv[1], 'w').write('a\\n' + 'x' * 10**6)",
            {"format": "csv"},
            "larger than field limit",
        ),
        *[
            (f"import os, sys; {made}", {"format": form}, "this is not a regular file")
            for made in ("os.mkfifo(sys.argv[1])", "os.mkdir(sys.argv[1])", "os.symlink('/dev/zero', sys.argv[1])")
            for form in ("jsonl", "json")
        ],
        ("import sys; open(sys.argv[1], 'wb').truncate(2**34)", {"format": "json"}, "cannot be read"),
        ("import sys; open(sys.argv[1], 'w').write('{\"step\": 1}')", {}, "its rows hold no metric"),
    ],
)
def test_damaged_metrics_and_deaths(places: TrainerFolders, code: str, changes: dict[str, Any], reason: str) -> None:
    csv.field_size_limit(2**17)  # what Python begins with; a table that was read has raised it
    metrics = {"file": "{folder}/rows", **changes}
    with pytest.raises(TrainerFailedError) as failed:
        list(run_trainer(prints(code, metrics=metrics), 0, places))
    assert reason in failed.value.reason


@pytest.mark.parametrize("does", ["train", "exit"])
def test_a_job_of_a_trainer_tells_what_the_trainer_does(places: TrainerFolders, does: str) -> None:
    trained, alone, ended = variant(does=does), list[Event](), cast(Message, Done(7))
    try:
        for event in run_trainer(trained, 4, places):
            alone.append(event)
    except TrainerFailedError as failed:
        ended = Broken(7, failed.reason, failed.log)
    job = Job(7, (JobMember(trained.model_dump_json(), 4, folders=places),), "")
    *told, last = JobRunner(Path(places.root), torch.device("cpu")).run_job(job, lambda: ())
    assert measured([one.event for one in told if isinstance(one, Happened)]) == measured(alone) != []
    assert last == ended


def test_a_program_that_is_not_there(places: TrainerFolders) -> None:
    missing = TrainerVariant(
        trainer={"command": ["no-such-program", "{seed}", "{x}"], "parameters": {"x": 1}}, parameters={}
    )
    with pytest.raises(TrainerFailedError, match=r"could not be started \(FileNotFoundError: .*no-such-program"):
        list(run_trainer(missing, 0, places))


def test_a_working_folder_that_is_gone(places: TrainerFolders, tmp_path: Path) -> None:
    gone = TrainerFolders(str(tmp_path / "gone"), places.folder)
    with pytest.raises(TrainerFailedError, match=r"^it could not be started in .*gone \(.*No such file"):
        list(run_trainer(variant(), 0, gone))


def test_what_is_printed_arrives_at_once(places: TrainerFolders, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)
    code = (
        "import sys, time; from pathlib import Path; print('step 1 loss 0.5'); go = Path(sys.argv[1] + 'go')\n"
        "for _ in range(2000):\n  if go.exists(): break\n  time.sleep(0.01)\n"
        "print('step 2 loss', 0.25 if go.exists() else 9)"
    )
    events = run_trainer(prints(code, metrics={**LINE, "file": "{log}"}), 0, places)
    first = next(event for event in events if isinstance(event, Measurement))
    Path(places.folder, "output", "rowsgo").touch()
    assert measured([first, *events]) == [(1, {"val_loss": 0.5}), (2, {"val_loss": 0.25})]


@pytest.mark.parametrize("form", ["jsonl", "json", "csv", "log"])
def test_all_formats_say_the_same(places: TrainerFolders, form: str) -> None:
    rows = [{"step": 1, "loss": {"val": 0.5}, "accuracy": 0.25}, {"step": 4, "loss": {"val": 0.375}, "accuracy": 0.5}]
    texts = {
        "jsonl": "\n".join(map(json.dumps, rows)),
        "json": json.dumps(rows[-1] | {"name": "ignored", "best": True}),
        "csv": "step,loss.val,accuracy,date\n1,0.5,0.25,today\n4,0.375,0.5,\n",
        "log": "starting\nstep 1: loss 0.5, accuracy 0.25\nstep 4: loss 0.375, accuracy 0.5\nbye",
    }
    metrics: dict[str, Any] = {"file": "{folder}/rows", "format": form, "rename": {"loss.val": "val_loss"}}
    if form == "log":
        metrics["line"] = r"^step (?P<step>\d+): loss (?P<val_loss>\S+), accuracy (?P<accuracy>\S+)"
        metrics["rename"] = {}
    code = f"import sys; open(sys.argv[1], 'w').write({texts[form]!r})"
    events = measured(list(run_trainer(prints(code, metrics=metrics), 0, places)))
    assert events[-1] == (4, {"val_loss": 0.375, "accuracy": 0.5})
    assert events[:-1] == ([] if form == "json" else [(1, {"val_loss": 0.5, "accuracy": 0.25})])


def test_the_last_value_of_each_metric_counts_and_curves_hold_only_what_was_measured(places: TrainerFolders) -> None:
    rows = [
        {"step": 2, "val_loss": 3.0},
        {"step": 2, "train_loss": 2.5, "seconds": 7.5, "tokens": 64, "bits": 4.0},  # more of the same step
        {"step": 4, "train_loss": 2.0},
        {"step": 3, "val_loss": 9.0},  # written again after a checkpoint
        {"step": 5, "test_accuracy": 0.5, "gradient": float("inf")},
    ]
    code = f"import sys; open(sys.argv[1], 'w').write({chr(10).join(map(json.dumps, rows))!r})"
    events = list(run_trainer(prints(code, metrics={"file": "{folder}/rows"}), 0, places))
    points = [event for event in events if isinstance(event, Measurement)]
    assert [point.step for point in points] == [2, 2, 5, 5]
    last = points[-1]
    assert [point.metrics for point in points] == [
        {"val_loss": [3.0]},
        {"val_loss": [3.0], "bits": [4.0]},
        {"bits": [4.0], "test_accuracy": [0.5]},
        {"val_loss": [9.0], "bits": [4.0], "test_accuracy": [0.5], "gradient": [math.inf]},
    ]
    assert last.train_loss == [2.0]
    assert [point.tokens for point in points] == [0, 64, 64, 64]
    assert last.measured_at == {"val_loss": 3, "bits": 2, "test_accuracy": 5, "gradient": 5}
    assert curve_point(last, 0).val_loss is None
    assert any(event == Tick(4, [2.0]) for event in events)


def ended(text: str, **metrics: Any) -> list[Event]:
    """The events of a trainer that writes this text."""
    code = f"import sys; open(sys.argv[1], 'w', newline='', errors='surrogateescape').write({text!r})"
    with TemporaryDirectory() as folder:
        steps = metrics.pop("steps", None)
        trained = prints(code, metrics={"file": "{folder}/rows", **metrics}, **({"steps": steps} if steps else {}))
        return list(run_trainer(trained, 0, TrainerFolders(folder, f"{folder}/trial")))


LINE = {"format": "log", "line": r"step (?P<step>\d+) loss (?P<val_loss>[\d.]+)"}


@pytest.mark.parametrize(
    ("rows", "metrics"),
    [
        ("step 1 loss 0.5\nstep 2 loss nan\n", LINE),
        ("step 1 loss 0.5\nstep 2 loss -inf\n", LINE),
        ('{"step": 1, "val_loss": 0.5}\n{"step": 2, "val_loss": "NaN"}\n', {}),
        ('{"step": 1, "val_loss": 0.5}\n{"step": 2, "val_loss": "-Infinity"}\n', {}),
        ('{"step": 1, "val_loss": 0.5}\n{"step": 2, "val_loss": "nan"}\n', {}),
        ('{"step": 1, "val_loss": 0.5}\n{"step": 2, "val_loss": "inf"}\n', {}),
        ("step,val_loss\n1,0.5\n2,nan\n", {"format": "csv"}),
    ],
)
def test_a_loss_that_is_not_finite_is_seen_however_it_is_written(rows: str, metrics: dict[str, Any]) -> None:
    *_, last = ended(rows, **metrics)
    assert isinstance(last, Diverged)
    assert (last.member, last.step) == (0, 2)


def test_a_last_value_that_is_not_finite_is_not_the_one_before() -> None:
    for text in ('{"val_ppl": 3.0}\n{"val_ppl": NaN, "tokens": NaN, "seconds": Infinity}\n', "val_ppl\n3.0\nnan\n"):
        (_, last) = measured(ended(text, format="csv" if "," not in text else "jsonl"))
        assert last[0] == 2
        assert math.isnan(last[1]["val_ppl"])


@pytest.mark.parametrize(
    ("rows", "metrics", "points"),
    [
        # A progress bar writes over itself; a byte order mark is no part of a name; steps are those of the rows.
        ("0%|step 1 loss 3.2\r50%|step 2 loss 3.1\r99%|step 3 loss 3.0\n", LINE, [(1, 3.2), (2, 3.1), (3, 3.0)]),
        ("\ufeffstep,val_loss\r\n100,3.0\r\n", {"format": "csv"}, [(100, 3.0)]),
        ("step 1,000 loss 3.0,\n", {**LINE, "line": r"step (?P<step>\S+) loss (?P<val_loss>\S+)"}, [(1000, 3.0)]),
        ('{"log": [{"step": 20, "val_loss": 3.0}]}', {"format": "json", "rows": "log", "steps": 50}, [(20, 3.0)]),
        ('{"val_loss": 3.0}', {"format": "json", "steps": 50}, [(1, 3.0), (50, 3.0)]),
        ('{"step": "20", "val_loss": "3.0", "at": "noon"}', {}, [(20, 3.0)]),
        ("bytes \udcff that are no text\nstep 1 loss 3.0\n", LINE, [(1, 3.0)]),
        ("step,val_loss,at\n1,3.0,\udcff\n", {"format": "csv"}, [(1, 3.0)]),
    ],
)
def test_rows_are_those_that_were_written(rows: str, metrics: dict[str, Any], points: list[tuple[int, float]]) -> None:
    assert measured(ended(rows, **metrics)) == [(step, {"val_loss": loss}) for step, loss in points]


@pytest.mark.parametrize(
    ("rows", "form", "line"),
    [
        ('{"step": "1,000", "val_loss": 3.0}\n', "jsonl", None),
        ('{"reward": 990.5}\n{"reward": "1,010.2"}\n', "jsonl", None),
        ('{"accuracy": 0.5}\n{"accuracy": "91%"}\n', "jsonl", None),
        ('step,reward\n1,990.5\n2,"1,010.2"\n', "csv", None),
        ('step,val_loss\n1,"3,281"\n', "csv", None),
        ("step 1 loss 9.1e-05", "log", r"loss (?P<val_loss>[\d.]+)"),
        ("loss 3,28", "log", r"loss (?P<val_loss>\S+)"),
        ("loss 3,281", "log", r"loss (?P<val_loss>\S+)"),
    ],
)
def test_a_number_that_cannot_be_read_does_not_leave_the_one_before(rows: str, form: str, line: str | None) -> None:
    with pytest.raises(TrainerFailedError, match=r"is damaged: line [1-3], expected"):
        ended(rows, format=form, **({"line": line} if line else {}))


@pytest.mark.parametrize("form", ["jsonl", "csv", "log"])
@pytest.mark.parametrize("size", [1, 5, 17, 1000])
def test_rows_are_the_same_however_they_arrive(
    form: str, size: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Read whenever some bytes have come, and in blocks of a few bytes."""
    values = [(0, 3.5), (20, 3.0), (100, 2.5), (100, 2.25), (120, 2.0)]
    text = {
        "jsonl": "".join(f'{{"step": {step}, "val_loss": {loss}, "seconds": 1}}\n\n' for step, loss in values),
        "csv": "step,val_loss,seconds\n" + "".join(f"{step},{loss},1\n" for step, loss in values),
        "log": "begins\n" + "\r".join(f"step {step} loss {loss}" for step, loss in values),
    }[form]
    monkeypatch.setattr(own_trainer, "_CHUNK", 7)
    spec = MetricsSpec(file="{folder}/rows", format=form, line=LINE["line"] if form == "log" else None)
    events = list[Event]()
    with closing(_Curve(spec, tmp_path / "rows")) as curve:
        assert [*curve.read(ended=False)] == [], "the file is not there yet"
        for start in range(0, len(text), size):
            with (tmp_path / "rows").open("a") as file:
                file.write(text[start : start + size])
            events += curve.read(ended=False)
        before = len(events)
        events += curve.read(ended=True)
    points = [(event.step, event.metrics["val_loss"]) for event in events if isinstance(event, Measurement)]
    assert points == [(step, [loss]) for step, loss in values]
    assert len(events) - before == (form == "log"), "its last line has no end"
    assert [*curve.last(500)] == []
    assert (curve.step, curve.latest) == (120, {"val_loss": 2.0})


ROWS = [f'{{"step": {step}, "val_loss": {9 - step}.0}}\n' for step in range(1, 7)]


@pytest.mark.parametrize("read", range(7))
@pytest.mark.parametrize("kept", range(7))
def test_a_metrics_file_that_vanishes_never_leaves_an_earlier_value(kept: int, read: int, tmp_path: Path) -> None:
    """Removed after `kept` rows, of which `read` were read; the others, if any are left, are written to a new file."""
    file, steps = tmp_path / "rows", list[int]()
    read = min(read, kept)
    with closing(_Curve(MetricsSpec(file="{folder}/rows"), file)) as curve:

        def take(*, ended: bool) -> None:
            steps.extend(event.step for event in curve.read(ended=ended) if isinstance(event, Measurement))

        file.write_text("".join(ROWS[:read]))
        take(ended=False)
        with file.open("a") as added:
            added.write("".join(ROWS[read:kept]))
        file.unlink()
        if kept < 6:
            file.write_text("".join(ROWS[kept:]))
        if 0 < read < 6 and kept < 6:
            with pytest.raises(own_trainer._RunError, match="was replaced by another while it was written"):
                take(ended=True)
        else:
            take(ended=True)
            assert (steps[-1], curve.latest) == (6, {"val_loss": 3.0})


def test_a_metrics_file_that_is_written_aside_and_renamed_is_followed(tmp_path: Path) -> None:
    file, aside, steps = tmp_path / "rows", tmp_path / "rows.new", list[int]()
    with closing(_Curve(MetricsSpec(file="{folder}/rows"), file)) as curve:
        for number in range(1, 7):
            aside.write_text("".join(ROWS[:number]))
            aside.replace(file)
            if number != 3:  # not every version is seen
                steps += [event.step for event in curve.read(ended=False) if isinstance(event, Measurement)]
    assert steps == [1, 2, 3, 4, 5, 6]


def test_a_line_that_never_ends_is_no_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_trainer, "_CHUNK", 8)
    monkeypatch.setattr(own_trainer, "_LONGEST_LINE", 40)
    (tmp_path / "rows").write_text('{"step": 1, "val_loss": 1.000000000000}\n' + '{"step": 2' + " " * 60)
    with (
        closing(_Curve(MetricsSpec(file="{folder}/rows"), tmp_path / "rows")) as curve,
        pytest.raises(own_trainer._RunError, match="damaged: line 2, expected a JSON object"),
    ):
        list(curve.read(ended=False))
    assert curve.step == 1


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("", "its processes were killed"),
        ("3", "it ended with exit code 3"),
        ("-15", "it was killed by SIGTERM"),
        ("-999", "it ended with exit code -999"),
        ("OSError: no", "its program could not be started (OSError: no)"),
    ],
)
def test_how_a_trainer_ended_is_said_in_words(code: str, said: str) -> None:
    assert own_trainer._how(code) == said


@pytest.mark.parametrize("size", [0, 3999, 4000, 4001, 9000])
def test_the_end_of_a_log_explains_a_failure(size: int, tmp_path: Path) -> None:
    text = "".join(chr(97 + number % 26) for number in range(size))
    (tmp_path / "log").write_text(text)
    assert own_trainer._tail(tmp_path / "log") == (text[-4000:] or "(it printed nothing)")
    assert own_trainer._tail(tmp_path / "no log") == "(it printed nothing)"


def test_metrics_at_step_0_alone_are_those_of_the_end(tmp_path: Path) -> None:
    assert measured(ended('{"step": 0, "val_loss": 3.0}\n')) == [(0, {"val_loss": 3.0}), (1, {"val_loss": 3.0})]


def written_twice(places: TrainerFolders, begin: str, end: str) -> Iterator[Event]:
    """The events of a trainer that writes its metrics file again when the first content has been read."""
    code = f"""
import sys, time
from pathlib import Path
Path(sys.argv[1]).write_text({begin!r})
while not Path(sys.argv[1] + ".read").exists():
    time.sleep(0.01)
Path(sys.argv[1]).write_text({end!r})
"""
    read = Path(places.folder, "output", "rows.read")
    for event in run_trainer(prints(code, metrics={"file": "{folder}/rows", "format": "csv"}), 0, places):
        if getattr(event, "step", 0):
            read.touch()
        yield event


def test_a_file_that_is_written_again_with_another_column(places: TrainerFolders) -> None:
    """As Lightning's CSVLogger does at the first validation."""
    first, second = "step,train_loss\n1,5.0\n2,4.0\n", "step,train_loss,val_loss\n1,5.0,\n2,4.0,\n2,,3.5\n4,3.0,\n"
    for begin, end in ((first, second), (second, "step,val_loss\n1,\n2,\n2,3.5\n4,\n4,3.25\n")):
        events = list(written_twice(places, begin, end))
        points = measured(events)
        assert points[0] == (2, {"val_loss": 3.5})
        assert points[-1] == (4, {"val_loss": 3.5 if begin == first else 3.25})
        assert sum(isinstance(event, Tick) and event.step == 1 for event in events) >= 1
    with pytest.raises(TrainerFailedError, match="written again with fewer rows"):
        list(written_twice(places, second, "x\n1"))


def test_a_file_that_loses_rows_while_it_is_written_is_refused(places: TrainerFolders) -> None:
    rows = '{"step": 1, "val_loss": 3.0}\n'
    code = (
        "import sys, time; from pathlib import Path\n"
        f"Path(sys.argv[1]).write_text({rows * 2!r})\n"
        "while not Path(sys.argv[1] + '.read').exists(): time.sleep(0.01)\n"
        f"Path(sys.argv[1]).write_text({rows!r})"
    )
    events = run_trainer(prints(code, metrics={"file": "{folder}/rows"}), 0, places)
    next(event for event in events if isinstance(event, Measurement))
    Path(places.folder, "output", "rows.read").touch()
    with pytest.raises(TrainerFailedError, match="rows became shorter while it was written"):
        list(events)


def test_a_program_that_is_ended_may_put_its_things_in_order(places: TrainerFolders) -> None:
    code = (
        "import signal, sys, time; from pathlib import Path\n"
        "def save(*_): time.sleep(0.1); Path(sys.argv[1] + '.saved').touch(); sys.exit()\n"
        "signal.signal(signal.SIGTERM, save)\n"
        'Path(sys.argv[1]).write_text(\'{"step": 1, "val_loss": 3.0}\\n\')\n'
        "time.sleep(600)"
    )
    events = run_trainer(prints(code, metrics={"file": "{folder}/rows"}), 0, places)
    next(event for event in events if isinstance(event, Measurement))
    events.close()  # type: ignore[attr-defined]
    assert Path(places.folder, "output", "rows.saved").exists()


def test_a_loss_that_is_not_finite_ends_it(places: TrainerFolders) -> None:
    *_, last = run_trainer(variant(does="diverge"), 0, places)
    assert isinstance(last, Diverged)
    assert (last.step, str(last.loss)) == (2, "nan")
    assert not Path(places.folder, "checkpoint").exists()


@pytest.mark.parametrize("how", ["stopped", "closed"])
def test_no_process_is_left(places: TrainerFolders, how: str) -> None:
    asked: list[int] = []
    events: Iterator[Event] = run_trainer(variant(does="start_others"), 0, places, stopped=lambda: asked)
    assert isinstance(next(event for event in events if isinstance(event, Measurement)), Measurement)
    other = int(Path(places.folder, "output", "other").read_text())
    assert not is_gone(other)
    if how == "stopped":
        asked.append(0)
        assert list(events) == []
    else:
        events.close()  # type: ignore[attr-defined]
    until(lambda: is_gone(other))


def test_no_process_is_left_when_its_starter_is_killed(places: TrainerFolders, tmp_path: Path) -> None:
    code = (
        "import sys; from ablate.execution.own_trainer import *\n"
        f"list(run_trainer(TrainerVariant.model_validate_json(sys.argv[1]), 0, {places!r}))"
    )
    spec = variant(does="start_others").model_dump_json()
    starter = subprocess.Popen([sys.executable, "-c", code, spec], cwd=tmp_path)
    file = Path(places.folder, "output", "other")
    until(lambda: file.exists() and file.read_text())
    os.kill(starter.pid, signal.SIGKILL)
    starter.wait()
    until(lambda: is_gone(int(file.read_text())))


def test_arguments_reach_the_program_as_they_are_written(places: TrainerFolders, tmp_path: Path) -> None:
    command = ["{python}", "-c", TELLS % "'val_loss': 1", "{folder}/rows", "{text}", "{{seed}}-{seed}", "a b", "{flag}"]
    parameters = {"text": "$(touch pwned); `touch pwned` {folder} *", "flag": True}
    spec = TrainerVariant(
        trainer={"command": command, "parameters": parameters, "metrics": {"file": "{folder}/rows"}}, parameters={}
    )
    list(run_trainer(spec, 3, places))
    told = json.loads(Path(places.folder, "output", "rows").read_text())["arguments"]
    assert told[1:] == [parameters["text"], "{seed}-3", "a b", "True"]
    assert not (tmp_path / "pwned").exists()


def test_a_configuration_file_and_the_devices(places: TrainerFolders, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,7")
    code = (
        TELLS
        % "'given': json.load(open(sys.argv[2])), 'gpus': __import__('os').environ['CUDA_VISIBLE_DEVICES'], 'a': 1"
    )
    spec = TrainerVariant(
        trainer={
            "command": ["{python}", "-c", code, "{folder}/rows", "{config}"],
            "parameters": {"lr": 0.5, "name": "x"},
            "metrics": {"file": "{folder}/rows"},
        },
        parameters={"lr": 1},
    )
    list(run_trainer(spec, 3, places, ("cuda:1",)))
    told = json.loads(Path(places.folder, "output", "rows").read_text())
    assert told["given"] == {"lr": 1.0, "name": "x", "seed": 3}
    assert told["gpus"] == "7"


@pytest.mark.parametrize(
    ("devices", "before", "visible"),
    [
        (["cpu"], None, ""),
        (["cpu"], "0,1", ""),
        (["cuda:2"], None, "2"),
        (["cuda"], "5", "5"),
        (["cuda:0", "cuda:1"], "GPU-a, GPU-b", "GPU-a,GPU-b"),
    ],
)
def test_the_devices_that_a_trainer_sees(devices: list[str], before: str | None, visible: str) -> None:
    assert visible_devices(devices, before) == visible


FUNCTIONS = """
from pathlib import Path
def returned(lr, seed, folder, checkpoint):
    assert Path(folder).is_dir() and Path(checkpoint).is_dir()
    return {"val_loss": lr + seed}
def raised(lr):
    raise RuntimeError("out of luck")
def narrow(seed):
    return {"val_loss": 1.0}
"""


def test_a_function(places: TrainerFolders, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(FUNCTIONS)
    spec = TrainerVariant(trainer={"function": "mine:returned", "parameters": {"lr": 0.5}}, parameters={})
    assert measured(list(run_trainer(spec, 2, places)))[-1][1] == {"val_loss": 2.5}


def with_all(lr: float, **places: Any) -> Any:
    yield {"val_loss": np.float32(lr), "table": np.eye(2), "seed": torch.tensor(places["seed"]), "file": Path("x")}
    places["report"]({"step": 2}, val_loss=lr / 2)


def reporting(lr: float, report: Any, folder: str) -> None:
    report({"step": 1}, val_loss=lr)
    report(step=2, val_loss=lr / 2, folder=folder)


@pytest.mark.parametrize(
    ("called", "rows"),
    [
        (lambda lr, seed: {"val_loss": lr + seed}, [{"val_loss": 2.5}]),
        (lambda lr: [{"step": 1, "val_loss": lr}, {"step": 2}], [{"step": 1, "val_loss": 0.5}, {"step": 2}]),
        (lambda lr, checkpoint: iter([{"a": checkpoint}]), [{"a": "kept"}]),
        (with_all, [{"val_loss": 0.5, "table": str(np.eye(2)), "seed": 2, "file": "x"}, {"step": 2, "val_loss": 0.25}]),
        (reporting, [{"step": 1, "val_loss": 0.5}, {"step": 2, "val_loss": 0.25, "folder": "out"}]),
        (lambda lr: None, []),
        (lambda lr: 3.0, []),
    ],
)
def test_a_function_takes_what_it_names_and_gives_rows(
    called: Any, rows: list[dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever it returns, yields or reports; values that are not numbers become texts."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setitem(sys.modules, "mine_alone", cast(Any, SimpleNamespace(train=called)))
    given = {"parameters": {"lr": 0.5}, "places": {"seed": 2, "folder": "out", "checkpoint": "kept"}}
    (tmp_path / "config").write_text(json.dumps(given))
    call("mine_alone:train", tmp_path / "config", tmp_path / "rows")
    assert [json.loads(line) for line in (tmp_path / "rows").read_text().splitlines()] == rows


@pytest.mark.parametrize(
    ("name", "log"), [("raised", "RuntimeError: out of luck"), ("narrow", "unexpected keyword argument 'lr'")]
)
def test_a_function_that_raises(places: TrainerFolders, tmp_path: Path, name: str, log: str) -> None:
    (tmp_path / "mine.py").write_text(FUNCTIONS)
    spec = TrainerVariant(trainer={"function": f"mine:{name}", "parameters": {"lr": 0.5}}, parameters={})
    with pytest.raises(TrainerFailedError) as failed:
        list(run_trainer(spec, 2, places))
    assert failed.value.log.endswith(log)
