"""What a store promises, on every backend."""

from __future__ import annotations

import math
import random
from dataclasses import MISSING, fields, is_dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from ruamel.yaml import YAML
from sqlalchemy import func, select, text
from sqlalchemy.exc import IntegrityError
from store_samples import (
    HERE,
    as_record,
    begin,
    curve,
    description,
    digest,
    draft,
    outcome,
    planned,
    sql,
    start,
    variant,
)

from ablate.errors import ArgumentError, NotFoundError, StoreError, UnreadableWarning
from ablate.roles import TrialRole
from ablate.store import Store, TrialState, open_store, records
from ablate.store.migrations import SCHEMA_VERSION, upgrade
from ablate.store.records import Declaration, DesignTraits, Mark, Recording, SharedTrials, SpeedTiming
from ablate.store.tables import curves, environments, metadata, recordings, study_trials, trials


def test_a_new_store_is_empty(store: Store) -> None:
    assert store.studies() == []
    assert store.trials([digest("x")]) == {}
    assert store.curves([digest("x")]) == {digest("x"): ()}
    assert store.schema_version == SCHEMA_VERSION


def test_a_study_comes_back_in_the_order_of_its_design(store: Store) -> None:
    names = ["z", "baseline", "a"]
    before = datetime.now(UTC)
    variants = [variant(name, norm=name, values="dense") for name in names]
    trials = [planned(name, seed) for seed in range(3) for name in names]
    written = store.begin_study(draft(), variants, trials)
    assert written == store.study("simplify_block")
    assert written.variants == tuple(variants)
    assert list(written.variants[0].settings) == ["norm", "values"]
    assert written.planned == tuple(trials)
    for name in ("name", "question", "source", "space", "text", "objective", "baseline"):
        assert getattr(written, name) == getattr(draft(), name)
    assert before <= written.created_at == written.updated_at <= datetime.now(UTC)
    assert written.created_at.utcoffset() == timedelta(0)


def test_a_rerun_with_a_changed_space_replaces_the_plan_and_keeps_the_trials(store: Store) -> None:
    begin(store, ["baseline", "old"])
    store.record_outcome(outcome("old", 0), HERE)
    first = store.study("s")
    changed = replace(draft("s"), question="Another?", space={"name": "s"})
    second = store.begin_study(changed, [variant("new"), variant("baseline")], [planned("new", 5)])
    assert (second.id, second.created_at) == (first.id, first.created_at)
    assert second.updated_at > first.updated_at
    assert (second.question, second.space) == ("Another?", {"name": "s"})
    assert [known.name for known in second.variants] == ["new", "baseline"]
    assert second.planned == (planned("new", 5),)
    assert store.trial(outcome("old", 0).key) == as_record(outcome("old", 0))


def test_a_planned_trial_must_be_of_a_variant_of_the_study(store: Store) -> None:
    begin(store)
    with pytest.raises(IntegrityError):
        store.begin_study(draft("s"), [variant("baseline")], [planned("stranger", 0)])
    assert len(store.study("s").planned) == 4  # The failed call changed nothing.


def test_adding_variants_and_trials_appends_and_may_be_repeated(store: Store) -> None:
    begin(store, ["baseline"], seeds=1)
    for _ in range(2):
        store.add_variants("s", [variant("b"), variant("a")])
        store.plan_trials("s", [planned("b", 0), planned("baseline", 0), planned("a", 0)])
    store.plan_trials("s", [])
    store.add_variants("s", [])
    study = store.study("s")
    assert [known.name for known in study.variants] == ["baseline", "b", "a"]
    assert study.planned == (planned("baseline", 0), planned("b", 0), planned("a", 0))
    for add in (store.add_variants, store.plan_trials):
        with pytest.raises(NotFoundError):
            add("unknown", [])


