"""`ablate reproduce` and `ablate diff` on a study that was really trained."""

from __future__ import annotations

import json
import sqlite3
import statistics
from collections.abc import Callable
from contextlib import closing
from functools import partial

import pytest
from cli_runs import Finished, Workplace

from ablate.kinds.norms.rms import RMSNormSpec

Call = Callable[..., Finished]
NORM = {
    f"model.block.norm.{name}": value
    for name, value in RMSNormSpec().model_dump().items()
    if name not in ("kind", "place") and value is not None
}
"""The settings that a block loses with its norm."""


@pytest.fixture
def call(trained: Workplace) -> Call:
    """The command line within this process, in the folder of `trained`."""
    return partial(trained.call, columns=120)


def change(place: Workplace, statement: str) -> None:
    """Change the store without our own code."""
    with closing(sqlite3.connect(place.store)) as connection, connection:
        assert connection.execute(statement).rowcount > 0


def losses(place: Workplace, variant: str) -> dict[int, float]:
    """Seed to final validation loss, read without our own code."""
    rows = place.rows(
        "SELECT trials.seed, trials.metrics FROM trials JOIN study_trials ON trial_key = key "
        f"WHERE variant = '{variant}'"
    )
    return {seed: json.loads(metrics)["val_loss"] for seed, metrics in rows}


def key(place: Workplace, variant: str, seed: int) -> str:
    ((found,),) = place.rows(f"SELECT trial_key FROM study_trials WHERE variant = '{variant}' AND seed = {seed}")
    return str(found)


def test_a_trial_comes_out_the_same_and_the_store_is_not_touched(call: Call, trained: Workplace) -> None:
    trial = key(trained, "values=identity", 1)
    before = trained.rows("SELECT * FROM trials ORDER BY key"), trained.rows("SELECT * FROM curves")
    done = call("reproduce", trial[:10], "--device", "cpu", "--json")
    assert done.code == 0, done.err
    found = json.loads(done.out)
    assert (found["trial"], found["variant"], found["seed"]) == (trial, "values=identity", 1)
    assert found["verdict"] in ("identical", "equal")
    assert [point["step"] for point in found["curve"]] == list(range(7))
    assert [point["stored"] for point in found["curve"]] == [row[-1] for row in trained.curve(trial)]
    assert found["largest_difference"] == max(abs(point["stored"] - point["again"]) for point in found["curve"])
    assert found["largest_difference"] <= found["tolerance"]
    assert before == (trained.rows("SELECT * FROM trials ORDER BY key"), trained.rows("SELECT * FROM curves"))


def test_another_curve_and_another_environment_are_reported(call: Call, trained: Workplace) -> None:
    trial = key(trained, "baseline", 0)
    change(trained, f"UPDATE curves SET val_loss = val_loss + 0.5 WHERE step = 4 AND trial_key = '{trial}'")
    change(trained, "UPDATE environments SET content = json_set(content, '$.versions.torch', '1.0.0')")
    done = call("reproduce", trial, "--device", "cpu")
    assert done.code == 1, done.err
    assert "different: the validation losses differ by up to 0.5; 0.0001 counts as equal." in done.out
    assert any(line.split()[:2] == ["versions.torch", "1.0.0"] for line in done.out.splitlines())
    (changed,) = [line for line in done.out.splitlines() if line.split()[:1] == ["4"]]
    assert changed.split()[-1] == "-0.5"


def test_a_curve_within_the_tolerance_is_equal_and_one_that_ended_otherwise_is_not(
    call: Call, trained: Workplace
) -> None:
    near, diverged = key(trained, "baseline", 0), key(trained, "baseline", 1)
    change(trained, f"UPDATE curves SET val_loss = val_loss + 5e-5 WHERE step = 4 AND trial_key = '{near}'")
    change(trained, f"UPDATE trials SET state = 'diverged', stopped_at = 5 WHERE key = '{diverged}'")
    equal = call("reproduce", near, "--device", "cpu")
    assert (equal.code, "\nequal: the validation losses differ by up to" in equal.out) == (0, True)
    other = call("reproduce", diverged, "--device", "cpu")
    assert other.code == 1
    assert "different: the stored run diverged at step 5, this one finished." in other.out


