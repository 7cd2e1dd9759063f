"""The probes: every sequence can be solved by its rule, nothing else can be, and a small decoder learns it."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Sequence
from graphlib import TopologicalSorter
from itertools import groupby, permutations, product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pydantic import ValidationError
from scipy.stats import binom, chisquare

from ablate.errors import DataError
from ablate.spec.sentences import describe
from ablate.spec.task import TaskSpec
from ablate.spec.variant import VariantSpec
from ablate.tasks.physics_lm import LanoSpec
from ablate.tasks.probe import UNSCORED, Probe, generate
from ablate.tasks.sampling import Draws
from ablate.training.events import Measurement
from ablate.training.loop import train
from ablate.training.members import Member

PROBES: list[dict[str, Any]] = [
    {"kind": "recall", "context": 34, "pairs": 7, "symbols": 26},
    {"kind": "copy", "span": 13, "symbols": 11},
    {"kind": "induction", "context": 29, "symbols": 7},
]
MORE: list[dict[str, Any]] = [
    {"kind": "parity", "context": 19},
    {"kind": "modular_addition", "context": 19, "modulus": 7},
    {"kind": "permutations", "context": 12, "group": "S3"},
    {"kind": "permutations", "context": 12, "group": "A5"},
    {"kind": "permutations", "context": 12, "group": "S5"},
    {"kind": "dyck", "context": 30, "types": 3, "depth": 4},
    {"kind": "stack", "operations": 17, "stacks": 3, "symbols": 5},
    {"kind": "palindrome", "span": 9, "symbols": 6},
    {"kind": "in_context_recall", "context": 40, "symbols": 10},
    {"kind": "in_context_recall", "context": 40, "symbols": 10, "noise": 0.3, "noise_symbols": 4},
    {"kind": "fuzzy_recall", "context": 40, "symbols": 8, "motif": 2},
    {"kind": "selective_copy", "context": 40, "copied": 6, "symbols": 5},
    {"kind": "needle", "context": 31, "needles": 3, "symbols": 9},
    {"kind": "mano", "operations": 5, "modulus": 11},
    {"kind": "depo", "nodes": 13, "hops": 5},
]
GROUPS = {
    "S3": [*permutations(range(3))],
    "A5": [p for p in permutations(range(5)) if round(np.linalg.det(np.eye(5)[list(p)])) == 1],
    "S5": [*permutations(range(5))],
}


def opened(plain: dict[str, Any]) -> Probe:
    spec = TaskSpec.parse(plain)
    task = spec.open(Path(), spec.prepare(Path(), print))
    assert isinstance(task, Probe)
    return task


Rule = Callable[[dict[str, Any], list[int], int], int | None]


def copied(plain: dict[str, Any], inputs: list[int], place: int) -> int | None:
    start = inputs.index(plain["symbols"])
    return inputs[place - start] if place >= start else None


def reversed_(plain: dict[str, Any], inputs: list[int], place: int) -> int | None:
    start = inputs.index(plain["symbols"])
    return inputs[2 * start - place - 1] if place >= start else None


def composed(plain: dict[str, Any], inputs: list[int], place: int) -> int | None:
    things = GROUPS[plain["group"]]
    product = np.eye(len(things[0]), dtype=int)
    for number in inputs[: place + 1]:  # the matrix of p has ones at (p(i), i)
        product = product @ np.eye(len(things[0]), dtype=int)[:, list(things[number])]
    return things.index(tuple(product.argmax(0).tolist()))


def closing(plain: dict[str, Any], inputs: list[int], place: int) -> int | None:
    opened: list[int] = []
    for token in inputs[: place + 1]:
        if token < plain["types"]:
            opened.append(token)
        else:
            assert opened.pop() == token - plain["types"]
    assert len(opened) <= plain["depth"]
    return plain["types"] + opened[-1] if opened else None


def popped(plain: dict[str, Any], inputs: list[int], place: int) -> int | None:
    held: dict[int, list[int]] = {}
    for first in range(0, place - 1, 3):
        what, where, which = inputs[first : first + 3]
        if what:
            assert held[where].pop() == which
        else:
            held.setdefault(where, []).append(which)
    return held[inputs[place]][-1] if place % 3 == 1 and inputs[place - 1] == 1 else None


def recalled(plain: dict[str, Any], inputs: list[int], place: int) -> int | None:
    half, shown = plain["symbols"] // 2, inputs[:place:2]
    if place % 2 or inputs[place] >= half or inputs[place] not in shown:
        return None
    return inputs[2 * shown.index(inputs[place]) + 1]


def selected(plain: dict[str, Any], inputs: list[int], place: int) -> int | None:
    first = inputs.index(plain["symbols"] + 1) + 1
    assert inputs[first - 2] < plain["symbols"]
    return [token for token in inputs if token < plain["symbols"]][place - first] if place >= first else None


def remembered(plain: dict[str, Any], inputs: list[int], place: int) -> int | None:
    """The motifs alternate: a run of key tokens, a run of value tokens."""
    half, text = plain["symbols"] // 2, [token for token in inputs[: place + 1] if token < plain["symbols"]]
    runs = [(is_value, tuple(run)) for is_value, run in groupby(text, lambda token: token >= half)]
    answered = runs.pop()[1] if runs and runs[-1][0] else ()
    if not runs:
        return None
    assert len(runs[-1][1]) <= plain["motif"]
    known = dict(batched([motif for _, motif in runs[:-1]], 2)).get(runs[-1][1], ())
    complete = len(runs[-1][1]) == plain["motif"]
    return known[len(answered)] if complete and len(answered) < len(known) else None


def stepped(plain: dict[str, Any], inputs: list[int], place: int) -> int | None:
    nodes = plain["nodes"]
    if place <= 2 * nodes or inputs[place] != nodes + plain["hops"] + 1:
        return None
    following = dict(batched(inputs[1 : 1 + 2 * nodes], 2))
    node = inputs[place - 1]
    for _ in range(inputs[place - 2] - nodes + 1):
        node = following[node]
    return node


RULES: dict[str, Rule] = {
    "copy": copied,
    "palindrome": reversed_,
    "parity": lambda plain, inputs, place: inputs[: place + 1].count(1) % 2,
    "modular_addition": lambda plain, inputs, place: sum(inputs[: place + 1]) % plain["modulus"],
    "permutations": composed,
    "dyck": closing,
    "stack": popped,
    "in_context_recall": recalled,
    "fuzzy_recall": remembered,
    "selective_copy": selected,
    "mano": lambda plain, inputs, place: (
        prefix_value(inputs[2:-1], plain["modulus"]) if place == len(inputs) - 1 else None
    ),
    "depo": stepped,
}


def solved(plain: dict[str, Any], inputs: list[int], place: int) -> int | None:
    """The answer at a place by the rule of the task, written with plain lists; None where nothing is asked."""
    if plain["kind"] in RULES:
        return RULES[plain["kind"]](plain, inputs, place)
    # Recall, induction and needle: what follows the first token that equals this one.
    return inputs[inputs.index(inputs[place]) + 1]


def batched(values: list[Any], size: int) -> list[tuple[Any, ...]]:
    return [tuple(values[first : first + size]) for first in range(0, len(values), size)]


def prefix_value(tokens: list[int], modulus: int) -> int:
    """The value of a prefix expression, read from its end with a stack."""
    values: list[int] = []
    for token in reversed(tokens):
        if token < modulus:
            values.append(token)
        else:
            left, right = values.pop(), values.pop()
            values.append((left + right, left - right, left * right)[token - modulus] % modulus)
    (value,) = values
    return value


@pytest.mark.parametrize("plain", MORE, ids=lambda plain: f"{plain['kind']}{plain.get('group', '')}")
def test_what_is_asked_is_answered_by_the_rule(plain: dict[str, Any]) -> None:
    task = opened(plain)
    (batch,) = task.validation_batches(512)
    asked = 0
    for inputs, targets in zip(batch["inputs"].tolist()[:60], batch["targets"].tolist(), strict=False):
        assert max(inputs) < task.shape.vocabulary
        for place, target in enumerate(targets):
            if plain["kind"] == "needle" and place < len(targets) - 1:
                assert target == UNSCORED
                continue
            answer = solved(plain, inputs, place)
            assert target == (UNSCORED if answer is None else answer)
            asked += answer is not None
    assert asked >= 60
    trained = task.train_batch(0, 1, 50)
    assert trained["inputs"].shape[1] == task.shape.context
    assert trained["targets"].max() < task.shape.vocabulary
    assert torch.equal(trained["targets"], opened(plain).train_batch(0, 1, 50)["targets"])
    assert not torch.equal(trained["targets"], task.train_batch(1, 1, 50)["targets"])


def shortcut(plain: dict[str, Any], inputs: list[int], place: int, target: int) -> int | None:
    """What the rule of a task's shortcut answers at a place; None where it guesses."""
    seen = inputs[max(0, place - 7) : place + 1]
    if plain["kind"] == "dyck":
        unclosed = list[int]()
        for token in seen:
            if token < plain["types"]:
                unclosed.append(token)
            elif unclosed:
                unclosed.pop()
        return unclosed[-1] + plain["types"] if unclosed else None
    if plain["kind"] == "stack":
        pushes = [f for f in range(0, place - 1, 3) if inputs[f] == 0 and inputs[f + 1] == inputs[place]]
        return inputs[pushes[-1] + 2]
    if plain["kind"] == "mano":
        return 0
    return target if place < 8 else None