def test_the_life_of_a_trial(store: Store) -> None:
    begin(store)
    before = datetime.now(UTC)
    key = start(store, "no_norm", 1)
    running = store.trial(key)
    told = {
        "state": TrialState.RUNNING,
        "environment": HERE,
        "seed": 1,
        "variant_hash": digest("no_norm"),
        "attempts": 1,
    }
    nothing = dict.fromkeys(("steps", "seconds", "tokens", "flops"), 0) | {"reason": "", "metrics": {}, "worker": None}
    assert {name: getattr(running, name) for name in (told | nothing)} == told | nothing
    assert (running.finished_at, running.stopped_at) == (None, None)
    assert running.started_at is not None
    assert before <= running.started_at <= datetime.now(UTC)

    points = curve(4)
    store.record_points({key: [*points[:3], *points[1:3]]})
    store.record_points({key: points[2:]})  # A point that comes twice is one point, also in one transaction.
    store.record_points({key: []})
    assert store.curves([key]) == {key: points}

    ended = replace(outcome("no_norm", 1), curve=curve(9, slope=0.25))
    assert store.record_outcome(ended, HERE)
    assert store.trial(key) == as_record(ended)
    assert store.curves([key]) == {key: ended.curve}
    assert store.recordings(key) == ended.recordings


@pytest.mark.parametrize("settled", [TrialState.FINISHED, TrialState.DIVERGED])
def test_a_settled_trial_never_changes(store: Store, settled: TrialState) -> None:
    begin(store)
    first = outcome("baseline", 0, settled)
    assert store.record_outcome(first, HERE)
    assert not store.record_outcome(replace(first, metrics={"val_loss": 9.0}, curve=curve(2)), HERE)
    assert not store.record_outcome(outcome("baseline", 0, TrialState.FAILED), HERE)
    assert not store.record_started(first.key, first.variant_hash, 0, "other", HERE)
    store.record_points({first.key: curve(30)})
    assert store.forget_unfinished([first.key]) == 0
    assert store.trial(first.key) == as_record(first)
    assert store.curves([first.key]) == {first.key: first.curve}


def test_a_timing_beside_a_baseline_replaces_that_beside_the_same_and_is_no_recording(store: Store) -> None:
    begin(store)
    ended = outcome("no_norm", 1)
    key = ended.key
    timing = SpeedTiming(digest("baseline"), (101.25, 99.0), (50.0, 51.5), "cpu: this one")
    with pytest.raises(NotFoundError):
        store.record_timing(key, timing)
    assert store.record_outcome(ended, HERE)
    assert store.timings([key]) == {}
    store.record_timing(key, timing)
    assert store.timings([key, "0" * 64]) == {key: (timing,)}
    again, other = replace(timing, rates=(7.0, 8.0)), replace(timing, baseline=digest("another"))
    store.record_timing(key, again)
    store.record_timing(key, other)
    assert set(store.timings([key])[key]) == {again, other}
    assert store.recordings(key) == ended.recordings
    assert store.trial(key) == as_record(ended)


def test_what_cannot_be_read_is_counted_and_left_out(store: Store) -> None:
    begin(store)
    ended = replace(outcome("baseline", 0), recordings=(Recording(3, {"spread": {"block 1 mixer": 1.5}}),))
    timed = outcome("no_norm", 1)
    assert store.record_outcome(ended, HERE)
    assert store.record_outcome(timed, HERE)
    store.plan_trials("s", [replace(planned("baseline", 9 + at), role=role) for at, role in enumerate(TrialRole)])
    with store._database.writing() as connection:
        connection.execute(text("UPDATE study_trials SET role = 'none' WHERE variant = 'no_norm' AND seed = 0"))
        connection.execute(
            recordings.insert(),
            [
                {"trial_key": ended.key, "step": 4, "content": {"usage": {"memory": "much"}}},
                {"trial_key": timed.key, "step": -1, "content": {digest("baseline"): {"rates": ["fast"]}}},
            ],
        )
    with pytest.warns(
        UnreadableWarning, match=r"^1 of 2 recordings of the trial .* cannot be read .*check-store"
    ) as said:
        assert store.recordings(ended.key) == ended.recordings
    assert said[0].filename == __file__, "it names the line that reads"
    with pytest.warns(UnreadableWarning, match=r"^the timings of 1 of 1 trials cannot be read .*check-store"):
        assert store.timings([ended.key, timed.key]) == {}
    with pytest.warns(UnreadableWarning, match=r"^of the study 's' 1 of 9 planned trials cannot be read .*check-store"):
        assert len(store.study("s").planned) == 4
    with store._database.writing() as connection:
        connection.execute(text("UPDATE variants SET spec = '1'"))
    with pytest.raises(StoreError, match="this variant cannot be read"):
        store.variant(digest("baseline"))


