"""The space designer without a browser: forms, drafts in addresses, effects of clicks, and its drafters."""

from __future__ import annotations

import base64
import json
import zlib
from pathlib import Path
from typing import Any

import psutil
import pytest
from cli_runs import Workplace
from hypothesis import given, settings
from hypothesis import strategies as st
from streamlit.testing.v1 import AppTest

from ablate.planning.forecast import Forecast
from ablate.planning.plan import check_points
from ablate.planning.planner import Planner, make_plan
from ablate.render.drawing.picture import parts_of
from ablate.render.terminal.plan import plan_json, validate_json
from ablate.spec.block import BlockSpec
from ablate.spec.named import block_names, named_block
from ablate.spec.paths import without_texts
from ablate.spec.reading import load_space
from ablate.spec.space import SpaceSpec
from dashboard.drafter import _space, check
from dashboard.shared.pictures import Drafter, ask, packed, text_of, unpacked
from dashboard.shared.schema import lean, member
from dashboard.views.design import _values, how_it_trains


@pytest.fixture(scope="module")
def definitions() -> dict[str, Any]:
    """The parts of the JSON Schema of a space."""
    found: dict[str, Any] = SpaceSpec.model_json_schema()["$defs"]
    return found


def _page() -> None:
    from dashboard.views.design import show

    show()


@pytest.fixture(scope="module")
def app() -> AppTest:
    """The page, drawn; each test begins by choosing what to start from."""
    return AppTest.from_function(_page, default_timeout=90).run()


def start_from(app: AppTest, space: str) -> dict[str, Any]:
    app.selectbox(key="start-space").select(space)
    button(app, "Start from this space").click().run()
    return draft(app)


def button(app: AppTest, label: str) -> Any:
    return next(one for one in app.button if one.label == label)


def draft(app: AppTest) -> dict[str, Any]:
    assert not app.exception, app.exception
    found: dict[str, Any] = app.session_state["draft of a space"]
    return found


TABS = {"model.block": "Block", "model": "Model", "training": "Training", "design": "Design", "claims": "Claims",
        "match": "Fairness", "tune": "Fairness"}  # fmt: skip


def unfold(app: AppTest, path: str) -> None:
    """Open the tab of a field: those that are closed have no controls."""
    tab = next((tab for start, tab in TABS.items() if path.startswith(start)), None)
    if tab is not None and (not app.session_state["more"] or app.session_state["tabs"] != tab):
        app.session_state["more"] = True
        app.run()
        app.session_state["tabs"] = tab
        app.run()


def control(app: AppTest, path: str) -> Any:
    """The control of a field, whatever its type."""
    unfold(app, path)
    sorts = (app.selectbox, app.segmented_control, app.toggle, app.number_input, app.text_input, app.text_area)
    return next(one for sort in sorts for one in sort if str(one.key).partition(".")[2] == path)


def area(app: AppTest) -> Any:
    """The YAML, which can be edited."""
    return next(one for one in app.text_area if one.label == "The space as YAML")


def said(app: AppTest) -> str:
    return " ".join(one.value for one in app.error).replace("\\", "")


def read(app: AppTest, folder: Path) -> SpaceSpec:
    """The page's YAML, read as `ablate validate` reads it."""
    file = folder / "made.yaml"
    file.write_text(area(app).value)
    return load_space(file)


def test_showing_a_space_changes_nothing_of_it(app: AppTest, tmp_path: Path) -> None:
    spaces = app.selectbox(key="start-space").options[1:]
    assert "simplify_block" in spaces
    for name in spaces[::3]:
        start_from(app, name)
        assert app.success, said(app)
        assert read(app, tmp_path).content_hash() == load_space(name).content_hash()


@pytest.mark.parametrize("name", sorted(block_names()))
def test_shortest_form_is_the_same_block(name: str, definitions: dict[str, Any]) -> None:
    node, found = definitions["BlockSpec"], BlockSpec.model_validate(named_block(name).block)
    short = lean(node, found.model_dump(mode="json"), definitions)
    assert BlockSpec.model_validate(short) == found
    assert lean(node, short, definitions) == short
    assert len(json.dumps(short)) <= len(json.dumps(found.model_dump(mode="json")))


