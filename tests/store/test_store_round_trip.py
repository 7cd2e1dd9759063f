"""Whatever a record holds comes back, on every backend."""

from __future__ import annotations

import math
import time
from dataclasses import fields, replace
from datetime import UTC, datetime, timedelta, timezone
from itertools import count
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy.dialects import postgresql, sqlite
from store_samples import HERE, as_record, begin, digest, outcome

from ablate.roles import TrialRole
from ablate.store import (
    CurvePoint,
    Environment,
    PlannedTrial,
    Recording,
    Store,
    StudyDraft,
    TrialOutcome,
    TrialState,
    VariantRecord,
    records,
)
from ablate.store.records import DesignTraits
from ablate.store.rows import read, variant_record
from ablate.store.tables import UtcDateTime

# One store serves all examples: each writes under a name or key of its own.
shared_store = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=60)
serial = count()

words = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))
texts = words | st.builds(lambda piece: piece * 50_000, words.filter(bool))
numbers = st.floats(-1e100, 1e100)
amounts = st.floats(0, 1e60)
counts = st.integers(0, 2**63 - 1)
steps = st.integers(0, 2**53)
times = st.datetimes(
    timezones=st.sampled_from([UTC, timezone(timedelta(hours=5, minutes=45)), timezone(timedelta(hours=-11))])
).filter(lambda time: 1970 < time.year < 9000)
scalars = st.none() | st.booleans() | st.integers() | numbers | words
plain: st.SearchStrategy[Any] = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3), max_leaves=10
)
objects = st.dictionaries(words, plain, max_size=4)
environments = st.builds(
    Environment,
    versions=st.dictionaries(words, words, max_size=3),
    device=words,
    host=words,
    git_commit=st.none() | words,
    git_clean=st.none() | st.booleans(),
    command=texts,
)
curves = st.lists(
    st.builds(
        CurvePoint,
        step=steps,
        seconds=amounts,
        tokens=counts,
        flops=amounts,
        train_loss=st.none() | numbers,
        val_loss=st.none() | numbers,
    ),
    max_size=5,
    unique_by=lambda point: point.step,
).map(lambda points: tuple(sorted(points, key=lambda point: point.step)))
outcomes = st.builds(
    TrialOutcome,
    key=st.just(""),
    variant_hash=st.just(digest("baseline")),
    seed=counts,
    state=st.sampled_from([TrialState.FINISHED, TrialState.DIVERGED, TrialState.FAILED]),
    metrics=st.dictionaries(words, numbers, max_size=3),
    steps=steps,
    seconds=amounts,
    tokens=counts,
    flops=amounts,
    stopped_at=st.none() | steps,
    reason=texts,
    data_fingerprint=words,
    started_at=times,
    finished_at=times,
    curve=curves,
    parts=st.dictionaries(words, st.lists(numbers, min_size=1, max_size=3).map(tuple), max_size=2),
    code=words,
)


@shared_store
@given(written=outcomes, environment=environments)
def test_a_trial(store: Store, written: TrialOutcome, environment: Environment) -> None:
    begin(store)
    written = replace(written, key=digest(next(serial)))
    assert store.record_outcome(written, environment)
    found = store.trial(written.key)
    assert found == as_record(written, environment)
    assert found.started_at is not None
    assert found.started_at.utcoffset() == timedelta(0)
    assert store.curves([written.key]) == {written.key: written.curve}


@shared_store
@given(written=outcomes)
def test_points_of_a_running_trial(store: Store, written: TrialOutcome) -> None:
    begin(store)
    key = digest(next(serial))
    store.record_started(key, written.variant_hash, written.seed, written.data_fingerprint, HERE)
    for point in written.curve:
        store.record_points({key: [point]})
    assert store.curves([key]) == {key: written.curve}
    assert store.trial(key).data_fingerprint == written.data_fingerprint
    assert store.record_outcome(replace(outcome("baseline", 0), key=key, curve=()), HERE)
    assert store.curves([key]) == {key: ()}


@shared_store
@given(
    drafts=st.builds(
        StudyDraft,
        name=st.just(""),
        question=texts,
        source=texts,
        space=objects.filter(records._is_spec),
        text=texts,
        objective=st.fixed_dictionaries(
            {"metric": words, "direction": st.sampled_from(["minimize", "maximize"]), "margin": st.floats(1e-30, 1e30)}
        ),
        baseline=words,
        trivial=st.dictionaries(words, st.dictionaries(words, numbers, max_size=2), max_size=2),
        traits=st.builds(DesignTraits, *[st.booleans()] * len(fields(DesignTraits))),
    ),
    names=st.lists(words, unique=True, max_size=4),
    settings_of=st.dictionaries(words, words, max_size=3),
    spec=objects.filter(records._is_spec),
    parameters=st.none() | counts.filter(bool),  # there is no model without any
    activation_bytes=st.none() | counts,
    roles=st.dictionaries(counts, st.sampled_from(TrialRole), max_size=3),
)
def test_a_study(
    store: Store,
    drafts: StudyDraft,
    names: list[str],
    settings_of: dict[str, str],
    spec: dict[str, Any],
    parameters: int | None,
    activation_bytes: int | None,
    roles: dict[int, TrialRole],
) -> None:
    drafts = replace(drafts, name=f"study {next(serial)}", baseline=names[0] if names else "")
    spec = {name: value for name, value in spec.items() if name != "model"}
    variants = tuple(
        VariantRecord(name, digest(next(serial)), settings_of, spec, parameters, activation_bytes) for name in names
    )
    planned = tuple(
        PlannedTrial(digest((name, seed)), name, seed, role) for seed, role in roles.items() for name in names
    )
    store.begin_study(drafts, variants, planned)
    found = store.study(drafts.name)
    scouting = bool(roles) and all(role.scouts for role in roles.values())
    assert (found.variants, found.scout_variants) == ((variants[:1], variants[1:]) if scouting else (variants, ()))
    assert found.planned == tuple(trial for trial in planned if trial.role is TrialRole.COMPARISON)
    assert found.confirm_trials == tuple(trial for trial in planned if trial.role is TrialRole.CONFIRMATION)
    assert found.scout_trials == tuple(trial for trial in planned if trial.role.scouts)
    assert {one.name: getattr(found, one.name) for one in fields(StudyDraft)} == vars_of(drafts)
    assert all(store.variant(one.hash).parameters == parameters for one in variants)