def frequencies(plain: dict[str, Any], inputs: list[int], place: int) -> Counter[int]:
    """How often a sequence has shown each possible answer up to a place, without those that are used up."""
    kind, symbols = plain["kind"], plain.get("symbols", 0)
    if kind in ("copy", "palindrome"):
        return Counter(inputs[: plain["span"]]) - Counter(inputs[plain["span"] + 1 : place + 1])
    if kind == "depo":
        answers = inputs[2 * plain["nodes"] + 4 : place + 1 : 4]
        return Counter(inputs[2 : 2 * plain["nodes"] + 1 : 2]) - Counter(answers)
    least = symbols // 2 if kind in ("in_context_recall", "fuzzy_recall") else 0
    return Counter(token for token in inputs[: place + 1] if least <= token < symbols)


@pytest.mark.parametrize(
    "plain",
    [*PROBES[1:], *MORE, {"kind": "stack", "operations": 4, "stacks": 1, "symbols": 5}],  # of which many ask nothing
    ids=lambda plain: "".join(str(plain.get(name, "")) for name in ("kind", "group", "noise", "operations")),
)
def test_trivial_baselines_are_what_their_rules_reach(plain: dict[str, Any]) -> None:
    """Each is played by hand; a guess counts by its chance of being right, and a rule by how often it is."""
    task = opened(plain)
    (batch,) = task.validation_batches(512)
    lines = zip(batch["inputs"].tolist(), batch["targets"].tolist(), strict=True)
    asked = [(line, place, target) for line, targets in lines for place, target in enumerate(targets) if target >= 0]
    baselines = task.baselines()
    guess = baselines.pop("guess")
    chance, guesses = guess["val_accuracy"], round(math.exp(guess["val_loss"]))

    def solved(right: Sequence[float]) -> float:
        chances: dict[int, float] = {}
        for (line, _, _), one in zip(asked, right, strict=True):
            chances[id(line)] = chances.get(id(line), 1.0) * one
        return float(np.mean([*chances.values()]))

    assert guess["val_sequence_accuracy"] == pytest.approx(solved([chance] * len(asked)))
    for name, found in baselines.items():
        right, nats = [], []
        if name == "most frequent answer":
            for line, place, target in asked:
                counts = frequencies(plain, line, place)
                right.append(target == min(counts, key=lambda token: (-counts[token], token)))
                nats.append(-math.log(counts[target] / counts.total()))
        else:
            answers = [(shortcut(plain, *one), one[2]) for one in asked]
            right = [chance if answer is None else answer == target for answer, target in answers]
            share = np.mean([answer == target for answer, target in answers if answer is not None])
            for answer, target in answers:
                p = share if answer == target else (1 - share) / (guesses - 1)
                nats.append(-math.log(1 / guesses if answer is None else p))
        assert found == {
            "val_loss": pytest.approx(np.mean(nats)),
            "val_accuracy": pytest.approx(np.mean(right)),
            "val_sequence_accuracy": pytest.approx(solved(right)),
        }
        assert found["val_loss"] < guess["val_loss"] + 1e-3
        assert chance < found["val_accuracy"] < 1
    shows_answers = {"copy", "palindrome", "induction", "in_context_recall", "fuzzy_recall", "selective_copy", "depo"}
    assert ("most frequent answer" in baselines) == (plain["kind"] in shows_answers)