def test_every_kind_of_mixer_has_its_controls(app: AppTest, tmp_path: Path, definitions: dict[str, Any]) -> None:
    mixers = definitions["BlockSpec"]["properties"]["mixer"]
    start_from(app, "packages")  # an encoder, which all but the causal-only kinds may stand in
    fields = {}
    for kind in mixers["anyOf"][0]["enum"]:
        control(app, "model.block.mixer").select(kind).run()
        assert draft(app)["model"]["block"]["mixer"]["kind"] == kind
        assert bool(app.success) != bool(app.error)
        if app.success:
            assert read(app, tmp_path).model.block.mixer.kind_name() == kind
        within = f"model.block.mixer.{kind}."
        sorts = (app.selectbox, app.segmented_control, app.toggle, app.number_input, app.text_input)
        paths = {str(one.key).partition(".")[2].rstrip("?") for sort in sorts for one in sort}
        fields[kind] = {path.removeprefix(within).split(".")[0] for path in paths if path.startswith(within)}
    for kind, shown in fields.items():
        spec = member(mixers, kind, definitions)
        assert spec is not None
        assert shown == {*spec["properties"]} - {"kind"}, kind


def test_an_invalid_draft_is_reported_with_its_reason_and_can_be_corrected(app: AppTest) -> None:
    start_from(app, "recall")
    mixer = "model.block.mixer.attention"
    assert app.metric
    control(app, f"{mixer}.matmul_order").set_value("kv_first").run()
    assert "softmax is applied between" in said(app)
    assert "Set `softmax: false`" in said(app)
    assert not any(one.label == "Valid variants" for one in app.metric)
    control(app, f"{mixer}.softmax").set_value(False).run()
    assert app.success, said(app)
    assert draft(app)["model"]["block"]["mixer"] == {"kind": "attention", "softmax": False, "matmul_order": "kv_first"}


def test_a_control_set_back_leaves_no_trace(app: AppTest) -> None:
    before = json.dumps(start_from(app, "simplify_block"))
    control(app, "model.block.mlp.plain.ratio").set_value(2.0).run()
    assert draft(app)["model"]["block"]["mlp"]["ratio"] == 2
    control(app, "model.block.mlp.plain.ratio").set_value(4.0).run()
    assert json.dumps(draft(app)) == before


def beside(app: AppTest) -> list[str]:
    return [one.value.replace("\\", "") for one in app.caption if one.value.startswith(":red")]


def test_claims_are_made_with_controls_and_mistakes_are_shown_beside_them(app: AppTest, tmp_path: Path) -> None:
    before = start_from(app, "the template")
    unfold(app, "claims")
    for _ in range(2):
        button(app, "Add to claims").click().run()
    assert len(beside(app)) == 2, "two claims that say nothing"
    control(app, "claims.0").select("order claim").run()
    control(app, "claims.0.order claim.id").set_value("order")
    control(app, "claims.0.order claim.margin").set_value(0.01)
    control(app, "claims.0.order claim.order").set_value("[baseline, nobody]")
    for name, value in (("id", "worse"), ("left", next(iter(invariants(before)))), ("right", "baseline")):
        control(app, f"claims.1.comparison claim.{name}").set_value(value)
    control(app, "claims.1.comparison claim.expect").set_value("worse")
    control(app, "claims.1.comparison claim.margin").set_value(0.1).run()
    (wrong,) = beside(app)
    assert "nobody" in wrong
    assert "nobody" in said(app)
    remove = next(one for one in app.button if str(one.key).endswith("claims.0-"))
    remove.click().run()
    assert app.success, said(app)
    assert beside(app) == []
    (claim,) = read(app, tmp_path).claims
    assert (claim.id, claim.expect, claim.margin) == ("worse", "worse", 0.1)
    before = draft(app)["claims"]
    button(app, "Take this block").click().run()  # draws all controls anew, from the draft
    assert draft(app)["claims"] == before


