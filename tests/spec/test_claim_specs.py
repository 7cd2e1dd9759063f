"""Claims in a space: their kinds, and every refusal before anything trains."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from ablate.spec.claims import ClaimField, ClaimSpec, ComparisonClaim, NumberClaim, OrderClaim, TrendClaim
from ablate.spec.space import SpaceSpec

COMPARISON = {"id": "a", "expect": "better", "left": "norm=none", "right": "baseline", "margin": 0.01}
NUMBER = {"id": "a", "expect": 20947008, "subject": {"variant": "both", "quantity": "parameters"}}
ORDER = {"id": "a", "expect": "ordered", "order": ["baseline", "norm=none", "both"], "margin": 0.01}
TREND = {"id": "a", "expect": "grows", "left": "baseline", "right": "norm=none", "along": "heads", "margin": 0.01}


def space(*claims: dict[str, Any], **others: Any) -> SpaceSpec:
    plain = {
        "name": "a_space",
        "question": "Is it so?",
        "task": {"kind": "language_model", "data": "builtin:python_stdlib", "tokenizer": "bytes", "context": 32},
        "model": {"family": "decoder", "depth": 2, "width": 16, "heads": 2, "block": {"mixer": "attention"}},
        "training": {"steps": 2, "batch_size": 2, "optimizer": {"lr": 1e-3}},
        "switches": {
            "norm": {"kept": {}, "none": {"block.norm": "none"}},
            "heads": {"2": {}, "4": {"model.heads": 4}, "odd": {"model.heads": 8}, "3": {"model.heads": 3}},
        },
        "variants": {"both": {"norm": "none", "heads": "4"}},
        "design": {"kind": "leave_one_out", "seeds": 2},
        "objective": {"metric": "val_loss", "margin": 0.02},
        "claims": list(claims),
    }
    return SpaceSpec.model_validate(plain | others)


def refused(*claims: dict[str, Any], **others: Any) -> tuple[tuple[str | int, ...], str]:
    """Path and text (rule and remedy) of the only refusal."""
    with pytest.raises(ValidationError) as caught:
        space(*claims, **others)
    (line,) = caught.value.errors(include_url=False)
    assert line["ctx"]["remedy"]
    return tuple(line["loc"]), f"{line['msg']}. {line['ctx']['remedy']}"


@pytest.mark.parametrize(
    ("plain", "sort"),
    [
        (COMPARISON, ComparisonClaim),
        (COMPARISON | {"expect": "equal", "says": "No norm is needed.", "source": "Fig. 8"}, ComparisonClaim),
        (NUMBER, NumberClaim),
        (NUMBER | {"subject": {"variant": "both", "quantity": "val_loss"}, "tolerance": 0.1}, NumberClaim),
        (ORDER, OrderClaim),
        (COMPARISON | {"metric": "val_perplexity", "direction": "minimize"}, ComparisonClaim),
        (COMPARISON | {"metric": "tokens_per_second"}, ComparisonClaim),
        (ORDER | {"metric": "activation_bytes"}, OrderClaim),
        (NUMBER | {"subject": {"variant": "both", "quantity": "activation_bytes"}}, NumberClaim),
    ],
)
def test_sorts(plain: dict[str, Any], sort: type[ClaimSpec]) -> None:
    claimed = space(plain)
    (claim,) = claimed.claims
    assert type(claim) is sort
    # What a study stores is read back as the same claim.
    (stored,) = json.loads(json.dumps(claimed.model_dump(mode="json")))["claims"]
    assert ClaimSpec.parse(stored) == claim


def test_spaces_without_claims_keep_their_canonical_form() -> None:
    assert "claims" not in space().canonical()
    assert space(COMPARISON).content_hash() != space().content_hash()


@pytest.mark.parametrize(
    ("changes", "path", "text"),
    [
        ({"left": "norm=non"}, ("left",), "no variant `norm=non`. Did you mean `norm=none`?"),
        ({"left": "zzz"}, ("left",), "Known names: baseline, norm=none"),
        ({"right": "norm=none"}, ("right",), "the same variant"),
        ({"right": "heads=3"}, ("right",), "are invalid"),
        ({"right": "heads=3"}, ("right",), "heads=3: `model.heads`: "),  # the setting, and the rule that it breaks
        ({"right": "heads=3"}, ("right",), "16"),
        ({"margin": 0}, ("margin",), "a `margin` above 0. Write the smallest difference"),
        ({"margin": -1.0}, ("margin",), "a `margin` above 0"),
        ({"margin": "-0.1"}, ("margin",), "a `margin` above 0. Write the smallest difference"),
        ({"margin": None}, ("margin",), "a `margin` above 0"),
        ({"expect": "beter"}, ("expect",), "no claim can expect `beter`. Did you mean `better`?"),
        ({"expect": True}, ("expect",), "Write one of better, not_worse, equal, worse, ordered, grows, shrinks, or"),
        ({"metric": "val_perplexity"}, ("metric",), "Add `direction: minimize`"),
        ({"metric": "val_los"}, ("metric",), "no metric of this name. Did you mean `val_loss`?"),
        ({"metric": "tokens_per_secund"}, ("metric",), "no metric of this name. Did you mean `tokens_per_second`?"),
        ({"leftt": "norm=none"}, ("leftt",), "Did you mean `left`?"),
    ],
)
def test_a_comparison_that_cannot_be_decided(changes: dict[str, Any], path: tuple[str, ...], text: str) -> None:
    at, message = refused(COMPARISON | changes)
    assert at == ("claims", 0, *path)
    assert text in message


def test_missing_parts_are_reported_at_the_claim() -> None:
    for key in ("margin", "expect"):
        at, message = refused({name: value for name, value in COMPARISON.items() if name != key})
        assert at == ("claims", 0)
        assert key.removesuffix("ect") in message
    with pytest.raises(ValidationError) as caught:
        space({name: value for name, value in COMPARISON.items() if name != "left"})
    assert [(line["loc"], line["type"]) for line in caught.value.errors()] == [(("claims", 0, "left"), "missing")]


def test_ids_are_unique() -> None:
    at, message = refused(COMPARISON, COMPARISON | {"expect": "worse"})
    assert at == ("claims", 1, "id")
    assert "two claims have the id `a`. Rename" in message


def test_numbers_orders_and_trends_that_cannot_be_decided() -> None:
    at, message = refused(NUMBER | {"subject": {"variant": "bot", "quantity": "parameters"}})
    assert (at, "Did you mean `both`?" in message) == (("claims", 0, "subject", "variant"), True)
    at, message = refused(NUMBER | {"subject": {"variant": "both", "quantity": "parameters", "over": "bot"}})
    assert (at, "Did you mean `both`?" in message) == (("claims", 0, "subject", "over"), True)
    at, message = refused(NUMBER | {"subject": {"variant": "both", "quantity": "val_loss"}})
    assert (at, "Write a `tolerance` above 0" in message) == (("claims", 0, "tolerance"), True)
    at, message = refused(NUMBER | {"subject": {"variant": "both", "quantity": "seconds"}})
    assert (at, "Write a `tolerance` above 0" in message) == (("claims", 0, "tolerance"), True)
    at, message = refused(NUMBER | {"subject": {"variant": "both", "quantity": "params"}})
    assert (at, "Did you mean `parameters`?" in message) == (("claims", 0, "subject", "quantity"), True)
    at, message = refused(ORDER | {"order": ["baseline", "both", "nothing"]})
    assert (at, "no variant `nothing`" in message) == (("claims", 0, "order", 2), True)
    at, message = refused(ORDER | {"order": ["baseline", "both", "baseline"]})
    assert (at, "twice" in message) == (("claims", 0, "order", 2), True)
    at, message = refused(TREND | {"along": "head"})
    assert (at, "Did you mean `heads`?" in message) == (("claims", 0, "along"), True)
    space(TREND)  # `both` is the second position
    at, message = refused(TREND, variants={})  # leaving one out trains `norm=none` with the baseline's heads alone
    assert (at, "trains both at 1" in message) == (("claims", 0, "along"), True)


def makes_a_model(name: str) -> str | None:
    return None  # nothing is refused


def test_a_trend_needs_numbers() -> None:
    points = {f"{norm},{heads}": {"norm": norm, "heads": heads} for norm in "ab" for heads in ("2", "4", "8")}
    trend = TrendClaim.model_validate(TREND | {"left": "a,2", "right": "b,2"})
    assert len(trend.sides(points)) == 3
    trend.check_trained(points, makes_a_model)
    points |= {f"{norm},odd": {"norm": norm, "heads": "odd"} for norm in "ab"}
    with pytest.raises(ValidationError, match="`odd` is not a position on an axis"):
        trend.check_trained(points, makes_a_model)


def test_a_trend_follows_a_sweep() -> None:
    points = {
        f"{mixer}@task.context={length}": {"mixer": mixer} for mixer in ("he", "attention") for length in (64, 128)
    }
    trend = TrendClaim.model_validate(TREND | {"left": "he", "right": "attention", "along": "task.context"})
    assert trend.sides(points) == {
        "64": ("he@task.context=64", "attention@task.context=64"),
        "128": ("he@task.context=128", "attention@task.context=128"),
    }
    trend.check_trained(points, makes_a_model)
    with pytest.raises(ValidationError, match="trains both at 1"):
        trend.check_trained(points, lambda name: "no model" if name == "he@task.context=128" else None)
    with pytest.raises(ValidationError, match=r"`he@task\.context=128` is invalid: the width is odd"):
        trend.check_trained(points, lambda name: "the width is odd" if name == "he@task.context=128" else None)
    del points["he@task.context=64"]
    with pytest.raises(ValidationError, match="trains both at 1"):
        trend.check_trained(points, makes_a_model)


@pytest.mark.parametrize("plain", [COMPARISON, ORDER, NUMBER, TREND])
def test_another_name_for_the_same_variant(plain: dict[str, Any]) -> None:
    claim = ClaimSpec.parse(plain)
    renamed = claim.renamed({"both": "norm=none,heads=4", "norm=none": "plain", "unused": "x"})
    assert set(renamed.names().values()) == {
        {"both": "norm=none,heads=4", "norm=none": "plain"}.get(name, name) for name in claim.names().values()
    }


def test_the_json_schema_knows_every_sort() -> None:
    schema = TypeAdapter(ClaimField).json_schema()
    text = json.dumps(schema)
    for word in ("not_worse", "ordered", "shrinks", "tolerance"):
        assert word in text
    assert len(schema["anyOf"]) == 4


def test_a_claim_is_a_mapping() -> None:
    with pytest.raises(ValidationError, match="a claim is a mapping"):
        space("he beats attention")  # type: ignore[arg-type]


def test_a_space_with_the_names_that_its_study_uses() -> None:
    claimed = space(COMPARISON, ORDER | {"id": "b"})
    renamed = claimed.with_names({"both": "norm=none,heads=4"})
    assert [list(claim.names().values()) for claim in renamed.claims] == [
        ["norm=none", "baseline"],
        ["baseline", "norm=none", "norm=none,heads=4"],
    ]
    assert renamed.variants == claimed.variants