def test_sequences_that_ask_for_nothing_are_refused() -> None:
    plain = {"kind": "in_context_recall", "context": 4, "symbols": 64}
    with pytest.raises(DataError, match="no validation sequence asks for anything"):
        opened({**plain, "validation_rows": 2})
    with pytest.raises(DataError, match="no test sequence asks for anything"):
        opened({**plain, "test_rows": 2})


def test_training_sequences_of_recall_and_mano_show_every_token() -> None:
    for plain in MORE[8:11]:
        recall = opened(plain).train_batch(0, 0, 50)
        assert torch.equal(recall["inputs"][:, 1:], recall["targets"][:, :-1])
    mano = opened(MORE[-2]).train_batch(0, 0, 400)
    lengths = set()
    for inputs, targets in zip(mano["inputs"].tolist(), mano["targets"].tolist(), strict=True):
        scored = [target for target in targets if target != UNSCORED]
        assert scored[:-1] == inputs[1 : len(scored)]
        assert scored[-1] == prefix_value(inputs[2 : len(scored) - 1], 11)
        lengths.add(inputs[1] - 11 - 6 + 1)
    assert lengths == {1, 2, 3, 4, 5}


def test_training_cycles_of_depo_have_every_size_and_step_count() -> None:
    plain = MORE[-1]
    batch = opened(plain).train_batch(0, 0, 600)
    sizes, hops = set(), set()
    for inputs, targets in zip(batch["inputs"].tolist(), batch["targets"].tolist(), strict=True):
        size = next(place for place, token in enumerate(inputs[1:]) if token >= 13) // 2
        following = dict(batched(inputs[1 : 1 + 2 * size], 2))
        for place in (place for place, target in enumerate(targets) if target != UNSCORED):
            node, count = inputs[place - 1], inputs[place - 2] - 13 + 1
            for _ in range(count):
                node = following[node]
            assert node == targets[place]
            hops.add(count)
        sizes.add(size)
    assert sizes == set(range(3, 14))
    assert hops == {1, 2, 3, 4, 5}


