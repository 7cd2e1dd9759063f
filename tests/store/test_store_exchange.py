"""A study moves between stores with all of its rows; a damaged or contradicting file changes nothing."""

from __future__ import annotations

import hashlib
import json
import os
import zipfile
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import JSON, Boolean, Double, Integer, String, Table
from store_samples import HERE, as_record, begin, digest, draft, outcome, start, variant

from ablate.errors import NotFoundError, StoreError
from ablate.roles import TrialRole
from ablate.store import Store, TrialState, exchange, open_store, tables
from ablate.store.records import Mark, WorkerRecord

NAMES = ("baseline", "norm=none")


def export(store: Store, folder: Path) -> Path:
    """A study with trials of every kind, in a file."""
    begin(store, NAMES, 3, "simplify_block")
    key = digest(("baseline", 0))
    store.record_started(key, digest("baseline"), 0, digest("data"), HERE, driver="token")
    store.record_worker(key, WorkerRecord("lab", "cpu", 7), 1, driver="token")
    for seed in range(2):
        for name in NAMES:
            store.record_outcome(outcome(name, seed), HERE, driver="token")
    store.record_outcome(outcome("baseline", 2, TrialState.DIVERGED), HERE)
    start(store, "norm=none", 2)
    store.marks.put("study", "simplify_block", Mark(starred=True, tags=("paper",), note="\u2028 look \ud800"))
    file = folder / "moved.zip"
    store.export_study("simplify_block", file)
    return file


@pytest.fixture
def exported(store: Store, tmp_path: Path) -> Path:
    """That file, from a store on each backend."""
    return export(store, tmp_path)


@pytest.fixture(scope="module")
def moved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """That file, for tests of the file alone."""
    folder = tmp_path_factory.mktemp("moved")
    with open_store(folder / "store.db") as store:
        return export(store, folder)


def content(store: Store) -> dict[str, object]:
    """All that a store holds of the study; who runs a trial is not of it."""
    study = store.study("simplify_block")
    keys = [planned.key for planned in study.planned]
    known = store.trials(keys).items()
    trials = {key: replace(trial, worker=None) for key, trial in known if trial.state is not TrialState.RUNNING}
    return {
        "study": study,
        "variants": [store.variant(variant.hash) for variant in study.variants],
        "trials": trials,
        "curves": {key: points for key, points in store.curves(keys).items() if key in trials},
        "recordings": {key: store.recordings(key) for key in trials},
        "mark": store.marks.of("study", "simplify_block"),
    }


def test_a_study_is_the_same_in_the_other_store(store: Store, exported: Path, tmp_path: Path) -> None:
    with open_store(tmp_path / "other.db") as other:
        assert other.import_study(exported) == ("simplify_block", 5, 0)
        assert content(other) == content(store)
        (summary,) = other.studies()
        assert (summary.finished, summary.diverged, summary.running, summary.planned) == (4, 1, 0, 6)
        again = tmp_path / "again.zip"
        other.export_study("simplify_block", again)
    with zipfile.ZipFile(exported) as archive:
        settled = [json.loads(line) for line in archive.read("trials.jsonl").splitlines()]
    assert {(row["driver"], row["worker"]) for row in settled} == {("", None)}
    manifests = [json.loads(zipfile.ZipFile(file).read("manifest.json")) for file in (exported, again)]
    assert {manifest["format"] for manifest in manifests} == {1}, "files of another format cannot be read"
    first, second = (manifest["sha256"] for manifest in manifests)
    assert first == second