def test_exceptions_of_layers_are_typed_and_validated(app: AppTest, tmp_path: Path) -> None:
    start_from(app, "the template")
    field = control(app, "model.exceptions")
    field.set_value("first: [").run()
    assert any("not valid YAML, line 1" in one for one in beside(app)), beside(app)
    control(app, "model.exceptions").set_value("first:\n  norm: nothing").run()
    assert any("nothing" in one for one in beside(app))
    control(app, "model.exceptions").set_value("first:\n  norm: none").run()
    assert beside(app) == []
    assert read(app, tmp_path).model.exceptions == {"first": {"norm": "none"}}
    control(app, "model.exceptions").set_value("").run()
    control(app, "model.pattern").set_value("- {}\n- norm: none").run()
    assert app.success, said(app)
    assert [block.norm.kind for block in read(app, tmp_path).model.blocks[:2]] == ["rms", "none"]


def test_fairness_has_controls(app: AppTest, tmp_path: Path) -> None:
    start_from(app, "the template")
    control(app, "match.equal").select("tokens").run()
    control(app, "tune?").set_value(True).run()
    control(app, "tune.grid").set_value("training.optimizer.lr: [1.0e-3]").run()
    assert beside(app)
    control(app, "tune.grid").set_value("training.optimizer.lr: [1.0e-3, 2.0e-3]").run()
    assert app.success, said(app)
    space = read(app, tmp_path)
    assert space.match.equal == "tokens"
    assert space.tune is not None
    assert space.tune.grid == {"training.optimizer.lr": (1e-3, 2e-3)}


def invariants(plain: dict[str, Any]) -> list[str]:
    """The variants that a leave_one_out design names."""
    switches = without_texts(plain)[0]["switches"]
    return [f"{name}={setting}" for name, found in switches.items() for setting in list(found)[1:]]


def test_switches_are_added_extended_and_removed(app: AppTest, tmp_path: Path) -> None:
    plain = start_from(app, "the template")
    assert variants(app) == 6
    app.session_state["by path"] = True
    app.run()
    for path, value in (("block.norm", None), ("block.mlp.ratio", 2.0)):
        control(app, "switch").set_value("norm")
        control(app, "setting").set_value("none")
        control(app, "path").select(path).run()
        control(app, f"value.{path}").set_value(value or "none").run()
        if path == "block.norm":
            control(app, "word").set_value("removes")
            app.run()
            control(app, "words").set_value("the normalisation").run()
        button(app, "Add").click().run()
    told = "\n".join(one.value for one in app.markdown)
    assert "- **removed**: without the attention skip" in told, "in words, then by paths"
    assert "- **identity**: no value projection" in told
    assert app.session_state["last picture"].count("box varied") == 2, "both norms are marked"
    found = draft(app)["switches"]["norm"]
    setting = {"block.norm": {"kind": "none"}, "block.mlp.ratio": 2, "removes": "the normalisation"}
    assert found == {"kept": {}, "none": setting}
    assert variants(app) == 7
    assert read(app, tmp_path).resolve({"norm": "none"}).model.block.norm.kind == "none"
    assert read(app, tmp_path).model_dump()["switches"]["norm"]["none"]["removes"] == "the normalisation"
    next(one for one in app.button if str(one.key).endswith("remove.values")).click().run()
    assert list(draft(app)["switches"]) == ["attention_skip", "projection", "norm"]
    assert "no_maps" in plain["variants"]
    assert "variants" not in draft(app)  # what named a switch that is gone
    assert app.success, said(app)


def variants(app: AppTest) -> int:
    return int(next(one.value for one in app.metric if one.label == "Valid variants"))


def test_the_number_of_variants_can_be_derived_and_a_question_has_lines(app: AppTest) -> None:
    start_from(app, "recall")
    (names,) = (said for one in app.caption if "To be trained: " in (said := one.value.replace("\\", "")))
    assert len(names.split("; ")) == variants(app)
    assert any(one.label == "question" for one in app.text_area), "a long question is whole on a phone"
    fixed = how_it_trains({"steps": 400, "seeds": (3, 9), "rates": [0.003]})
    assert fixed == "Each variant is trained for 400 steps with 3 to 9 seeds, at the learning rate 0.003."
    start_from(app, "simplify_block")
    told = " ".join(one.value for one in app.caption).replace("\\", "")
    assert "1,600 steps with 5 seeds, at a tuned learning rate of its own between 0.001 and 0.032." in told