def test_blanks_before_each_symbol_are_as_many() -> None:
    """Each of 27 blanks stands before any of 6 symbols with equal probability: a binomial count before the first."""
    inputs = opened(MORE[11]).train_batch(0, 0, 3000)["inputs"].numpy()
    before = (inputs < 5).argmax(axis=1)
    expected = binom.pmf(np.arange(10), 27, 1 / 6)
    counts = np.bincount(np.minimum(before, 9), minlength=10)
    expected[9] += binom.sf(9, 27, 1 / 6)
    assert chisquare(counts, expected / expected.sum() * counts.sum()).pvalue > 1e-3


def test_motifs_of_fuzzy_recall_have_every_size_in_training_and_end_with_a_known_key() -> None:
    task = opened(MORE[10])
    (batch,) = task.validation_batches(512)
    assert (batch["targets"][:, -1] != UNSCORED).all()
    inputs = task.train_batch(0, 0, 200)["inputs"].tolist()
    runs = {len([*run]) for row in inputs for is_key, run in groupby(row, lambda token: token < 4) if is_key}
    assert runs == {1, 2}


@pytest.mark.parametrize("motif", [1, 2, 3])
def test_pairs_of_fuzzy_recall_fill_its_sequences(motif: int) -> None:
    """Less than two pairs of the longest keys and values would fit before them."""
    task = opened({"kind": "fuzzy_recall", "context": 40, "symbols": 8, "motif": motif})
    inputs = torch.cat([task.train_batch(0, 0, 300)["inputs"], next(task.validation_batches(300))["inputs"]])
    assert ((inputs == 8).sum(1) < 4 * motif).all()


def test_what_is_memorized_is_one_map_for_all_sequences() -> None:
    task, seen = opened({"kind": "memorization", "context": 16, "symbols": 20}), dict[int, set[int]]()
    (validation,) = task.validation_batches(512)
    for batch in (task.train_batch(0, 1, 100), task.train_batch(7, 3, 100), validation):
        for inputs, targets in zip(batch["inputs"].tolist(), batch["targets"].tolist(), strict=True):
            for key, question, nothing, value in zip(
                inputs[::2], inputs[1::2], targets[::2], targets[1::2], strict=True
            ):
                assert (question, nothing) == (20, UNSCORED)
                seen.setdefault(key, set()).add(value)
    assert seen.keys() == set(range(10))
    assert all(len(values) == 1 for values in seen.values())
    assert len({min(values) for values in seen.values()}) == 10


@pytest.mark.parametrize("plain", PROBES, ids=lambda plain: plain["kind"])
def test_every_scored_place_is_answered_by_the_rule(plain: dict[str, Any]) -> None:
    batch = opened(plain).train_batch(0, 1, 200)
    scored = {"recall": 7, "copy": 13, "induction": 1}[plain["kind"]]
    for inputs, targets in zip(batch["inputs"].tolist(), batch["targets"].tolist(), strict=True):
        places = [place for place, target in enumerate(targets) if target != UNSCORED]
        assert len(places) == scored
        assert [solved(plain, inputs, place) for place in places] == [targets[place] for place in places]


def test_answers_are_as_likely_as_guessing_says() -> None:
    for plain in PROBES[1:]:
        targets = opened(plain).train_batch(0, 0, 4000)["targets"].numpy()
        assert chisquare(np.bincount(targets[targets != UNSCORED], minlength=plain["symbols"])).pvalue > 1e-3
    for targets in opened(PROBES[0]).train_batch(0, 0, 200)["targets"].numpy():
        assert np.unique(targets[targets != UNSCORED]).size == 7  # every value is asked for once


def test_short_distances_are_likelier_in_recall() -> None:
    plain = {**PROBES[0], "pairs": 1, "context": 40}
    targets = opened(plain).train_batch(0, 0, 20_000)["targets"].numpy()
    counts = (targets != UNSCORED).sum(axis=0)[2::2]
    density = np.arange(1, counts.size + 1) ** -0.99
    assert chisquare(counts, density / density.sum() * counts.sum()).pvalue > 1e-3
    assert targets[:, 1::2].max() == UNSCORED


