"""Trials of the store that other code trained: which of a plan they are, what changed, and whether they count."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ablate.planning.plan import Trial
from ablate.roles import TrialRole
from ablate.spec.code import Code, CodeChange, code_changes
from ablate.store.records import SettledTrial
from ablate.trained.weights import weights_file

if TYPE_CHECKING:
    from ablate.store import Store

_CONTENT = slice(32, None)
"""The half of a data fingerprint that says what the prepared files hold; the other half says how they were made."""


@dataclass(frozen=True, slots=True)
class ChangedKind:
    """A kind of which the store holds trials that another version of it trained.

    Attributes:
        trials: How many trials of the plan that concerns.
        accepted: Whether they are reused all the same.
    """

    change: CodeChange
    trials: int
    accepted: bool

    @property
    def sentence(self) -> str:
        """What is done with the trials, for people."""
        one = self.trials == 1
        trained = f"{self.trials:,} trial{' was' if one else 's were'} trained with another version of"
        then = (
            f"{'it is' if one else 'they are'} reused, as --accept-changed-code says"
            if self.accepted
            else f"{'it is' if one else 'they are'} trained again; --accept-changed-code would reuse"
            f" {'it' if one else 'them'}"
        )
        return f"{trained} {self.change.kind} ({self.change.what}): {then}"


class EarlierTrials:
    """Finds trials of the same variant, seed and data that other code has trained.

    Args:
        store: Where trials may be; None if there is no store.
        accept: Whether such a trial takes the place of the one that would be trained.
    """

    def __init__(self, store: Store | None = None, *, accept: bool = False) -> None:
        self._store = store
        self._accept = accept
        self._settled: dict[tuple[str, int], list[SettledTrial]] | None = None
        self._told: set[str] = set()

    def accepted(self, trial: Trial) -> Trial:
        """The trial, in whose place one that other code trained is taken if that is accepted."""
        if not self._accept or not trial.code.identity:
            return trial
        before = self._before(trial)
        if before is None or not _same_data(before.data_fingerprint, trial.variant.fingerprint):
            return trial
        if trial.role is TrialRole.STAGE and not self._has_weights(before.key):
            return trial
        return replace(trial, key=before.key, accepted=self._code(before))

    def changed(self, trials: Iterable[Trial]) -> tuple[ChangedKind, ...]:
        """The kinds whose code has changed since trials of a plan were trained; each trial is told once."""
        counts: Counter[tuple[CodeChange, bool]] = Counter()
        for trial in trials:
            if not trial.code.identity or trial.key in self._told:
                continue
            self._told.add(trial.key)
            before = trial.accepted
            if before is None and (found := self._before(trial)) is not None:
                before = self._code(found)
            if before is not None:
                counts.update(
                    (change, trial.accepted is not None) for change in code_changes(before.content, trial.code.content)
                )
        return tuple(ChangedKind(change, trials, accepted) for (change, accepted), trials in counts.items())

    def _before(self, trial: Trial) -> SettledTrial | None:
        """The last trial that other code trained; None if there is none, or one of this code too."""
        same = self._of(trial)
        if any(before.key == trial.key for before in same):
            return None
        return next((before for before in reversed(same) if before.code != trial.code.identity), None)

    def _of(self, trial: Trial) -> Sequence[SettledTrial]:
        if self._store is None:
            return ()
        if self._settled is None:
            self._settled = defaultdict(list)
            for settled in self._store.settled_trials():
                self._settled[settled.variant_hash, settled.seed].append(settled)
        return self._settled.get((trial.variant.hash, trial.seed), ())

    def _code(self, trial: SettledTrial) -> Code:
        assert self._store is not None, "a trial was found in it"
        return stored_code(self._store.codes([trial.code]), trial.code)

    def _has_weights(self, key: str) -> bool:
        return self._store is not None and Path(weights_file(key, self._store.where)).exists()


def stored_code(codes: Mapping[str, Mapping[str, Any]], identity: str) -> Code:
    """The code of a trial as its store holds it; unknown if an older version of ablate trained it."""
    return Code(codes[identity]) if identity in codes else Code.unknown


def _same_data(before: str, now: str) -> bool:
    """Whether two fingerprints are of the same data; prepared by other code, it may be equal all the same."""
    return before == now or (bool(now[_CONTENT]) and before[_CONTENT] == now[_CONTENT])
