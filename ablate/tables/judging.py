"""A table of runs as studies: each question is a study that `analysis` reads as it reads one out of a store.

So a table gets the verdicts, the answer, the reports and the figures of a study, by the same code. What a table cannot
have (models, training, cost) is absent.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ablate.analysis.numbers import few, listed, plural
from ablate.analysis.runs import FinalResults
from ablate.errors import ArgumentError, DataError, NotFoundError
from ablate.locations import typed_path
from ablate.portable_names import NameRule, portable_name
from ablate.spec.annotations import STUDY_NAME
from ablate.store.records import (
    DesignTraits,
    JudgedRuns,
    PlannedTrial,
    StudyRecord,
    TrialRecord,
    TrialState,
    VariantRecord,
)
from ablate.tables.description import DescriptionSpec, make_description, read_description
from ablate.tables.reading import find_files, later_mentions, read_tables
from ablate.tables.runs import AskedTable, asked_tables
from ablate.tables.traps import Limit, limits_of

if TYPE_CHECKING:
    import pandas as pd

    from ablate.store import Store

DESCRIPTIONS = (".yaml", ".yml")
"""Endings of descriptions; all other files hold runs."""
LARGEST_SEED = 2**31 - 1
_IN_NAME = NameRule(lambda character: character.isascii() and (character.isalnum() or character in "._-"), 100)
_NEVER = datetime(1970, 1, 1, tzinfo=UTC)
"""When runs of a table started and ended: it does not say."""


@dataclass(frozen=True)
class JudgedTable(FinalResults):
    """Questions on a table of runs, as studies in memory.

    What a table has at other steps is not a validation loss, so it has no curves.

    Attributes:
        source: What was read, for people.
        records: Question to its study.
        holm: As `DescriptionSpec.holm`.
    """

    source: str
    records: Mapping[str, StudyRecord]
    holm: str
    _trials: dict[str, TrialRecord] = field(repr=False)

    def study(self, name: str) -> StudyRecord:
        """The study of this name.

        Raises:
            NotFoundError: There is none.
        """
        if name not in self.records:
            raise NotFoundError(
                "the table is not asked this", where=f"question {name!r}", expected=f"one of {listed(self.records)}"
            )
        return self.records[name]


def judge_named(
    names: Sequence[str], keys: Mapping[str, Any], folder: Path | None = None, where: str = "judge"
) -> JudgedTable:
    """Judge files of runs, which make one table, or descriptions, whose questions are asked together.

    Args:
        names: Files or patterns; or descriptions (`.yaml`). A question of one of several is called `STEM`, or
            `STEM_QUESTION` if it is not the only one.
        keys: Keys of a description, which replace those of every file; `table` holds those of its table.
        folder: That files are relative to; None: that of the description, else the working folder.
        where: Who gave the names, for messages.

    Raises:
        AblateError: A file cannot be read, or its numbers are not what they seem.
    """
    described = [file for name in names if (file := typed_path(name)).suffix.lower() in DESCRIPTIONS]
    if not described:
        reading = {**keys.get("table", {}), "files": tuple(names)}
        return judge_files(make_description(where, {**keys, "table": reading}), folder or Path(), few(names))
    if len(described) < len(names):
        got = next(name for name in names if typed_path(name) not in described)
        raise ArgumentError(
            "descriptions and files of runs are not judged together",
            where=where,
            expected="descriptions alone, or files alone",
            got=f"{described[0]} and {got}",
            remedy="Name the files in the description, as `table.files`.",
        )
    descriptions = [read_description(file, keys) for file in described]
    if len(described) == 1:
        return judge_files(descriptions[0], folder or described[0].parent, described[0].stem)
    records: dict[str, StudyRecord] = {}
    trials: dict[str, TrialRecord] = {}
    for file, description in zip(described, descriptions, strict=True):
        table = judge_files(description, folder or file.parent, file.stem, prefix=file.stem)
        if twice := records.keys() & table.records.keys():
            remedy = "Rename one of the descriptions."
            raise DataError("two questions have one name", where=f"question {min(twice)!r}", remedy=remedy)
        records |= {name: replace(record, id=len(records) + record.id) for name, record in table.records.items()}
        trials |= table.trials([planned.key for record in table.records.values() for planned in record.planned])
    holm = "all" if any(description.holm == "all" for description in descriptions) else "question"
    return JudgedTable(listed(file.stem for file in described), records, holm, trials)


def judge_files(description: DescriptionSpec, folder: Path, source: str, prefix: str = "") -> JudgedTable:
    """Read the files of a description and ask its questions.

    Args:
        description: What is read and asked.
        folder: That its files are relative to.
        source: What is read, for people.
        prefix: The beginning of the names of the questions, if it is one description of several.

    Raises:
        AblateError: A file cannot be read, or its numbers are not what they seem.
    """
    frames: dict[tuple[str, ...], pd.DataFrame] = {}
    tables: list[tuple[AskedTable, tuple[Limit, ...]]] = []
    for name, question in description.asked().items():
        files = question.files or description.table.files
        if files not in frames:
            frames[files] = read_tables(folder, files, description.table, program="program" in description.allow)
        for table in asked_tables(frames[files], name, question, description):
            limits = limits_of(table, question, description)
            tables.append((table, (*limits, *_logged_later(description, folder, files, table))))
    if prefix:
        names = [f"{prefix}_{table.name}" if len(tables) > 1 else prefix for table, _ in tables]
        tables = [(replace(table, name=name), limits) for name, (table, limits) in zip(names, tables, strict=True)]
    return _as_studies(tables, description, source)


def judge_frame(frame: pd.DataFrame, description: DescriptionSpec, source: str) -> JudgedTable:
    """The same of rows that are in memory (with `reading.with_origin`).

    Raises:
        AblateError: A column is missing, or its numbers are not what they seem.
    """
    tables = [
        (table, limits_of(table, question, description))
        for name, question in description.asked().items()
        for table in asked_tables(frame, name, question, description)
    ]
    return _as_studies(tables, description, source)


def keep(table: JudgedTable, store: Store, name: str) -> list[str]:
    """Keep judged runs in a store, as a study that was not trained here; it replaces one that was kept under this name.

    Args:
        table: The runs with their questions.
        name: Of the study; with several questions each is a study `NAME_QUESTION`.

    Returns:
        The names of the studies, all of which are kept or none.

    Raises:
        ArgumentError: This is not a name for a study.
        StoreError: A study of this name was trained here.
    """
    if not STUDY_NAME.fits(name):
        remedy = "Name the study with --name."
        raise ArgumentError(f"this is not a name for a study: {STUDY_NAME.rule}", where=name, remedy=remedy)
    kept = {}
    with ExitStack() as leases:
        for question, record in table.records.items():
            study = name if len(table.records) == 1 else f"{name}_{portable_name(question, _IN_NAME, len(name) + 1)}"
            leases.enter_context(store.lease(study))
            kept[study] = record, table.trials([planned.key for planned in record.planned])
        store.keep_judged(kept)
    return list(kept)


def _logged_later(
    description: DescriptionSpec, folder: Path, files: Sequence[str], table: AskedTable
) -> Iterable[Limit]:
    """A value of the metric on a later line of a log than the one that counts."""
    if description.table.line is None or description.table.step:
        return
    for file in find_files(folder, files, description.table.format):
        if later := later_mentions(file, description.table.line, table.metric):
            said = f"a later line of {file.name} also gives {table.metric} (`{later[-1][:60]}`)"
            yield Limit("weak", f"{said}: is the one that was read the final one?")
            return


def _as_studies(
    tables: Sequence[tuple[AskedTable, tuple[Limit, ...]]], description: DescriptionSpec, source: str
) -> JudgedTable:
    names = Counter(table.name for table, _ in tables)
    if twice := [name for name, count in names.items() if count > 1]:
        raise DataError("two questions have one name", where=f"question {twice[0]!r}", remedy="Rename one of them.")
    records: dict[str, StudyRecord] = {}
    trials: dict[str, TrialRecord] = {}
    known = dict.fromkeys(variant for table, _ in tables for variant in table.variants)
    for variant in description.chosen:
        if variant not in known:
            raise DataError(
                "a chosen variant is not in the table",
                where="`chosen`",
                expected=f"one of {listed(map(repr, known))}",
                got=repr(variant),
            )
    for number, (table, limits) in enumerate(tables, 1):
        seeds = _seeds(table)
        records[table.name] = _record(number, table, limits, description, source, seeds)
        trials |= _trials(table, seeds)
    return JudgedTable(source, records, description.holm, trials)


def _seeds(table: AskedTable) -> dict[str, int]:
    """A number for each unit: the unit itself where all of them are seeds, else its place."""
    units = list(dict.fromkeys(run.unit for run in table.runs))
    if all(
        unit.isascii() and unit.isdigit() and str(int(unit)) == unit and int(unit) <= LARGEST_SEED for unit in units
    ):
        return {unit: int(unit) for unit in units}
    return {unit: place for place, unit in enumerate(units, 1)}


def _key(table: AskedTable, variant: str, unit: str) -> str:
    return hashlib.sha256("\0".join((table.name, variant, unit)).encode()).hexdigest()


def _record(
    number: int,
    table: AskedTable,
    limits: Sequence[Limit],
    description: DescriptionSpec,
    source: str,
    seeds: Mapping[str, int],
) -> StudyRecord:
    better = "lower" if table.direction == "lower" else "higher"
    # What is compared with a variant that these results selected has as little of a verdict as that variant.
    chosen = {*table.variants[1:]} if table.baseline in description.chosen else {*description.chosen}
    return StudyRecord(
        id=number,
        name=table.name,
        question=description.question
        or f"{table.metric} ({better} is better) against {table.baseline}: {evidence_of(table)}",
        source=description.source or source,
        space={},
        text="",
        objective={
            "metric": table.metric,
            "direction": "minimize" if table.direction == "lower" else "maximize",
            "margin": table.margin,
        },
        baseline=table.baseline,
        created_at=_NEVER,
        updated_at=_NEVER,
        variants=tuple(
            VariantRecord(name, _key(table, name, ""), {}, {}, None, chosen=name in chosen) for name in table.variants
        ),
        planned=tuple(
            PlannedTrial(_key(table, run.variant, run.unit), run.variant, seeds[run.unit]) for run in table.runs
        ),
        traits=DesignTraits(adds_seeds=False),
        judged=JudgedRuns(
            unit=table.unit,
            paired=frozenset(variant for variant in table.variants if table.paired(variant)),
            evidence=evidence_of(table),
            limits=tuple((limit.level, limit.text) for limit in limits),
            notes=table.notes,
            censored=Counter(run.variant for run in table.runs if run.censored),
            named=table.known,
            units={seed: unit for unit, seed in seeds.items()},
        ),
    )


def _trials(table: AskedTable, seeds: Mapping[str, int]) -> dict[str, TrialRecord]:
    trials = {}
    for run in table.runs:
        key = _key(table, run.variant, run.unit)
        trials[key] = TrialRecord(
            key=key,
            variant_hash=_key(table, run.variant, ""),
            seed=seeds[run.unit],
            state=TrialState.FAILED if run.value is None else TrialState.FINISHED,
            metrics={} if run.value is None else {table.metric: run.value},
            steps=0,
            seconds=0.0,
            tokens=0,
            flops=0.0,
            stopped_at=None,
            reason=run.failure,
            data_fingerprint="",
            started_at=None,
            finished_at=None,
            environment=None,
        )
    return trials


def evidence_of(table: AskedTable) -> str:
    """The unit of replication and how it is paired, as a clause: `10 runs each, not paired: no seed is recorded`."""
    counts = {variant: len(table.of(variant)) for variant in table.variants}
    usual, _ = Counter(counts.values()).most_common(1)[0]
    each = f"{plural(usual, table.unit)} each"
    others = [f"{count} of {variant}" for variant, count in counts.items() if count != usual]
    if others:
        each += f" ({listed(others)})" if len(others) <= 3 else f" ({min(counts.values())} to {max(counts.values())})"
    others_than_baseline = table.variants[1:]
    paired = [variant for variant in others_than_baseline if table.paired(variant)]
    if len(paired) == len(others_than_baseline) and paired:
        how = f"paired by {table.unit}"
    elif paired:
        how = f"paired by {table.unit} for {len(paired)} of {len(others_than_baseline)}, the others share too few"
    elif not table.known:
        how = "not paired: no seed is recorded"
    elif table.pair is False:
        how = f"not paired: equal {table.unit}s share nothing"
    else:
        how = f"not paired: too few {table.unit}s are on both sides"
    return f"{each}, {how}"