@pytest.mark.parametrize("old", [False, True])
def test_the_first_setting_of_a_switch_is_the_baselines_in_the_other_store(tmp_path: Path, old: bool) -> None:
    space = {"switches": {"norm": {"rms": {}, "none": {}}, "arrangement": {"sequential": {}, "parallel": {}}}}
    made = (
        variant("baseline", norm="rms", arrangement="sequential"),
        variant("norm=none", norm="none", arrangement="sequential"),
    )
    file = tmp_path / "moved.zip"
    with open_store(tmp_path / "one.db") as one:
        one.begin_study(replace(draft("x"), space=space), made, ())
        one.export_study("x", file)
        assert list(one.study("x").space["switches"]) == ["norm", "arrangement"]
    if old:  # older versions sorted all keys
        with zipfile.ZipFile(file) as archive:
            members = {name: archive.read(name) for name in archive.namelist()}
        members["studies.jsonl"] = json.dumps(json.loads(members["studies.jsonl"]), sort_keys=True).encode() + b"\n"
        manifest = json.loads(members["manifest.json"])
        manifest["sha256"]["studies.jsonl"] = hashlib.sha256(members["studies.jsonl"]).hexdigest()
        members["manifest.json"] = json.dumps(manifest).encode()
        with zipfile.ZipFile(file, "w") as archive:
            for name, text in members.items():
                archive.writestr(name, text)
    with open_store(tmp_path / "other.db") as other:
        other.import_study(file)
        switches = other.study("x").space["switches"]
    assert {name: next(iter(settings)) for name, settings in switches.items()} == made[0].settings
    assert old or list(switches) == ["norm", "arrangement"]


def test_trials_that_both_stores_have_are_not_doubled(store: Store, exported: Path, tmp_path: Path) -> None:
    with open_store(tmp_path / "other.db") as other:
        begin(other, NAMES, 3, "mine")
        other.record_outcome(outcome("baseline", 0), HERE)
        other.record_outcome(outcome("baseline", 1, TrialState.FAILED), HERE)
        other.record_outcome(outcome("norm=none", 2), HERE)  # which runs in the store of the file
        assert other.import_study(exported) == ("simplify_block", 4, 1)
        assert other.trial(digest(("baseline", 1))) == as_record(outcome("baseline", 1)), "a failed one is replaced"
        states = {summary.name: (summary.finished, summary.failed) for summary in other.studies()}
        assert states == {"mine": (5, 0), "simplify_block": (5, 0)}
        with pytest.raises(StoreError, match="a study of this name"):
            other.import_study(exported)


@pytest.mark.parametrize("name", exchange._KEPT)
def test_other_results_of_the_same_trial_are_refused(moved: Path, tmp_path: Path, name: str) -> None:
    """How long it took is no result."""
    other_value = {
        "state": TrialState.DIVERGED,
        "variant_hash": digest("norm=none"),
        "metrics": {"val_loss": 9.0},
        "seed": 9,
        "steps": 299,
        "stopped_at": 0,
        "data_fingerprint": digest("other data"),
        "code": digest("code"),
    }
    known, same = outcome("baseline", 0), replace(outcome("norm=none", 0), seconds=99.0)
    with open_store(tmp_path / "other.db") as other:
        begin(other, NAMES, 3, "mine")
        other.record_outcome(replace(known, **{name: other_value[name]}), HERE)
        other.record_outcome(same, HERE)
        before = other.trials([known.key, same.key])
        with pytest.raises(StoreError, match=f"a trial with another `{name}`.*got {known.key[:9]}") as refused:
            other.import_study(moved)
        assert refused.value.where == str(tmp_path / "other.db")
        assert [study.name for study in other.studies()] == ["mine"]
        assert other.trials([known.key, same.key]) == before