def test_a_trial_that_diverged_diverges_again(call: Call, trained: Workplace) -> None:
    file = trained.folder / trained.space("wild", seeds=1)
    file.write_text(file.read_text().replace("lr: 1.0e-2", "lr: 1.0e+30"))
    assert call("study", file.name, "--workers", "1", "--device", "cpu", "--json").code == 0
    ((trial, step),) = trained.rows(
        "SELECT key, stopped_at FROM trials JOIN study_trials ON trial_key = key "
        "WHERE trials.state = 'diverged' AND variant = 'norm=none'"
    )
    found = json.loads(call("reproduce", trial, "--device", "cpu", "--json").out)
    assert (found["verdict"], found["diverged_at"]) == ("identical", {"stored": step, "again": step})


def test_data_that_has_changed_is_refused_unless_it_is_still_prepared(
    call: Call, trained: Workplace, tmp_path_factory: pytest.TempPathFactory
) -> None:
    trial = key(trained, "norm=none", 2)
    (trained.folder / "text" / "0.py").write_text("print('another text')\n" * 99)
    assert call("reproduce", trial, "--device", "cpu").code == 0
    empty = str(tmp_path_factory.mktemp("empty"))
    refused = call("reproduce", trial, "--device", "cpu", "--cache", empty)
    assert (refused.code, refused.out) == (2, "")
    ((fingerprint,),) = trained.rows(f"SELECT data_fingerprint FROM trials WHERE key = '{trial}'")
    paragraph = refused.err.splitlines()[-1]
    assert f"trial {trial[:12]}: its data is not what it was" in paragraph
    assert f"expected the data fingerprint {fingerprint[:12]}; got " in paragraph


@pytest.mark.parametrize(
    ("statement", "words"),
    [
        ("UPDATE trials SET state = 'failed'", ["one that is failed", "ablate study FILE"]),
        (
            "UPDATE variants SET spec = json_set(spec, '$.model.block.mixer.kind', 'mine')",
            ["mixer kind `mine`, which no loaded plugin defines", "`--plugin FILE`"],
        ),
    ],
)
def test_a_trial_that_cannot_be_trained_again(call: Call, trained: Workplace, statement: str, words: list[str]) -> None:
    change(trained, statement)
    refused = call("reproduce", key(trained, "baseline", 0), "--device", "cpu")
    assert (refused.code, refused.out) == (2, "")
    for word in words:
        assert word in refused.err.splitlines()[-1]


def test_two_variants_differ_in_what_their_switch_sets_and_are_paired(call: Call, trained: Workplace) -> None:
    left, right = losses(trained, "baseline"), losses(trained, "norm=none")
    found = json.loads(call("diff", "tiny/baseline", "tiny/norm=none", "--json").out)
    kind, *others = found["spec"]
    assert kind == {"path": "model.block.norm.kind", "left": "rms", "right": "none"}
    assert {line["path"]: line["left"] for line in others} == NORM, "the kind `none` has no settings"
    assert (found["environment"], found["seeds"]) == ([], [0, 1, 2])
    assert {trial["seed"]: trial["key"] for trial in found["right"]["trials"]} == {
        seed: key(trained, "norm=none", seed) for seed in range(3)
    }
    loss = found["result"]["val_loss"]
    assert loss["left"]["mean"] == pytest.approx(statistics.mean(left.values()))
    assert loss["difference"]["difference"] == pytest.approx(statistics.mean(right[s] - left[s] for s in range(3)))
    assert loss["difference"]["n"] == 3
    printed = call("diff", "tiny/baseline", "tiny/norm=none").out
    assert ["model.block.norm.kind", "rms", "none"] in [line.split() for line in printed.splitlines()]
    assert "paired over the seeds 0, 1, 2" in printed
    assert f"{key(trained, 'baseline', 1)[:12]} (seed 1)" in printed


