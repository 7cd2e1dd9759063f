"""Makes `assets/store_vN.db`, a store of the newest schema N, through the public API. Run once for each schema.

python tests/store/make_asset.py
"""

from __future__ import annotations

from pathlib import Path

from store_samples import HERE, draft, outcome, planned, start, variant

from ablate.store import TrialState, open_store
from ablate.store.migrations import SCHEMA_VERSION


def main() -> None:
    """Write one study of two variants: two trials are over, one runs, one waits."""
    path = Path(__file__).parent / "assets" / f"store_v{int(SCHEMA_VERSION)}.db"
    with open_store(path) as store:
        variants = [variant("baseline", norm="rms"), variant("no_norm", norm="none")]
        trials = [planned(name, seed) for seed in (0, 1) for name in ("baseline", "no_norm")]
        store.begin_study(draft(), variants, trials)
        store.record_outcome(outcome("baseline", 0), HERE)
        store.record_outcome(outcome("no_norm", 0, TrialState.DIVERGED, points=2), HERE)
        start(store, "baseline", 1)


if __name__ == "__main__":
    main()