def test_loss_and_accuracy_count_the_scored_places_alone() -> None:
    task = opened(PROBES[0])
    batch = {name: torch.stack([values, values]) for name, values in task.train_batch(0, 0, 6).items()}
    logits = torch.randn(2, 6, 34, 26)
    targets = batch["targets"][1]
    member = [
        (logits[1, row, place].log_softmax(-1)[target].item(), int(logits[1, row, place].argmax()) == target)
        for row in range(6)
        for place, target in enumerate(targets[row].tolist())
        if target != UNSCORED
    ]
    metrics = task.metrics({name: total.tolist() for name, total in task.measure(logits, batch).items()})
    assert task.loss(logits, batch)[1].item() == pytest.approx(-np.mean([log for log, _ in member]), rel=1e-5)
    assert metrics["val_loss"][1] == pytest.approx(-np.mean([log for log, _ in member]), rel=1e-5)
    assert metrics["val_accuracy"][1] == pytest.approx(np.mean([right for _, right in member]))
    whole = np.reshape([right for _, right in member], (6, 7)).all(axis=1)
    assert metrics["val_sequence_accuracy"][1] == pytest.approx(whole.mean())
    perfect = torch.nn.functional.one_hot(batch["targets"].clamp(min=0), 26).double()
    perfect[1, 0, (targets[0] != UNSCORED).nonzero()[0]] = 0
    metrics = task.metrics({name: total.tolist() for name, total in task.measure(perfect, batch).items()})
    assert metrics["val_sequence_accuracy"] == [1.0, pytest.approx(5 / 6)]


@pytest.mark.parametrize("plain", PROBES, ids=lambda plain: plain["kind"])
def test_guessing_is_what_the_baseline_says(plain: dict[str, Any]) -> None:
    task = opened(plain)
    guess = task.baselines()["guess"]
    guesses = {"recall": 7, "copy": 11, "induction": 7}[plain["kind"]]
    assert guess["val_loss"] == pytest.approx(math.log(guesses))
    assert guess["val_accuracy"] == pytest.approx(1 / guesses)


@pytest.mark.parametrize(
    ("plain", "field", "fits", "way", "said"),
    [
        ({"kind": "recall", "context": 28}, "pairs", 7, 1, "every pair needs four tokens .* 28.*Set `pairs: 7`"),
        ({"kind": "recall", "symbols": 16}, "pairs", 7, 1, "there are 7 different keys"),
        ({"kind": "fuzzy_recall", "context": 15}, "motif", 3, 1, "motifs of 3 tokens.*Set `motif: 3`"),
        ({"kind": "fuzzy_recall", "symbols": 8}, "motif", 4, 1, "motifs of 4 tokens.*Set `motif: 4`"),
        ({"kind": "selective_copy", "context": 20}, "copied", 9, 1, "which is 20, besides one.*Set `copied: 9`"),
        ({"kind": "selective_copy", "context": 21}, "copied", 10, 1, "which is 21, besides one.*Set `copied: 10`"),
        ({"kind": "needle", "context": 9}, "needles", 4, 1, "hold 4 pairs.*Set `needles: 4`"),
        ({"kind": "needle", "symbols": 3}, "needles", 3, 1, "hold 3 pairs.*Set `needles: 3`"),
        ({"kind": "depo", "nodes": 6}, "hops", 5, 1, "fewer than the nodes, 6: .*Set `hops: 5`"),
        ({"kind": "lano", "levels": 2}, "context", 10, -1, "up to 9 tokens.*Set `context: 10`"),
        ({"kind": "capo", "people": 28}, "names", 4, -1, "names give 27.*Set `names: 4`"),
        ({"kind": "capo", "people": 64}, "names", 4, -1, "names give 27.*Set `names: 4`"),
        ({"kind": "listops", "shortest": 10}, "longest", 12, -1, "exceed `shortest`, which is 10, by at least 2"),
    ],
)
def test_sizes_that_do_not_fit_are_refused_with_those_that_do(
    plain: dict[str, Any], field: str, fits: int, way: int, said: str
) -> None:
    """What the refusal names is the last that fits, and draws whole sequences."""
    with pytest.raises(ValidationError) as refused:
        TaskSpec.parse({**plain, field: fits + way})
    ((_, sentence),) = describe(refused.value)
    assert re.search(said, sentence)
    if plain["kind"] == "listops":
        TaskSpec.parse({**plain, field: fits})
        return
    task = opened({**plain, field: fits})
    batch = task.train_batch(0, 1, 40)
    assert batch["inputs"].shape == (40, task.shape.context)
    assert 0 <= batch["inputs"].min() <= batch["inputs"].max() < task.shape.vocabulary