def test_a_new_name_takes_the_place_of_the_old_one_alone(store: Store) -> None:
    """A quoted text may go on at the beginning of a line."""
    own = replace(draft("s"), text='# Mine\nname: s\nquestion: "Which\nname: s or t?"\n')
    store.begin_study(own, [variant("baseline")], [])
    begin(store, study="u")
    for name in ("s", "u", "t"):
        store.marks.put("study", name, Mark(note=name))
    store.rename_study("s", "t")
    renamed = store.study("t")
    assert YAML(typ="safe").load(renamed.text) == {"name": "t", "question": "Which name: s or t?"}
    assert renamed.space == own.space | {"name": "t"}
    assert {name: store.marks.of("study", name).note for name in "stu"} == {"s": "", "t": "s", "u": "u"}
    with pytest.raises(ArgumentError, match=r"a study of this name exists; got u\. Choose another name") as taken:
        store.rename_study("t", "u")
    assert taken.value.where == store.where


def test_what_rows_of_older_versions_lack_is_nothing_but_for_what_is_listed_here() -> None:
    traits = DesignTraits(chooses=False, adds_seeds=True, plans_points=True, sets_values=False, finds_best=False)
    listed = {
        "PlannedTrial.role": TrialRole.COMPARISON,
        "TrialRecord.attempts": 1,
        "RunningTrial.precision": "fp32",
        "DesignTraits.adds_seeds": True,
        "DesignTraits.plans_points": True,
        "StudyDraft.traits": traits,
        "StudyRecord.traits": traits,
        "StudyRecord.studies": 1,
        "JudgedRuns.named": True,
    }
    kinds = [kind for kind in vars(records).values() if is_dataclass(kind) and kind.__module__ == records.__name__]
    found = {f"{kind.__name__}.{one.name}": one.default for kind in kinds for one in fields(kind)}
    assert {name: default for name, default in found.items() if default is not MISSING and default} == listed


def test_a_failed_trial_can_be_run_again(store: Store) -> None:
    begin(store)
    failed = outcome("baseline", 0, TrialState.FAILED)
    store.record_outcome(failed, HERE)
    start(store, "baseline", 0)
    assert store.curves([failed.key]) == {failed.key: ()}
    assert store.record_outcome(outcome("baseline", 0), HERE)
    assert store.trial(failed.key).state is TrialState.FINISHED


def test_a_pruned_trial_stays_until_it_is_trained_anew(store: Store) -> None:
    begin(store)
    pruned = outcome("baseline", 0, TrialState.PRUNED)
    store.record_outcome(pruned, HERE)
    assert store.forget_unfinished([pruned.key]) == 0
    assert store.trial(pruned.key).state is TrialState.PRUNED
    (summary,) = store.studies()
    assert (summary.pruned, summary.finished, summary.diverged, summary.failed) == (1, 0, 0, 0)
    start(store, "baseline", 0)
    assert store.curves([pruned.key]) == {pruned.key: ()}
    assert store.recordings(pruned.key) == ()
    assert store.record_outcome(outcome("baseline", 0), HERE)
    assert not store.record_outcome(pruned, HERE), "what has finished is not pruned"
    assert store.trial(pruned.key).state is TrialState.FINISHED


def test_unfinished_trials_are_forgotten_with_their_points(store: Store, location: str) -> None:
    begin(store, seeds=4)
    running = start(store, "baseline", 0)
    store.record_points({running: curve(3)})
    store.record_outcome(outcome("baseline", 1, TrialState.FAILED), HERE)
    store.record_outcome(outcome("baseline", 2), HERE)
    store.record_outcome(outcome("baseline", 3, TrialState.DIVERGED), HERE)
    spared = start(store, "no_norm", 0)
    keys = [trial.key for trial in store.study("s").planned if trial.variant == "baseline"]
    assert store.forget_unfinished(keys) == 2
    assert store.forget_unfinished(keys) == 0
    assert set(store.trials(keys)) == {outcome("baseline", 2).key, outcome("baseline", 3).key}
    assert store.trial(spared).state is TrialState.RUNNING
    with sql(location) as connection:
        left = connection.execute(select(func.count()).where(curves.c.trial_key == running)).scalar()
    assert left == 0
    store.record_points({running: curve(3)})  # Of a driver that was thought dead: left out.
    assert store.curves([running]) == {running: ()}


def test_an_outcome_is_stored_whole_or_not_at_all(store: Store) -> None:
    begin(store)
    key = start(store, "baseline", 0)
    store.record_points({key: curve(2)})
    broken = replace(outcome("baseline", 0), curve=(curve(1)[0]._replace(tokens=None),))  # type: ignore[arg-type]
    with pytest.raises(IntegrityError):
        store.record_outcome(broken, HERE)
    assert store.trial(key).state is TrialState.RUNNING
    assert store.curves([key]) == {key: curve(2)}