def vars_of(record: Any) -> dict[str, Any]:
    return {one.name: getattr(record, one.name) for one in fields(record)}


ENDS: list[tuple[Any, Any, Any]] = [
    (records.Amount, 0.0, 1e60),
    (records.Count, 0, 2**63 - 1),
    (records.Steps, 0, 2**53),
    (records.Seed, -(2**63), 2**63 - 1),
    (records.Metric, -1e100, 1e100),
    (records.Pid, 1, 2**31 - 1),
    (records.Margin, 1e-30, 1e30),
    (records.Time, datetime(1970, 1, 2, tzinfo=UTC), datetime(9000, 1, 1, tzinfo=UTC)),
    (records.Name, "", "x" * 10_000),
    (records.Text, "", "x" * 2**24),
]


def test_what_is_read_ends_where_it_says() -> None:
    """And a number is not its text, nor a truth value a number."""
    for kind, least, most in ENDS:
        if isinstance(least, str):
            beyond: list[Any] = [f"{most}x", 1]
        elif isinstance(least, float):
            beyond = [math.nextafter(least, -math.inf), math.nextafter(most, math.inf), "1.5"]
        else:
            one: Any = 1 if isinstance(least, int) else timedelta(microseconds=1)
            beyond = [least - one, most + one, str(least)]
        assert [read(kind, value) for value in (least, most)] == [least, most]
        for value in (*beyond, True, None):
            with pytest.raises(ValueError, match="``: "):
                read(kind, value)


@pytest.mark.parametrize("parameters", [0, 7])
@pytest.mark.parametrize("spec", [{"model": {}}, {"trainer": {}}, {}])
def test_only_a_variant_without_a_model_has_an_unknown_number_of_parameters(
    parameters: int, spec: dict[str, Any]
) -> None:
    row = {"name": "a", "hash": digest("a"), "settings": {}, "spec": spec, "parameters": parameters}
    assert variant_record(row).parameters == (parameters if parameters or "model" in spec else None)


def test_a_time_is_that_of_its_zone_and_without_one_of_utc(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever it is read: SQLite keeps no zones."""
    noon = datetime(2025, 3, 30, 12, tzinfo=UTC)
    local = time.tzset if hasattr(time, "tzset") else lambda: None
    try:
        for zone in ("UTC", "Asia/Tokyo"):
            monkeypatch.setenv("TZ", zone)
            local()
            for written in (noon, noon.replace(tzinfo=None), noon.astimezone(timezone(timedelta(hours=9)))):
                read_back = UtcDateTime().process_result_value(written, sqlite.dialect())
                assert (read_back, read_back and read_back.utcoffset()) == (noon, timedelta(0))
            elsewhere = noon.astimezone(timezone(timedelta(hours=9)))
            assert UtcDateTime().process_bind_param(elsewhere, sqlite.dialect()) == noon.replace(tzinfo=None)
            assert UtcDateTime().process_bind_param(elsewhere, postgresql.dialect()) == noon
    finally:
        monkeypatch.undo()
        local()


def test_a_space_has_parts_of_their_types() -> None:
    """Whether the parts are valid is left to the readers of spaces."""
    parts = ("task", "model", "training", "switches", "variants", "design", "objective")
    assert read(records.Spec, {**{part: {} for part in parts}, "claims": [], "other": 1})
    for name, value in (*((part, []) for part in parts), ("claims", {})):
        with pytest.raises(ValueError, match="``: "):
            read(records.Spec, {name: value})


def test_recordings_are_kept_to_four_digits_and_what_is_not_finite_as_none(store: Store) -> None:
    """Those of windows to twelve: they are compared."""
    begin(store)
    rows = [[1.23456789, math.nan], [math.inf, 1e-30]]
    windows = {"val_loss": [1.23456789012345, None]}
    recording = Recording(
        3, {"gradients": {"block 1 mlp": -math.inf}, "map": {"block 1 mixer": rows}, "windows": windows}
    )
    written = replace(outcome("baseline", 0), recordings=(recording,))
    assert store.record_outcome(written, HERE)
    kept = {"gradients": {"block 1 mlp": None}, "map": {"block 1 mixer": [[1.235, None], [None, 1e-30]]}}
    assert store.recordings(written.key) == (Recording(3, {**kept, "windows": {"val_loss": [1.23456789012, None]}}),)