def test_a_decoder_learns_to_find_what_followed() -> None:
    """Two layers of attention make an induction head; a guess is right once in four."""
    plain = {
        "task": {"kind": "induction", "context": 8, "symbols": 4, "validation_rows": 256},
        "model": {
            "family": "decoder",
            "depth": 2,
            "width": 32,
            "heads": 2,
            "init_std": 0.1,
            "block": {"mixer": {"kind": "attention"}, "norm": "rms", "mlp": {"kind": "plain"}},
        },
        "training": {"steps": 400, "batch_size": 32, "optimizer": {"lr": 4e-3}, "evaluations": 1},
    }
    variant = VariantSpec.model_validate(plain)
    task = variant.task.open(Path(), variant.task.prepare(Path(), print))
    *_, last = train([Member(variant, 0)], task, torch.device("cpu"))
    assert isinstance(last, Measurement)
    assert last.metrics["val_accuracy"][0] > 0.9


def graph_of(line: list[int], nodes: int) -> tuple[dict[int, set[int]], int]:
    """What each vertex of a sequence of Brevo depends on, among all that the vertex in question depends on; and it."""
    mark = line.index(nodes + 1)
    depends, query = dict[int, set[int]](), line[mark + 1]
    for parent, child in batched(line[1:mark], 2):
        depends.setdefault(child, set()).add(parent)
        depends.setdefault(parent, set())
    needed, before = {query}, set[int]()
    while needed != before:
        before, needed = set(needed), needed.union(*(depends[vertex] for vertex in needed))
    return {vertex: depends[vertex] for vertex in needed}, query


def ready_after(graph: dict[int, set[int]], said: list[int]) -> set[int]:
    """The vertices that may come next, by the standard library."""
    sorter, ready = TopologicalSorter(graph), set[int]()
    sorter.prepare()
    for vertex in said:
        ready |= {*sorter.get_ready()}
        assert vertex in ready
        ready.remove(vertex)
        sorter.done(vertex)
    return ready | {*sorter.get_ready()}


class Sorting(torch.nn.Module):
    """A pack of two that knows the graph: the first says a vertex that may come next, the second one that may not."""

    def __init__(self, nodes: int) -> None:
        super().__init__()
        self.nodes = nodes
        self.pack = torch.nn.Parameter(torch.zeros(2))

    def forward(self, tokens: torch.Tensor, padding: None = None) -> torch.Tensor:
        logits = torch.zeros(*tokens.shape, self.nodes + 5)
        for row, line in enumerate(tokens[0].tolist()):
            (graph, _), mark = graph_of(line, self.nodes), line.index(self.nodes + 2)
            for place in range(mark, len(line)):
                try:
                    ready = ready_after(graph, line[mark + 1 : place + 1])
                except AssertionError:  # what comes after the answers so far
                    break
                logits[0, row, place, max(ready, default=self.nodes + 3)] = 1.0
        logits[1, ..., self.nodes + 4] = 1.0
        return logits


class Counting(torch.nn.Module):
    """A pack of two that reads only the token before: the first adds 1 to it, the second 2; or draws by shares."""

    def __init__(self, shares: list[float] | None = None) -> None:
        super().__init__()
        self.shares, self.pack = shares, torch.nn.Parameter(torch.zeros(2))

    def forward(self, tokens: torch.Tensor, padding: None = None) -> torch.Tensor:
        if self.shares:
            return torch.tensor(self.shares).log().expand(*tokens.shape, -1)
        following = (tokens + torch.tensor([1, 2])[:, None, None]) % 9
        return torch.nn.functional.one_hot(following, 9).float()


def test_a_model_continues_each_row_from_its_own_place_to_the_end_of_the_row() -> None:
    task, size = opened({"kind": "parity", "context": 6}), 6
    inputs, starts = np.arange(24).reshape(4, 6) % 9, np.array([1, 3, 5, 6])
    model = Counting().train()
    written = generate(model, task, inputs, starts, 3, torch.device("cpu"))
    assert model.training
    for member in (0, 1):
        for row, start in enumerate(starts):
            line = [*inputs[row].tolist(), 0]
            for place in range(start, min(start + 3, size + 1)):
                line[place] = (line[place - 1] + member + 1) % 9
            assert written[member, row].tolist() == line
    coins = np.array([[0.1, 0.3], [0.49, 0.51], [0.9, 1.0]])
    drawn = generate(Counting([0.2, 0.3, 0.5]), task, inputs[:3], starts[:3], 2, torch.device("cpu"), coins)
    assert [drawn[1, row, start : start + 2].tolist() for row, start in enumerate(starts[:3])] == [
        [0, 1],
        [1, 2],
        [2, 2],
    ]