def test_a_loss_that_is_no_number_is_stored_as_none(store: Store) -> None:
    begin(store)
    first, second = curve(2)
    written = (first._replace(val_loss=math.nan), second._replace(train_loss=math.inf))
    store.record_outcome(replace(outcome("baseline", 0, TrialState.DIVERGED), curve=written), HERE)
    key = outcome("baseline", 0).key
    assert store.curves([key])[key] == (first._replace(val_loss=None), second._replace(train_loss=math.inf))


def test_text_that_no_database_can_hold_does_not_lose_a_trial(store: Store) -> None:
    begin(store)
    failed = replace(outcome("baseline", 0, TrialState.FAILED), reason="ValueError: \0 in '\udcff.txt' 𐍈")
    assert store.record_outcome(failed, HERE)
    assert store.trial(failed.key).reason == "ValueError: � in '�.txt' 𐍈"


def test_equal_environments_are_one_row(store: Store, location: str) -> None:
    begin(store)
    other = replace(HERE, git_commit=None, git_clean=None)
    reordered = replace(HERE, versions=dict(reversed(HERE.versions.items())))
    for seed, environment in enumerate([HERE, other, reordered, HERE]):
        store.record_outcome(outcome("baseline", seed), environment)
    with sql(location) as connection:
        assert connection.execute(select(func.count()).select_from(environments)).scalar() == 2
    assert store.trial(outcome("baseline", 1).key).environment == other


def test_summaries_agree_with_counting_by_hand(store: Store) -> None:
    chance = random.Random(7)
    states: dict[tuple[str, int], TrialState] = {}
    names = [f"v{i}" for i in range(5)]
    store.begin_study(draft("empty"), [], [])
    plans = {f"study {i}": chance.sample([(name, seed) for name in names for seed in range(6)], 12) for i in range(4)}
    for study, plan in plans.items():
        store.begin_study(
            draft(study, names[0]), [variant(name) for name in names], [planned(*trial) for trial in plan]
        )
    for trial in sorted({trial for plan in plans.values() for trial in plan}):
        states[trial] = chance.choice(list(TrialState))
        if states[trial] is TrialState.RUNNING:
            start(store, *trial)
        elif states[trial] is not TrialState.WAITING:
            store.record_outcome(outcome(*trial, state=states[trial]), HERE)
    summaries = {summary.name: summary for summary in store.studies()}
    assert list(summaries) == ["study 3", "study 2", "study 1", "study 0", "empty"]  # The latest first.
    assert (summaries["empty"].variants, summaries["empty"].planned, summaries["empty"].finished) == (0, 0, 0)
    for study, plan in plans.items():
        assert (summaries[study].variants, summaries[study].planned) == (5, 12)
        for state in set(TrialState) - {TrialState.WAITING}:
            assert getattr(summaries[study], state) == sum(states[trial] is state for trial in plan)
        assert summaries[study].updated_at == store.study(study).updated_at


def test_an_unknown_study_names_the_nearest(store: Store) -> None:
    with pytest.raises(NotFoundError, match="Run one"):
        store.study("simplify_blok")
    for name in ("simplify_block", "softmax", "gate"):
        store.begin_study(draft(name), [], [])
    with pytest.raises(NotFoundError, match=r"one of simplify_block[.]"):
        store.study("simplify_blok")
    with pytest.raises(NotFoundError, match=r"one of gate, simplify_block, softmax[.]"):
        store.study("zzz")


def test_a_trial_is_found_by_the_beginning_of_its_key(store: Store) -> None:
    begin(store, seeds=40)
    keys = [outcome("baseline", seed).key for seed in range(40)]
    for seed in range(40):
        store.record_outcome(outcome("baseline", seed, points=0), HERE)
    for key in keys:
        unique = next(n for n in range(65) if sum(other.startswith(key[:n]) for other in keys) == 1)
        assert store.trial(key[:unique]).key == key
        if unique > 0:
            with pytest.raises(NotFoundError, match="Give more characters of the key"):
                store.trial(key[: unique - 1])
    for prefix in ("%", "_" * 64, "x", "x" * 60_000):
        with pytest.raises(NotFoundError, match="there is no trial"):
            store.trial(prefix)
    before, after = sorted(keys)[6:8]
    between = before[:-1] + chr(ord(before[-1]) + 1)
    with pytest.raises(NotFoundError, match=f"such as {before} and {after}"):
        store.trial(between)