def test_the_estimate_counts_the_trials_of_plan(app: AppTest, place: Workplace) -> None:
    start_from(app, "recall")
    control(app, "design.leave_one_out.seeds").set_value(2).run()
    (place.folder / "made.yaml").write_text(text_of(draft(app)))
    planned = json.loads(place.call("plan", "made.yaml", "--json").out)
    at_once = {one.label: one.value for one in app.metric}
    assert int(at_once["Trials"]) == len(planned["trials"]), "before any click"
    app.button(key="estimate").click().run()
    shown = {one.label: one.value for one in app.metric}
    assert int(shown["Trials"]) == len(planned["trials"])
    (blocks, unit), (whole, same) = (shown[label].split() for label in ("Arithmetic, about", "Arithmetic"))
    assert unit == same
    assert 0.6 < float(blocks) / float(whole) < 1.05
    assert int(shown["Valid variants"]) == len(planned["variants"])
    control(app, "design.leave_one_out.seeds").set_value(3).run()
    assert "Done already" not in {one.label for one in app.metric}, "another draft is another click"


@pytest.mark.parametrize("part", ["mixer", "mlp", "skip_mixer", "norm_mixer_pre", "mixer: value", "mlp: activation"])
def test_each_offer_for_a_part_changes_it_and_gives_a_valid_variant(part: str) -> None:
    draft = load_space("simplify_block").model_dump(mode="json")
    found = ask("offers", draft, part, _values(ask("schema")))
    assert found
    for offer in found:
        setting = offer["setting"] | offer["text"]
        space = SpaceSpec.model_validate(
            draft | {"switches": {"it": {"kept": {}, "changed": setting}}, "variants": {}, "claims": [], "tuned": {}}
        )
        before, after = (parts_of(space.resolve({"it": one}).model.block) for one in ("kept", "changed"))
        assert {slot for slot in before.keys() | after if before.get(slot) != after.get(slot)} & {
            part,
            *(slot for slot in before | after if slot.startswith(f"{part}: ")),
        }
        assert not offer["removes"] or part not in after
    assert any(offer["removes"] for offer in found) is (part not in ("mixer", "mlp: activation"))


def test_an_address_causes_no_file_to_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def note(name: str, *arguments: Any) -> Any:
        asked.append(name)
        return ask(name, *arguments)

    plain = json.loads(json.dumps(load_space("recall").model_dump(mode="json")))
    monkeypatch.setattr("dashboard.views.design.ask", note)
    app = AppTest.from_function(_page, default_timeout=90)
    app.query_params["space"] = packed(plain | {"task": plain["task"]})
    app.query_params["estimate"] = "true"
    app.run()
    assert not app.exception
    assert "check" in asked
    assert "plan" not in asked


def test_a_draft_extends_no_file(tmp_path: Path) -> None:
    (tmp_path / "secret.yaml").write_text("password: [1\n")
    plain = load_space("recall").model_dump(mode="json") | {"extends": str(tmp_path / "secret.yaml")}
    space, refusal = _space(plain, text_of(plain))
    assert space is None
    assert refusal == "A draft extends no other space: start from that space, and change it."


def test_a_space_without_effect_is_warned_of(app: AppTest) -> None:
    plain = start_from(app, "recall")
    assert not app.warning
    same = {"depth": {"two": {}, "again": {"model.depth": plain["model"]["depth"]}}}
    app.query_params["space"] = packed(plain | {"switches": same})
    app.run()
    (warning,) = app.warning
    assert "there is nothing to compare" in warning.value
    assert "depth=again is the same variant as baseline" in warning.value.replace("\\", "")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, cache: Path) -> Workplace:
    return Workplace(tmp_path_factory.mktemp("designer"), cache)


leaves = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
plain = st.dictionaries(st.text(), leaves | st.lists(leaves), max_size=4)


@settings(max_examples=30)
@given(plain, plain, st.dictionaries(st.text(), st.dictionaries(st.text(), plain, max_size=2), max_size=3))
def test_addresses_hold_drafts(model: dict[str, Any], rest: dict[str, Any], switches: dict[str, Any]) -> None:
    parts = dict.fromkeys(("task", "training", "design", "objective"), rest)
    made = parts | {"name": "x", "model": model | {"block": {}}, "switches": switches}
    assert unpacked(packed(made)) == made