@pytest.mark.parametrize(
    ("member", "damage"),
    [
        *[("trials.jsonl", damage) for damage in ("changed", "cut", "missing", "invented")],
        *[("manifest.json", damage) for damage in ("cut", "missing", "invented")],
        *[(f"{member}.jsonl", "changed") for member in ("curves", "studies")],
    ],
)
def test_a_damaged_file_is_refused(moved: Path, tmp_path: Path, member: str, damage: str) -> None:
    with zipfile.ZipFile(moved) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    text = members.pop(member)
    if damage == "changed":
        members[member] = text.replace(b"1", b"2", 1)
    if damage == "cut":
        members[member] = text[: len(text) // 2]
    if damage == "invented":
        members[member] = b'{"a": [1]}\n'
    broken = tmp_path / "broken.zip"
    with zipfile.ZipFile(broken, "w") as archive:
        for name, kept in members.items():
            archive.writestr(name, kept)
    with open_store(tmp_path / "other.db") as other:
        with pytest.raises(StoreError, match=r"not a whole exported study|another version"):
            other.import_study(broken)
        assert other.studies() == []


def tamper(
    exported: Path, file: Path, member: str, change: Callable[[list[Any]], object], padding: bytes = b""
) -> Path:
    """A file with other rows, and the hash of these."""
    with zipfile.ZipFile(exported) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    rows = [json.loads(line) for line in members[member].splitlines()]
    change(rows)
    members[member] = b"".join(json.dumps(row).encode() + b"\n" for row in rows) + padding
    manifest = json.loads(members["manifest.json"])
    manifest["sha256"][member] = hashlib.sha256(members[member]).hexdigest()
    members["manifest.json"] = json.dumps(manifest).encode()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
        archive.writestr("../../evil", "evil")
    return file


def test_a_variant_of_an_earlier_version_lacks_fields_that_came_later(moved: Path, tmp_path: Path) -> None:
    """Its hash leaves out defaults, so it is the same variant; another value of a field that both have is refused."""

    def forget(rows: list[Any]) -> None:
        for row in rows:
            assert row["spec"].pop("training") == {}

    def contradict(rows: list[Any]) -> None:
        rows[0]["spec"]["model"]["depth"] += 1

    with open_store(tmp_path / "other.db") as other:
        begin(other, NAMES, 3, "mine")
        with pytest.raises(StoreError, match="another of the variants"):
            other.import_study(tamper(moved, tmp_path / "contradicting.zip", "variants.jsonl", contradict))
        known = [other.variant(of.hash) for of in other.study("mine").variants]
        assert other.import_study(tamper(moved, tmp_path / "earlier.zip", "variants.jsonl", forget))[0]
        assert [other.variant(of.hash) for of in other.study("mine").variants] == known


@pytest.mark.parametrize(
    ("member", "column", "value"),
    [
        ("trials", "seconds", 10**400),
        ("trials", "seconds", "12"),
        ("trials", "key", "\ud800"),
        ("trials", "data_fingerprint", "\0"),
        ("trials", "started_at", "2026-01-01T00:00:00"),
        ("trials", "finished_at", "9999-12-31T23:59:59-12:00"),
        ("study_variants", "chosen", "yes"),
        ("study_variants", "twice", None),
        ("trials", "twice", None),
        ("variants", "hash", "the same"),
        ("study_variants", "variant_hash", "0" * 64),
        ("study_trials", "variant", "no variant"),
        ("study_trials", "missing", None),
        ("trials", "variant_hash", "0" * 64),
        ("trials", "environment_id", 99),
        ("trials", "state", "running"),
        ("curves", "trial_key", "0" * 64),
    ],
)
def test_a_value_that_no_store_holds_is_refused_whatever_its_hash(
    moved: Path, tmp_path: Path, member: str, column: str, value: object
) -> None:
    def change(rows: list[Any]) -> None:
        if column == "twice":
            rows.append(rows[0])
            return
        if column == "missing":
            del rows[0]
            return
        for row in rows:
            row[column] = value

    tampered = tamper(moved, tmp_path / "t.zip", f"{member}.jsonl", change)
    with open_store(tmp_path / "other.db") as other:
        with pytest.raises(StoreError, match="not a whole exported study"):
            other.import_study(tampered)
        assert other.studies() == []


def test_a_file_that_expands_far_is_refused_before_it_is_unpacked(moved: Path, tmp_path: Path) -> None:
    bomb = tamper(moved, tmp_path / "bomb.zip", "marks.jsonl", lambda rows: rows, padding=b"\n" * (64 << 20))
    with open_store(tmp_path / "other.db") as other, pytest.raises(StoreError, match=r"67,\d+,\d+ bytes unpacked"):
        other.import_study(bomb)
    assert sorted(path.name for path in tmp_path.parent.iterdir() if path.name == "evil") == []


def test_every_byte_of_the_file_counts(moved: Path, tmp_path: Path) -> None:
    """A flipped byte is refused, or changes nothing: some bytes of a zip file say nothing."""
    whole = moved.read_bytes()
    with open_store(tmp_path / "reference.db") as other:
        other.import_study(moved)
        reference = content(other)
    for place in range(0, len(whole), max(1, len(whole) // 40)):
        flipped = tmp_path / "flipped.zip"
        flipped.write_bytes(whole[:place] + bytes([whole[place] ^ 0x10]) + whole[place + 1 :])
        with open_store(tmp_path / f"flipped{place}.db") as other:
            try:
                other.import_study(flipped)
            except StoreError:
                assert other.studies() == []
            else:
                assert content(other) == reference


def test_what_cannot_be_exported_says_why(store: Store, exported: Path, tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="no study"):
        store.export_study("nothing", tmp_path / "x.zip")
    with pytest.raises(StoreError, match="exists"):
        store.export_study("simplify_block", exported)
    with pytest.raises(StoreError, match="there is no such file"):
        store.import_study(tmp_path / "nothing.zip")
    os.mkfifo(tmp_path / "pipe.zip")
    with pytest.raises(StoreError, match="not a regular file"):
        store.import_study(tmp_path / "pipe.zip")
    (tmp_path / "text.zip").write_text("text")
    with pytest.raises(StoreError, match="not a whole exported study"):
        store.import_study(tmp_path / "text.zip")


def test_an_imported_study_has_the_costs_of_its_own_variants(tmp_path: Path) -> None:
    named = {"ours": variant("baseline"), "theirs": replace(variant("baseline"), parameters=7)}
    with open_store(tmp_path / "one.db") as store, open_store(tmp_path / "other.db") as other:
        for name, record in named.items():
            store.begin_study(draft(name), [record], [])
            store.export_study(name, tmp_path / f"{name}.zip")
        for name in reversed(named):
            other.import_study(tmp_path / f"{name}.zip")
        for name, record in named.items():
            assert other.study(name).variants == (record,)


@pytest.mark.parametrize("table", exchange._TABLES, ids=lambda table: table.name)
def test_every_value_of_a_column_goes_through_a_file_as_it_is(table: Table) -> None:
    """The ends of each type, what has no value where that may be, and no value where it may not."""
    time = datetime(2025, 3, 30, 2, 30, 0, 123456, tzinfo=UTC)
    ends: dict[Any, list[Any]] = {
        tables.UtcDateTime: [time, datetime(9999, 12, 31, tzinfo=UTC)],
        tables.State: [*TrialState],
        tables.Role: [*TrialRole],
        JSON: [{"a": [1, None, {}]}, []],
        Boolean: [True, False],
        Integer: [-(2**63), 2**63 - 1],
        Double: [-1e100, 5e-324],
        tables.FreeText: ["\0 \u2028 \ud800", ""],
        String: ["\u2028 ر", ""],
    }
    values = {
        column.name: next(of for kind, of in ends.items() if isinstance(column.type, kind)) for column in table.columns
    }
    first = {name: of[0] for name, of in values.items()}
    last = {name: of[-1] for name, of in values.items()}
    nothing = {column.name: None if column.nullable else first[column.name] for column in table.columns}
    rows = [first, last, nothing]
    assert list(exchange._decode_rows(table, exchange._encode_rows(table, rows))) == rows
    for column in table.columns:
        wrong = [None] if not column.nullable else []
        wrong += [2**63, -(2**63) - 1, True] if isinstance(column.type, Integer) else []
        for value in wrong:
            with pytest.raises((ValueError, TypeError)):
                list(exchange._decode_rows(table, exchange._encode_rows(table, [{**first, column.name: value}])))