def test_a_variant_is_found_by_its_hash(store: Store) -> None:
    begin(store, ["baseline", "old"], study="first")
    renamed = replace(variant("old"), name="also", settings={"norm": "none"})
    store.begin_study(draft("second"), [variant("baseline"), renamed], [])
    assert store.variant(digest("baseline")) == variant("baseline")
    assert store.variant(digest("old")) == variant("old")
    store.begin_study(draft("first"), [variant("baseline")], [])
    assert store.variant(digest("old")) == renamed
    store.begin_study(draft("second"), [variant("baseline")], [])
    assert store.variant(digest("old")) == replace(variant("old"), name="")
    with pytest.raises(NotFoundError, match="no variant"):
        store.variant(digest("new"))


def test_many_keys_at_once(store: Store) -> None:
    begin(store, ["baseline"], seeds=12)
    for seed in range(12):
        store.record_outcome(outcome("baseline", seed), HERE)
    real = [outcome("baseline", seed).key for seed in range(12)]
    keys = [digest(("stranger", i)) for i in range(40_000)]
    for place, key in enumerate(real):
        keys.insert(place * 3_500, key)
    assert list(store.trials(keys)) == real
    curves = store.curves(keys)
    assert list(curves) == keys
    assert {key: points for key, points in curves.items() if points} == dict.fromkeys(real, curve(5))
    assert store.forget_unfinished(keys) == 0


def test_what_was_written_is_there_after_closing(location: str) -> None:
    with open_store(location) as first:
        begin(first)
        first.record_outcome(outcome("baseline", 0), HERE)
        study = first.study("s")
    for create in (False, True):
        with open_store(location, create=create) as second:
            assert second.study("s") == study
            assert second.trial(outcome("baseline", 0).key) == as_record(outcome("baseline", 0))


def test_a_new_store_has_the_tables_that_the_migrations_make(store: Store, location: str) -> None:
    """The schema of 0009 is that of today without what later migrations add."""
    from alembic.autogenerate import compare_metadata
    from alembic.runtime.migration import MigrationContext

    with sql(location) as connection:
        created = description(connection)
        for added in ("trials.code", "study_trials.code", "studies.traits", "study_variants.chosen"):
            table, _, column = added.partition(".")
            connection.execute(text(f"ALTER TABLE {table} DROP COLUMN {column}"))
        connection.execute(text("DROP TABLE codes"))
        connection.execute(text("UPDATE alembic_version SET version_num = '0009'"))
        upgrade(connection)
        assert description(connection) == created
        assert "alembic_version" in created
        assert connection.execute(text("SELECT version_num FROM alembic_version")).scalar() == SCHEMA_VERSION
        context = MigrationContext.configure(connection, opts={"compare_type": True, "compare_server_default": True})
        assert compare_metadata(context, metadata) == []


def test_the_state_beside_a_plan_is_that_of_the_trial(store: Store, location: str) -> None:
    begin(store, study="first")
    store.record_outcome(outcome("baseline", 0), HERE)
    start(store, "no_norm", 0)
    begin(store, study="second")  # planned when two of its trials have a state already
    store.record_outcome(outcome("no_norm", 0, TrialState.FAILED), HERE)
    store.add_variants("second", [variant("other")])
    start(store, "other", 0)
    store.plan_trials("second", [planned("other", 0)])
    store.forget_unfinished([digest(("no_norm", 0))])
    joined = study_trials.outerjoin(trials, trials.c.key == study_trials.c.trial_key)
    wrong = func.coalesce(trials.c.state, TrialState.WAITING) != study_trials.c.state
    with sql(location) as connection:
        assert connection.execute(select(func.count()).select_from(joined)).scalar() == 9
        assert connection.execute(select(study_trials.c.trial_key).select_from(joined).where(wrong)).all() == []


