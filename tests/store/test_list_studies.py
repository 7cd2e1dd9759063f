"""The fast listing of the studies of a store agrees with the slow one, and is fast."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from sqlalchemy import func, select
from store_samples import HERE, begin, digest, outcome, planned, sql, start, variant

from ablate.errors import NotFoundError, StoreError
from ablate.store import Store, TrialState, list_studies, open_store
from ablate.store.tables import study_trials, trials


def test_both_listings_agree(store: Store, location: str) -> None:
    assert list_studies(location) == store.studies() == []
    begin(store, study="first")
    store.record_outcome(outcome("baseline", 0), HERE)
    store.record_outcome(outcome("baseline", 1, TrialState.FAILED), HERE)
    start(store, "no_norm", 0)
    begin(store, study="second [日本]")
    assert list_studies(location) == store.studies()
    for summary in list_studies(location):
        assert (summary.variants, summary.planned, summary.finished, summary.failed, summary.running) == (2, 4, 1, 1, 1)


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


def test_what_the_short_way_cannot_read_is_reported_by_the_long_way(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError):
        list_studies(tmp_path / "none.db")
    (tmp_path / "text.db").write_text("no database" * 100)
    with pytest.raises(StoreError, match="not a database"):
        list_studies(tmp_path / "text.db")
    (tmp_path / "empty.db").touch()
    with pytest.raises(NotFoundError):
        list_studies(str(tmp_path / "empty.db"))
    assert (tmp_path / "empty.db").stat().st_size == 0
    with open_store(tmp_path / "a.db") as store:
        begin(store)
    with sql(tmp_path / "a.db") as connection:
        connection.exec_driver_sql("UPDATE alembic_version SET version_num = '9999'")
    with pytest.raises(StoreError, match="newer version of ablate"):
        list_studies(tmp_path / "a.db")


def test_an_older_store_is_listed(tmp_path: Path) -> None:
    path = tmp_path / "old.db"
    path.write_bytes((Path(__file__).parent / "assets" / "store_v1.db").read_bytes())
    (summary,) = list_studies(path)
    assert (summary.planned, summary.finished, summary.diverged, summary.running) == (4, 1, 1, 1)


def test_it_is_short(tmp_path: Path) -> None:
    with open_store(tmp_path / "a.db") as store:
        begin(store)
    script = "import sys; from ablate.store import list_studies; assert len(list_studies(sys.argv[1])) == 1"
    script += "\nprint({'sqlalchemy', 'scipy', 'numpy', 'pydantic'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", script, tmp_path / "a.db"], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"