@pytest.mark.parametrize("address", ["", "x", "%%%", packed({"model": {}}), packed({"model": 1}), packed([])])  # type: ignore[arg-type]
def test_other_addresses_hold_none(address: str) -> None:
    assert unpacked(address) is None
    assert unpacked(packed({"model": {"block": {}}})[:-3]) is None


@pytest.mark.parametrize("question", ['"\\ud800"', "[" * 5000 + "]" * 5000, "9" * 5000, '"\xff"'])
def test_an_address_whose_text_is_none_holds_no_draft(question: str) -> None:
    """Half of a character, what is nested too deeply, a number that cannot be printed, text that is not UTF-8."""
    whole = '{"name": "x", "task": {}, "model": {"block": {}}, "training": {}, "switches": {}, "design": {},'
    text = f'{whole} "objective": {{}}, "question": {question}}}'.encode("latin-1")
    assert unpacked(base64.urlsafe_b64encode(zlib.compress(text)).decode().rstrip("=")) is None


@pytest.mark.parametrize(
    "broken",
    [
        {"model": {"block": {"mixer": {"kind": "nope"}, "mlp": [1], "gains": 2}, "depth": "x", "exceptions": [1]}},
        {"task": {"kind": "zz"}, "name": 5, "question": None, "design": {"kind": "grid", "seeds": {"start": "a"}}},
        {"switches": {"a": {"b": {"c": 1}}}, "claims": 5, "training": {"steps": 1e99}},
    ],
    ids=["model", "task", "switches"],
)
def test_a_broken_draft_in_the_address_is_reported(broken: dict[str, Any]) -> None:
    parts = {part: {} for part in ("task", "training", "switches", "design", "objective")}
    app = AppTest.from_function(_page, default_timeout=90)
    app.query_params["space"] = packed(parts | {"name": "x", "model": {"block": {}}} | broken)
    app.run()
    assert not app.exception
    assert app.error
    assert not app.success


SPACE = """\
name: t
question: Why?
task: {{kind: recall}}
model: {{family: decoder, depth: 1, width: 16, heads: 2, block: pre_ln}}
training: {{steps: 10, batch_size: 4, optimizer: {{lr: 1e-3}}}}
switches:
  mixer: {{attention: {{}}, twice: {{block.mixer: attention}}}}
  heads: {{two: {{}}, other: {{model.heads: {heads}}}}}
design: {{kind: leave_one_out, seeds: 3}}
objective: {{metric: val_loss, margin: 0.05}}
"""


@pytest.mark.parametrize(("heads", "sentences"), [(2, 3), (4, 1), (3, 2)])  # 3 is invalid: nothing is left
def test_the_same_sentences(heads: int, sentences: int, tmp_path: Path) -> None:
    text = SPACE.format(heads=heads)
    (tmp_path / "t.yaml").write_text(text, encoding="utf-8")
    space = load_space(tmp_path / "t.yaml")
    planner = Planner(space, tmp_path / "cache", lambda line: None)
    validated = validate_json(space, check_points(space, planner.design()))["without_effect"]
    planned = plan_json(make_plan(planner), Forecast(frozenset(), 1.0, "a test", 1))["without_effect"]
    designed = check(space.model_dump(mode="json"), text, None)["without_effect"]
    assert validated == planned == designed
    assert len(validated) == sentences
    assert validated[0].startswith("Warning: there is nothing to compare.") == (heads != 4)


REQUEST = json.dumps(["block", "pre_ln"])


def processes() -> list[psutil.Process]:
    return [child for child in psutil.Process().children() if any("drafter.py" in part for part in child.cmdline())]


def test_one_that_takes_longer_than_its_patience_is_ended() -> None:
    before = processes()
    assert Drafter([], patience=0.0).answer(json.dumps(["schema"])) == ""
    assert processes() == before


def test_one_that_was_killed_is_restarted_and_its_start_does_not_count_as_an_answer() -> None:
    before = processes()
    drafter = Drafter([], patience=1.5)  # less than it takes to import torch
    answered = drafter.answer(REQUEST)
    assert json.loads(answered)
    (process,) = set(processes()) - set(before)
    process.kill()
    process.wait()
    assert drafter.answer(REQUEST) == answered