def test_marks_are_kept_beside_studies_and_trials(store: Store) -> None:
    assert store.marks.of("study", "s") == Mark()
    hostile = "<b>no</b> \0 \u202e ر 😀\nline"
    store.marks.put("study", "s", Mark(starred=True, tags=("b", "a", "b"), note=hostile))
    store.marks.put("trial", "s", Mark(note="of a trial"))
    assert store.marks.of("study", "s") == Mark(True, ("a", "b"), hostile.replace("\0", "\ufffd"))
    assert store.marks.of("trial", "s").note == "of a trial"
    store.marks.put("study", "s", Mark(tags=("c",)))
    assert store.marks.all("study") == {"s": Mark(False, ("c",), "")}


def test_evaluations_are_the_points_of_curves_with_a_finite_validation_loss(store: Store) -> None:
    chance = random.Random(3)
    losses = [None, None, math.inf, 1.0, 2.0, 2.0, 3.0, 4.0, 5.0]
    begin(store, ["baseline"], seeds=40)
    ends = []
    for seed in range(40):
        points = tuple(point._replace(val_loss=chance.choice(losses)) for point in curve(seed % 9))
        ends.append(replace(outcome("baseline", seed), curve=points))
        store.record_outcome(ends[-1], HERE)
    found = store.evaluations([digest("unknown"), *(end.key for end in ends)])
    expected = {
        end.key: tuple(p for p in end.curve if p.val_loss is not None and math.isfinite(p.val_loss)) for end in ends
    }
    assert found == {key: points for key, points in expected.items() if points}


def test_what_was_declared_otherwise_when_trials_had_finished_is_kept(store: Store) -> None:
    def declare(margin: float, *claims: str) -> tuple[Declaration, ...]:
        changed = replace(
            draft(), objective={**draft().objective, "margin": margin}, space={"claims": [*claims], "name": "s"}
        )
        return store.begin_study(
            changed, [variant("baseline")], [planned("baseline", seed) for seed in (0, 1)]
        ).declared_before

    assert declare(0.02) == ()
    assert declare(0.05) == (), "nothing had finished, so nobody had looked"
    assert store.record_outcome(outcome("baseline", 0), HERE)
    assert declare(0.05) == ()
    (first,) = declare(0.0001, "a claim")
    assert (first.objective["margin"], first.claims, first.finished, first.pairs) == (0.05, [], 1, 0)
    assert first.until.tzinfo is not None
    assert store.record_outcome(outcome("baseline", 1), HERE)
    again, second = declare(0.05)
    assert again == first
    assert (second.objective["margin"], second.claims, second.finished) == (0.0001, ["a claim"], 2)
    assert declare(0.05) == store.study("simplify_block").declared_before == (first, second)


def test_every_part_of_a_declaration_is_kept_with_what_had_finished(store: Store) -> None:
    begin(store, ["baseline", "no_norm", "no_value"], seeds=2)
    for name in ("baseline", "no_norm"):
        for seed in range(2):
            assert store.record_outcome(outcome(name, seed), HERE)
    words = dict.fromkeys(("name", "question", "source", "departs", "resources"), "other words")
    empty = {"claims": [], "tune": None, "variants": {}, "budgets": ()}
    again = replace(draft("s"), text="other words", question="Another?", space={**draft("s").space, **words, **empty})
    chosen = replace(variant("no_norm"), chosen=True)
    assert store.begin_study(again, [variant("baseline"), chosen], []).declared_before == ()
    begin(store, ["baseline", "no_norm", "no_value"], seeds=2)
    space = {**draft("s").space, "training": {"steps": 9}}
    (before,) = store.begin_study(
        replace(draft("s"), space=space), [variant("baseline"), chosen], [planned("baseline", 0)]
    ).declared_before
    assert before.space == draft("s").space
    assert before.variants == {"baseline": 2, "no_norm": 2, "no_value": 0}
    assert (before.finished, before.pairs, before.confirm, before.confirmed) == (4, 2, 0, 0)
    assert store.study("s").variants[1].chosen


def test_trials_that_are_trained_again_with_other_code_or_data_are_a_declaration(store: Store) -> None:
    begin(store, ["baseline", "no_norm"], seeds=2)
    for name in ("baseline", "no_norm"):
        assert store.record_outcome(outcome(name, 0), HERE)
    trained = [planned(name, seed) for name in ("baseline", "no_norm") for seed in range(2)]
    for code in ("other", "other still"):
        again = [
            replace(one, key=f"{one.key}{code}", code=code) if one.variant == "no_norm" else one for one in trained
        ]
        (before,) = store.begin_study(draft("s"), [variant("baseline"), variant("no_norm")], again).declared_before
        assert (before.finished, before.other_code, before.other_data) == (2, 1, 0)
    moved = [replace(one, key=f"{one.key}moved") for one in trained]
    *_, before = store.begin_study(draft("s"), [variant("baseline"), variant("no_norm")], moved).declared_before
    assert (before.finished, before.other_code, before.other_data) == (1, 0, 1)