def test_every_order_of_brevo_that_is_right_counts_and_no_other() -> None:
    plain = {"kind": "brevo", "nodes": 9, "validation_rows": 60}
    task, nodes = opened(plain), 9
    (batch,) = task.validation_batches(60)
    outputs = Sorting(nodes)(batch["inputs"].expand(2, -1, -1))
    degrees = set[int]()
    several = asked = 0
    chance, nats, solved = list[float](), list[float](), list[float]()
    for row, (line, targets) in enumerate(zip(batch["inputs"].tolist(), batch["targets"].tolist(), strict=True)):
        order = [target for target in targets if target != UNSCORED]
        graph, query = graph_of(line, nodes)
        assert (order[-2], order[-1], len(order)) == (query, nodes + 3, len(graph) + 1)
        degrees |= {len(parents) for parents in graph.values()}
        for answer in range(len(order)):
            ready = ready_after(graph, order[:answer]) or {nodes + 3}
            spans = zip(batch["first"][row].tolist(), batch["last"][row].tolist(), strict=True)
            assert {token for token, (first, last) in enumerate(spans) if first <= answer <= last} == ready
            several, asked = several + (len(ready) > 1), asked + 1
            chance.append(len(ready) / (nodes + 1 - answer))
            nats.append(math.log(nodes + 1 - answer))
        solved.append(math.prod(chance[-len(order) :]))
        edges = batched(line[1 : line.index(nodes + 1)], 2)
        assert max(Counter(parent for parent, _ in edges).values()) <= 4
    assert max(degrees) <= 4 < several
    assert task.baselines()["not said yet"] == {
        "val_loss": pytest.approx(np.mean(nats)),
        "val_accuracy": pytest.approx(np.mean(chance)),
        "val_sequence_accuracy": pytest.approx(np.mean(solved)),
    }
    assert task.baselines()["guess"]["val_loss"] == pytest.approx(math.log(nodes + 1))
    packed = {name: values.expand(2, *values.shape) for name, values in batch.items()}
    metrics = task.metrics({name: total.tolist() for name, total in task.measure(outputs, packed).items()})
    assert (metrics["val_accuracy"], metrics["val_sequence_accuracy"]) == ([1.0, 0.0], [1.0, 0.0])
    assert (outputs[0].argmax(-1) != batch["targets"])[batch["targets"] != UNSCORED].any()
    found = task.final_metrics(Sorting(nodes), torch.device("cpu"))
    assert found == {"val_generated_accuracy": [1.0, 0.0]}
    lengths = {row.index(nodes + 2) for row in task.train_batch(0, 1, 200)["inputs"].tolist()}
    assert min(lengths) == 7
    assert len(lengths) > 8


def sentences_of(rules: Any, level: int = 0, symbol: int = 0) -> set[tuple[int, ...]]:
    """All that a symbol derives, written out."""
    if level == len(rules):
        return {(symbol,)}
    return {
        tuple(token for part in parts for token in part)
        for rule in rules[level][symbol]
        for parts in product(*(sentences_of(rules, level + 1, other) for other in rule))
    }


class Writing(torch.nn.Module):
    """A pack of two: the first writes one sentence, the second draws tokens uniformly."""

    def __init__(self, sentence: list[int], symbols: int) -> None:
        super().__init__()
        self.line = [*sentence, symbols]
        self.pack = torch.nn.Parameter(torch.zeros(2))

    def forward(self, tokens: torch.Tensor, padding: None = None) -> torch.Tensor:
        logits = torch.zeros(*tokens.shape, self.line[-1] + 1)
        for place, token in enumerate(self.line):
            logits[0, :, place, token] = 100.0
        return logits


def test_sentences_of_lano_are_those_of_its_grammar() -> None:
    task = opened({"kind": "lano", "levels": 2, "symbols": 2, "context": 12, "grammar": 3})
    spec = task.spec
    assert isinstance(spec, LanoSpec)
    assert all(len(rules) in (3, 4) and {*map(len, rules)} <= {2, 3} for level in spec.rules for rules in level)
    assert all(len({rule for rules in level for rule in rules}) == sum(map(len, level)) for level in spec.rules)
    sentences = sentences_of(spec.rules)
    for size in range(1, 10):
        for line in product(range(2), repeat=size):
            assert spec.derives(list(line)) == (line in sentences), line
    assert not spec.derives([])
    batch = task.train_batch(0, 1, 50)
    assert torch.equal(batch["inputs"][:, 1:], batch["targets"][:, :-1])
    for line in batch["inputs"].tolist():
        assert line[0] == 2
        *whole, cut = " ".join(map(str, line[1:])).split("2")
        for part in whole:
            assert tuple(map(int, part.split())) in sentences
        rest = tuple(map(int, cut.split()))
        assert any(sentence[: len(rest)] == rest for sentence in sentences)
    assert opened({"kind": "lano", "levels": 2, "symbols": 2, "context": 12}).spec.rules != spec.rules  # type: ignore[attr-defined]

    first = min(sentences)
    coins = Draws(f"{task.fingerprint}/generated").uniforms((128, 10))
    drawn = [[int(3 * coin) for coin in row] for row in coins]
    right = [2 in line and tuple(line[: line.index(2)]) in sentences for line in drawn]
    found = task.final_metrics(Writing(list(first), 2), torch.device("cpu"))
    assert found == {"val_generated_accuracy": [1.0, np.mean(right)]}
    assert 0 < np.mean(right) < 0.5