def test_trials_are_paired_only_where_their_seeds_agree(call: Call, trained: Workplace) -> None:
    zero, one = key(trained, "baseline", 0), key(trained, "baseline", 1)
    found = json.loads(call("diff", zero[:9], one[:9], "--json").out)
    assert (found["spec"], found["seeds"], found["right"]["variant"]) == ([], [], "baseline")
    assert found["result"]["val_loss"]["difference"]["difference"] is None
    printed = call("diff", zero[:9], one[:9]).out
    assert "Spec: the same." in printed
    assert "no seed in common" in printed
    mixed = json.loads(call("diff", one[:9], "tiny/values=identity", "--json").out)
    gap = losses(trained, "values=identity")[1] - losses(trained, "baseline")[1]
    assert mixed["seeds"] == [1]
    assert mixed["result"]["val_loss"]["difference"]["difference"] == pytest.approx(gap)


def test_where_trials_ran_is_compared(call: Call, trained: Workplace) -> None:
    moved = (
        "INSERT INTO environments (hash, content) SELECT 'other', "
        "json_set(content, '$.host', 'far', '$.command', 'x') FROM environments"
    )
    change(trained, moved)
    trial = key(trained, "norm=none", 2)
    change(
        trained,
        f"UPDATE trials SET environment_id = (SELECT id FROM environments WHERE hash = 'other') WHERE key = '{trial}'",
    )
    ((host,),) = trained.rows("SELECT json_extract(content, '$.host') FROM environments WHERE hash != 'other'")
    found = json.loads(call("diff", "tiny/baseline", "tiny/norm=none", "--json").out)
    assert found["environment"] == [{"path": "host", "left": host, "right": sorted(["far", host])}]


def test_space_files_are_compared_whole_and_a_space_with_a_variant_by_its_baseline(
    call: Call, trained: Workplace
) -> None:
    trained.space("longer", steps=60, margin=0.1)
    trained.store.rename(trained.folder / "aside.db")  # two files need no store
    spaces = json.loads(call("diff", "tiny.yaml", "longer.yaml", "--json").out)
    assert {line["path"]: (line["left"], line["right"]) for line in spaces["spec"]} == {
        "name": ("tiny", "longer"),
        "training.steps": (6, 60),
        "design.seeds": (3, 2),
        "objective.margin": (0.05, 0.1),
    }
    mixed = json.loads(call("diff", "tiny/norm=none", "longer.yaml", "--json", "--store", "aside.db").out)
    assert {line["path"] for line in mixed["spec"]} == {"model.block.norm.kind", "training.steps", *NORM}
    assert (mixed["environment"], mixed["result"]) == (None, {})


@pytest.mark.parametrize(
    ("left", "words"),
    [
        ("tiny", ["a study is not compared as a whole", "Did you mean `tiny/baseline`?"]),
        ("tinny", ["nothing here is called 'tinny'", "Did you mean `tiny/baseline`?"]),
        ("tinny/baseline", ["there is no study 'tinny'", "tiny"]),
        ("tiny/nrm=none", ["no variant 'nrm=none'", "tiny/norm=none"]),
        ("", ["nothing here is called ''"]),
        ("tinny.yaml", ["there is no such file", "Did you mean `tiny.yaml`?"]),
    ],
)
def test_an_unknown_side(call: Call, left: str, words: list[str]) -> None:
    refused = call("diff", left, "tiny/baseline")
    assert (refused.code, refused.out) == (2, "")
    for word in words:
        assert word in refused.err.splitlines()[-1]


@pytest.mark.parametrize("command", [["diff", "tiny/baseline"], ["reproduce"]])
def test_a_key_that_is_unknown_or_of_several_trials(call: Call, trained: Workplace, command: list[str]) -> None:
    keys = sorted(found for (found,) in trained.rows("SELECT key FROM trials"))
    change(trained, f"UPDATE study_trials SET trial_key = 'abcdef01' WHERE trial_key = '{keys[0]}'")
    change(trained, f"UPDATE study_trials SET trial_key = 'abcdef02' WHERE trial_key = '{keys[1]}'")
    for old, new in zip(keys, ("abcdef01", "abcdef02"), strict=False):
        change(trained, f"UPDATE trials SET key = '{new}' WHERE key = '{old}'")
    several = call(*command, "abcdef0")
    assert (several.code, "Give more characters of the key." in several.err) == (2, True)
    unknown = call(*command, "abcdef0123")
    assert (unknown.code, "such as abcdef01 and abcdef02" in unknown.err) == (2, True)