@pytest.mark.parametrize(
    ("finished", "seen"),
    [
        ({}, False),
        ({"baseline": 2, "a": 1}, False),
        ({"baseline": 1, "a": 2}, False),
        ({"baseline": 3}, False),
        ({"a": 2, "b": 2}, False),
        ({"baseline": 2, "a": 2}, True),
        ({"baseline": 3, "a": 1, "b": 2}, True),
    ],
)
def test_seeds_that_are_changed_count_as_a_look_once_two_pairs_have_finished(
    store: Store, finished: dict[str, int], seen: bool
) -> None:
    """What protects against adding seeds until the result pleases: a study remembers which seeds it had declared."""

    def declare(seeds: Any) -> None:
        space = {**draft("s").space, "design": {"kind": "leave_one_out", "seeds": seeds}}
        names = ("baseline", "a", "b")
        trials = [planned(name, seed) for name in names for seed in range(3)]
        fresh = [replace(planned(name, seed), role=TrialRole.CONFIRMATION) for name in names for seed in (7, 8)]
        store.begin_study(replace(draft("s"), space=space), [*map(variant, names)], [*trials, *fresh])

    assert store.seeds_before("s", 3) == [], "there is no such study"
    declare(3)
    for name in ("baseline", "a", "b"):
        for seed in range(3):
            state = TrialState.FINISHED if seed < finished.get(name, 0) else TrialState.DIVERGED
            assert store.record_outcome(outcome(name, seed, state), HERE)
        for seed in (7, 8):
            assert store.record_outcome(outcome(name, seed), HERE), "confirmations are not a look at comparisons"
    later = {"start": 3, "max": 9}
    assert store.seeds_before("s", 3) == []
    assert store.seeds_before("s", later) == ([3] if seen else [])
    assert store.seeds_before("other", later) == []
    declare(later)
    assert store.seeds_before("s", later) == ([3] if seen else [None])
    pairs = [before.pairs for before in store.study("s").declared_before]
    assert pairs == [max(min(finished.get("baseline", 0), finished.get(name, 0)) for name in "ab")]
    assert store.seeds_before("s", 20) == ([3, later] if seen else [None])


def test_trials_that_an_earlier_study_compared_are_noticed(store: Store) -> None:
    begin(store, ["baseline", "no_norm"], seeds=2, study="first")
    begin(store, ["baseline", "no_value"], seeds=2, study="other")
    assert store.study("other").studies == 1, "itself"
    for name in ("baseline", "no_norm", "no_value"):
        for seed in range(2):
            assert store.record_outcome(outcome(name, seed), HERE)
    begin(store, ["baseline", "no_norm", "new"], seeds=3, study="second")
    assert store.study("second").shared == (SharedTrials("first", ("no_norm",)),), "the baseline alone is none"
    assert store.study("first").shared == (), "what came first was not seen before"
    assert store.study("second").studies == 3
    one_of_it = [*(planned("baseline", seed) for seed in range(2)), planned("no_norm", 0)]
    store.begin_study(draft("third"), [variant("baseline"), variant("no_norm")], one_of_it)
    assert store.study("third").shared == (), "a single trial of it has no spread"


def test_each_study_has_the_costs_of_its_own_variants(store: Store) -> None:
    """A hash of a spec holds neither the data's vocabulary nor the code of a kind, on which parameters depend."""
    ours = replace(variant("baseline", norm="rms"), settings={"norm": "rms", "@cost": "cheap", "cost": "1"})
    theirs = replace(ours, parameters=7)
    store.begin_study(draft("first"), [ours], [])
    store.begin_study(draft("second"), [theirs], [])
    assert store.study("first").variants == (ours,)
    assert store.study("second").variants == (theirs,)
    again, added = replace(ours, parameters=9, activation_bytes=3), replace(variant("a"), parameters=1)
    store.begin_study(draft("first"), [again], [])
    store.begin_study(draft("third"), [ours, variant("a")], [])
    store.add_variants("first", [added])
    assert store.study("first").variants == (again, added)
    assert store.study("second").variants == (theirs,)
    assert store.study("third").variants == (ours, variant("a"))