def test_rules_of_lano_are_equally_likely() -> None:
    spec = LanoSpec(levels=1, symbols=3, context=4)
    (rules,) = spec.rules[0]
    draws = Draws("rules")
    counts = Counter(tuple(spec.sentence(draws)) for _ in range(3000))
    assert {*counts} == {*rules}
    assert chisquare(list(counts.values())).pvalue > 1e-3


def test_the_trivial_baseline_of_lano_counts_what_follows_three_tokens() -> None:
    task = opened({"kind": "lano", "levels": 2, "context": 20, "validation_rows": 40})
    spec, (batch,) = task.spec, task.validation_batches(40)
    following: dict[tuple[int, ...], Counter[int]] = {}
    for inputs, targets in zip(*spec.sequences(Draws("lano/counted"), 40), strict=True):
        line = [0, 0, *inputs.tolist()]
        for place, target in enumerate(targets.tolist()):
            following.setdefault(tuple(line[place : place + 3]), Counter())[target] += 1
    right, nats = [], []
    for inputs, targets in zip(batch["inputs"].tolist(), batch["targets"].tolist(), strict=True):
        line = [0, 0, *inputs]
        for place, target in enumerate(targets):
            counts = following.get(tuple(line[place : place + 3]), Counter({0: 0}))
            right.append(min(counts, key=lambda token: (-counts[token], token)) == target)
            nats.append(-math.log((counts[target] + 1) / (counts.total() + 4)))
    found = task.baselines()
    assert found["last 3 tokens"] == {
        "val_loss": pytest.approx(np.mean(nats)),
        "val_accuracy": pytest.approx(np.mean(right)),
        "val_sequence_accuracy": pytest.approx(np.reshape(right, batch["inputs"].shape).all(axis=1).mean()),
    }
    assert found["last 3 tokens"]["val_loss"] < found["guess"]["val_loss"] - 0.2


def test_facts_of_capo_are_the_same_everywhere_and_their_bits_are_counted() -> None:
    sizes, people = (3, 5, 4), 11
    plain = {"kind": "capo", "people": people, "names": 3, "attributes": list(sizes), "biographies": 3}
    task = opened(plain)
    (validation,) = task.validation_batches(512)
    known = dict[tuple[int, ...], tuple[int, ...]]()
    for batch in (validation, task.train_batch(0, 1, 60), task.train_batch(5, 2, 60)):
        for inputs, targets in zip(batch["inputs"].tolist(), batch["targets"].tolist(), strict=True):
            line = [*inputs, targets[-1]]
            for start in range(0, 18, 6):
                name, values = tuple(line[start : start + 3]), tuple(line[start + 3 : start + 6])
                assert known.setdefault(name, values) == values
                assert [token // 3 for token in name] == [0, 1, 2]
                assert [9 <= values[0] < 12, 12 <= values[1] < 17, 17 <= values[2] < 21] == [True] * 3
    assert len(known) == people
    scored = (validation["targets"] != UNSCORED).long()
    assert scored.tolist() == [[0, 0, 1, 1, 1, 0, 0, 0, 1, 1, 1, 0, 0, 0, 1, 1, 1]] * len(scored)
    whole = people * math.log2(math.prod(sizes))
    for loss, bits in ((0.0, whole), (0.1, whole - people * 3 * 0.1 / math.log(2)), (9.0, 0.0)):
        sums = {name: [1.0] for name in ("right", "scored", "solved", "asked")}
        assert task.metrics({**sums, "nats": [loss]})["val_bits"] == [pytest.approx(bits)]
    guess = task.baselines()["guess"]
    sums = {name: [1.0] for name in ("right", "scored", "solved", "asked")}
    assert task.metrics({**sums, "nats": [guess["val_loss"]]})["val_bits"] == [
        pytest.approx(guess["val_bits"], abs=1e-9)
    ]
    assert guess["val_accuracy"] == pytest.approx(np.mean([1 / size for size in sizes]))
    assert guess["val_sequence_accuracy"] == pytest.approx(math.prod(sizes) ** -float(scored[0].sum() / len(sizes)))
    with pytest.raises(ValidationError, match="27"):
        TaskSpec.parse({**plain, "people": 28})
