"""The contracts find violations: a test breaks each rule on purpose, and our own kinds pass all rules."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest
import torch

from ablate.cli.spaces_and_blocks import parsed_values
from ablate.contracts import checking, data, design, outputs, task, training
from ablate.contracts.checking import CONTRACTS, CheckedKind, UntriedKind, check_all, check_kind, settings
from ablate.contracts.contract import Contract
from ablate.designs.base import FixedDesign
from ablate.designs.fixed import LeaveOneOutSpec
from ablate.errors import AblateError
from ablate.kinds.optimizers.lion import Lion, LionSpec
from ablate.kinds.schedules.shapes import ConstantScheduleSpec
from ablate.plugins import FAMILIES
from ablate.render.formats.data import CsvFormat
from ablate.spec.base import Kinded
from ablate.spec.design import Point, Proposal, SeedsSpec
from ablate.spec.optimizer import OPTIMIZERS
from ablate.spec.schedule import SCHEDULES
from ablate.tasks.memory import CopySpec
from ablate.tasks.probe import Probe
from ablate.tasks.sources.builtin import NumberWords
from ablate.tasks.tokenizers.kinds import BytesSpec, ByteTokenizer
from ablate.trackers.tensorboard import TensorBoard, TensorBoardSession

Patch = tuple[type, str, Any]


def stepping(move: Callable[..., torch.Tensor]) -> Patch:
    """Lion with another movement: of optimizer, rate, parameter and gradient."""

    @torch.no_grad()
    def step(self: Lion, closure: None = None) -> None:
        self.steps = getattr(self, "steps", 0) + 1
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    parameter.sub_(move(self, group["lr"], parameter, parameter.grad))

    return Lion, "step", step


def rows(change: Callable[[int, Any], Any]) -> Patch:
    """Number words whose rows are changed, by the number of the reading."""
    whole, readings = NumberWords.rows, itertools.count()

    def changed(self: NumberWords, *arguments: Any) -> Iterator[Any]:
        reading = next(readings)
        yield from (change(reading, row) for row in whole(self, *arguments))

    return NumberWords, "rows", changed


def built(points: Callable[[Any], list[Point]], seeds: Callable[[], range] = lambda: range(2)) -> Patch:
    return LeaveOneOutSpec, "build", lambda self, context: FixedDesign(points(context), seeds(), lambda point: None)


class Endless(FixedDesign):
    def ask(self) -> list[Any]:
        self._asked = False
        return super().ask()


class Halving(FixedDesign):
    """Trains all points with one seed, and the better half, or others if it is not the first, with another."""

    def __init__(self, points: list[Point], others: Sequence[Point] = ()) -> None:
        super().__init__(points, range(1), lambda point: None)
        self.others = others
        self.first: dict[str, float] = {}

    def ask(self) -> list[Any]:
        if not self._asked:
            return super().ask()
        if len(self.first) < len(self._points):
            return []
        best = sorted(self._points, key=lambda point: self.first.pop(point.name))[: len(self._points) // 2]
        changed = best[0] is not self._points[0]
        self._points = []
        return [Proposal(point, 1) for point in (self.others if self.others and changed else best)]

    def tell(self, point: Point, seed: int, value: float | None) -> None:
        if seed == 0:
            self.first[point.name] = np.inf if value is None else value


class Longer(FixedDesign):
    def points(self) -> list[Point]:
        return super().points()[:1]


def base(context: Any, name: str = "baseline", **settings: str) -> Point:
    return Point(name, {**context.baseline, **settings})


def all_bytes() -> ByteTokenizer:
    """A tokenizer whose end-of-document id is also the id of a byte."""
    made = ByteTokenizer()
    made.token_bytes = np.ones_like(made.token_bytes)
    return made


COUNT = itertools.count()
GROUPS: list[tuple[Contract[Any, Any], Kinded, dict[str, tuple[str, Patch]]]] = [
    (training.OPTIMIZER, LionSpec(lr=0.01), {
        "members mixed": ("isolates_pack_members",
            stepping(lambda self, rate, p, g: rate * (g + g.mean(0, keepdim=True)))),
        "state outside of `state`": ("continues_in_smaller_packs",
            stepping(lambda self, rate, p, g: rate / self.steps * g)),
        "nothing moves": ("updates_parameters_with_gradients", stepping(lambda self, rate, p, g: 0 * g)),
        "a rate of its own": ("applies_the_rate_of_each_step", stepping(lambda self, rate, p, g: 0.01 * g)),
        "uphill": ("finds_a_minimum", stepping(lambda self, rate, p, g: -rate * g)),
        "half of what it keeps": ("declares_state_bytes", (LionSpec, "state_bytes", lambda self: 2)),
        "no such value": ("declares_value_fields", (LionSpec, "value_fields", frozenset({"lr", "clip", "gamma"}))),
    }),
    (training.SCHEDULE, ConstantScheduleSpec(), {
        "above the peak": ("stays_within_the_peak", (ConstantScheduleSpec, "after", lambda self, *_: 2.0)),
        "by the time of day": ("is_a_function_of_the_step",
            (ConstantScheduleSpec, "after", lambda self, *_: 1 / (1 + next(COUNT)))),
    }),
    (training.SCHEDULE, ConstantScheduleSpec(warmup=0), {
        "always 0": ("has_a_nonzero_rate", (ConstantScheduleSpec, "after", lambda self, *_: 0.0)),
    }),
    (data.TOKENIZER, BytesSpec(), {
        "ids of the end": ("keeps_ids_within_the_vocabulary", (ByteTokenizer, "end_of_document", 97)),
        "one text too few": ("batch_encoding_equals_single",
            (ByteTokenizer, "encode_all", lambda self, texts: iter([np.zeros(1, dtype=np.int64)]))),
        "a prefix that only the beginning of a text has": ("divides_texts_where_it_says",
            (ByteTokenizer, "encode_all", lambda self, texts: (np.array([0, *text.encode()]) for text in texts))),
        "a lossy decoder": ("decodes_training_text", (ByteTokenizer, "decode", lambda self, ids: "x")),
        "no text": ("decodes_any_ids", (ByteTokenizer, "decode", lambda self, ids: bytes(int(token) for token in ids))),
        "another each time": ("training_is_deterministic",
            (ByteTokenizer, "encode_all",
             lambda self, texts: (np.full(1, next(COUNT) % 250, dtype=np.int64) for _ in texts))),
        "a save that fails": ("round_trips_through_disk",
            (ByteTokenizer, "save", lambda self, folder: (folder / "missing" / "file").write_text(""))),
        "an end that counts": ("counts_bytes", (BytesSpec, "train", lambda self, texts: all_bytes())),
    }),
    (data.SOURCE, NumberWords(), {
        "an address of its own": ("round_trips_through_address", (NumberWords, "address", "builtin:listops")),
        "a number": ("has_its_columns", rows(lambda reading, row: row._replace(values=(1, 2)))),
        "other rows": ("rows_are_deterministic",
            rows(lambda reading, row: row._replace(where=f"{row.where} {reading}"))),
        "no documents": ("gives_documents", (NumberWords, "documents", lambda self, *arguments: 1 / 0)),
        "any column": ("refuses_an_unknown_column", (NumberWords, "rows", lambda self, *_: iter(()))),
        "missing": ("reports_missing_data", (NumberWords, "missing", lambda self: "a file")),
    }),
    (task.CONTRACT, CopySpec(), {
        "a fingerprint of the day": ("preparation_is_deterministic",
            (CopySpec, "prepare", lambda self, *_: f"{next(COUNT)}")),
        "equal halves": ("weights_losses_of_parts",
            (Probe, "loss_terms", lambda self, batch: torch.ones(batch["targets"].shape[0]))),
        "one batch for all": ("draws_batches_by_seed_and_step",
            (Probe, "train_batch", lambda self, seed, step, size: {"inputs": torch.zeros(size, 3, dtype=torch.int64)})),
        "no shorter inputs": ("has_shorter_inputs", (CopySpec, "shortens", True)),
        "ids beyond": ("keeps_ids_within_the_vocabulary",
            (Probe, "train_batch", lambda self, seed, step, size: {"inputs": torch.full((size, 3), 10**6)})),
        "no validation": ("validates_on_the_same_batches", (Probe, "validation_batches", lambda self, size: iter(()))),
        "a loss of all": ("has_a_loss_for_each_member", (Probe, "loss", lambda self, outputs, batch: outputs.mean())),
        "a metric too few": ("measures_its_metrics", (Probe, "metrics", lambda self, sums: {"val_loss": [1.0, 1.0]})),
        "an accuracy in percent": ("measures_its_metrics",
            (Probe, "metrics", lambda self, sums: {name: [50.0, 1.0] for name in self.spec.metric_names})),
        "one length for all": ("measures_at_other_lengths", (Probe, "at_length", lambda self, value: self)),
        "an unknown metric": ("has_valid_trivial_baselines",
            (Probe, "baselines", lambda self: {"guess": {"val_bleu": 1.0}})),
    }),
    (design.CONTRACT, LeaveOneOutSpec(seeds=2), {
        "twice the same": ("proposes_each_trial_once",
            built(lambda context: [base(context), base(context, "other", a="off"), base(context, "other", a="off")])),
        "a setting of its own": ("proposes_valid_points",
            built(lambda context: [base(context), base(context, "other", a="sideways")])),
        "no baseline": ("starts_with_the_baseline", built(lambda context: [base(context, "other", a="off")])),
        "random": ("is_deterministic", built(lambda context: [base(context)], lambda: range(next(COUNT) + 1))),
        "impatient": ("waits_for_results",
            (LeaveOneOutSpec, "build", lambda self, context: Endless([base(context)], range(9), lambda point: None))),
        "adapts and does not say so": ("declares_that_it_chooses",
            (LeaveOneOutSpec, "build",
             lambda self, context: Halving([base(context), *(base(context, x, **{x: "off"}) for x in "acd")]))),
        "points that it does not name": ("declares_that_it_chooses",
            (LeaveOneOutSpec, "build",
             lambda self, context: Longer([base(context), base(context, "x", a="off")], range(2), lambda point: None))),
        "endless": ("handles_all_trials_diverging",
            (LeaveOneOutSpec, "build", lambda self, context: Endless([base(context)], range(999), lambda point: None))),
    }),
    (design.CONTRACT, LeaveOneOutSpec(seeds=SeedsSpec(start=2, max=5)), {
        "a schedule that leads to points": ("declares_that_it_chooses",
            (LeaveOneOutSpec, "build", lambda self, context: Halving(
                [base(context), *(base(context, x, **{x: "off"}) for x in "acd")],
                [base(context, "z", a="off", c="off")],
            ))),
        "a schedule that goes on": ("declares_that_it_chooses",
            (LeaveOneOutSpec, "build",
             lambda self, context: FixedDesign([base(context)], range(6), lambda point: None))),
    }),
    (outputs.FORMAT, CsvFormat(), {
        "a dot": ("declares_suffix_and_figures", (CsvFormat, "suffix", ".csv")),
        "nothing": ("writes_a_study", (CsvFormat, "render", lambda self, *arguments: "")),
    }),
    (outputs.TRACKER, TensorBoard(argument="x"), {
        "another address": ("round_trips_through_address",
            (TensorBoard, "address", property(lambda self: "tensorboard:y"))),
        "what was never sent": ("keeps_completed_runs", (TensorBoardSession, "holds", lambda self, run: True)),
        "forgets": ("accepts_a_run_again", (TensorBoardSession, "holds", lambda self, run: False)),
    }),
]  # fmt: skip
BROKEN = {name: (contract, spec, *broken) for contract, spec, rows in GROUPS for name, broken in rows.items()}


def test_every_kind_is_tried_or_named_with_what_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    """`ablate check-kind --all` reaches the last kind: all can be tried but those that read a file of the user."""

    def parsed(kind: str, family: str, values: Any) -> CheckedKind:
        contract = CONTRACTS[family]
        member = contract.family.members()[kind]
        required = {name for name, field in member.model_fields.items() if field.is_required()}
        given = {name: value for name, value in {**contract.given, **member.example}.items() if name in required}
        spec = next(iter(settings(member, {**given, **(values or {})})))
        assert contract.contexts(spec), f"{family} {kind} refuses all surroundings"
        return CheckedKind(kind, family, contract, [])

    monkeypatch.setattr(checking, "check_kind", parsed)
    untried = {(one.family, one.kind): one.missing for one in check_all() if isinstance(one, UntriedKind)}
    assert untried == {
        ("tokenizers", "saved"): ("file",),
        ("sources", "file"): ("argument",),
        ("sources", "hub"): ("argument",),
    }


@pytest.mark.parametrize("name", BROKEN)
def test_violations_are_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    contract, spec, rule, (owner, attribute, value) = BROKEN[name]
    context = contract.contexts(spec)[0]
    assert rule not in {finding.rule for finding in contract.check(spec, [context])}
    monkeypatch.setattr(owner, attribute, value)
    assert rule in {finding.rule for finding in contract.check(spec, [context])}


def test_a_trivial_baseline_may_have_the_metrics_of_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    contract, spec, rule, (owner, attribute, value) = BROKEN["an unknown metric"]
    monkeypatch.setattr(owner, attribute, value)
    monkeypatch.setattr(CopySpec, "final_metric_names", frozenset({"val_bleu"}))
    assert rule not in {finding.rule for finding in contract.check(spec, contract.contexts(spec)[:1])}


def test_every_rule_is_broken_once() -> None:
    """Of the families of a model, other tests break the rules."""
    names = (
        "optimizers",
        "schedules",
        "tokenizers",
        "sources",
        "tasks",
        "designs",
        "formats",
        "trackers",
    )
    ours = {name: CONTRACTS[name] for name in names}
    rules = {(name, rule) for name, contract in ours.items() for rule in contract.rules}
    name_of = {id(contract): name for name, contract in ours.items()}
    broken = {(name_of[id(contract)], rule) for contract, _, rule, _ in BROKEN.values()}
    assert {one for one in rules - broken if one[1] != "round_trips_through_json"} == set()


def test_every_family_has_a_contract() -> None:
    assert {name: contract.family for name, contract in CONTRACTS.items()} == FAMILIES
    groups = {name: family.entry_points for name, family in FAMILIES.items()}
    assert groups == {name: f"ablate.{name}" for name in FAMILIES}, "an installed package adds kinds of any family"


SHIPPED = [
    *(("optimizers", kind, {}) for kind in OPTIMIZERS.members()),
    *(("schedules", kind, {}) for kind in SCHEDULES.members()),
    *(("tokenizers", kind, {}) for kind in ("bpe", "bytes", "chars", "wordpiece", "words")),
    *(("formats", kind, {}) for kind in ("csv", "html", "json", "latex", "md", "terminal")),
    ("sources", "builtin:number_words", {}),
    ("tasks", "copy", {}),
    ("trackers", "tensorboard", {}),
    ("tasks", "language_model", {}),
    ("tasks", "masked_language_model", {}),
]


@pytest.mark.parametrize(("family", "kind", "values"), SHIPPED, ids=lambda part: part if isinstance(part, str) else "")
def test_what_we_ship_keeps_its_contract(family: str, kind: str, values: dict[str, Any]) -> None:
    checked = check_kind(kind, family, values)
    assert [finding for one in checked.specs for finding in one.findings] == []


@pytest.mark.parametrize("family", ["mixers", "mlps"])
def test_parts_of_a_block_are_named_whatever_their_settings(family: str) -> None:
    for kind in FAMILIES[family].members().values():
        for spec in settings(kind):
            named = [name for row in spec.parts() for box in row for name in box]
            assert all(isinstance(name, str) and name for name in named), spec.canonical_json()


COUNTING = {name: one for name, one in CONTRACTS.items() if "counts_parameters" in one.rules and name != "mixers"}


@pytest.mark.parametrize("family", COUNTING)
def test_parts_count_their_parameters_whatever_their_settings(family: str) -> None:
    """Of mixers, other tests keep the whole contract with all settings."""
    contract = COUNTING[family]
    for kind in contract.family.members().values():
        required = {name for name, field in kind.model_fields.items() if field.is_required()}
        for spec in settings(kind, {name: value for name, value in contract.given.items() if name in required}):
            findings = contract.rules["counts_parameters"](spec, contract.contexts(spec)[0])
            assert list(findings) == [], spec.canonical_json()


def test_a_name_of_two_families_asks_for_one() -> None:
    with pytest.raises(AblateError, match=r"in mixers and in schedules.*`--family mixers`"):
        check_kind("linear")
    assert check_kind("linear", "schedules").keeps_the_contract
    with pytest.raises(AblateError, match="no such family"):
        check_kind("linear", "schedule")
    with pytest.raises(AblateError, match="Did you mean `cosine`"):
        check_kind("cosinus", "schedules")


def test_a_field_without_a_value_is_asked_for() -> None:
    with pytest.raises(AblateError, match=r"`file` has none.*`--set file=VALUE`"):
        check_kind("saved")
    assert parsed_values(["a=3", "b=[1, 2]", "c=x=y"]) == {"a": 3, "b": [1, 2], "c": "x=y"}
    with pytest.raises(AblateError, match="expected NAME=VALUE; got 'a'"):
        parsed_values(["a"])
