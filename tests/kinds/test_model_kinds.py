"""Plugins written from `docs/how-to/` alone, one kind of each family: in spaces, in models and on the command line."""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Iterator
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from cli_runs import wait_for
from forked_command import ForkedCommand
from plugin_kinds import OF_MODELS, OF_THE_REST, write_plugin

from ablate import plugins
from ablate.contracts.checking import check_kind
from ablate.designs.base import BASELINE
from ablate.errors import AblateError, PluginError
from ablate.nn.model import build_model, model_cost
from ablate.nn.model.decoder import Decoder
from ablate.nn.pack.initial import stream
from ablate.planning.planner import Planner, make_plan
from ablate.plugins import FAMILIES, load_plugin
from ablate.render.drawing import layout, to_text
from ablate.render.formats import find_format
from ablate.render.terminal.kinds import check_json, kinds_json
from ablate.spec.model import ModelSpec
from ablate.spec.reading import load_space
from ablate.spec.schema import space_schema
from ablate.spec.space import SpaceSpec
from ablate.training.events import Measurement
from ablate.training.loop import train
from ablate.training.members import Member
from dashboard.drafter import schema as designer_schema
from docs.reference import kinds_page

T = 7
MODEL: dict[str, Any] = {
    "family": "decoder",
    "depth": 5,
    "width": 12,
    "heads": 3,
    "positions": "distance",
    "initialiser": "orthogonal",
    "final_norm": "tanh",
    "block": {"mixer": "attention", "mlp": "squared", "norm_mlp": {"kind": "tanh", "alpha": 0.3}, "residual": "unet"},
}


@pytest.fixture(autouse=True)
def families(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Kinds that a test loads are forgotten after it."""
    for family in FAMILIES.values():
        monkeypatch.setattr(family, "_members", family.members())
    monkeypatch.setattr(plugins, "_loaded", {})
    return


@pytest.fixture
def loaded(tmp_path: Path) -> None:
    for family in OF_MODELS:
        load_plugin(str(write_plugin(family, tmp_path)))


def model(seeds: list[int]) -> Decoder:
    made = build_model(ModelSpec.model_validate(MODEL), vocabulary=11, context=T, seeds=seeds)
    assert isinstance(made, Decoder)
    return made


@pytest.mark.usefixtures("loaded")
@pytest.mark.parametrize("family", OF_MODELS)
def test_it_keeps_the_contract_of_its_family(family: str) -> None:
    checked = check_kind(OF_MODELS[family], family)
    assert [finding for one in checked.specs for finding in one.findings] == []


@pytest.mark.usefixtures("loaded")
@pytest.mark.parametrize("family", OF_MODELS)
def test_it_is_listed(family: str) -> None:
    (listed,) = (one for one in kinds_json()[family] if one["kind"] == OF_MODELS[family])
    assert listed["source"]
    assert listed["description"]


@pytest.mark.usefixtures("loaded")
def test_the_reference_documents_them() -> None:
    page = kinds_page()
    assert [kind for kind in OF_MODELS.values() if f"### `{kind}` {{" not in page] == []


@pytest.mark.usefixtures("loaded")
def test_the_schema_and_so_the_designer_knows_it() -> None:
    schema = SpaceSpec.model_json_schema()
    for owner, slot, family in (
        ("BlockSpec", "mixer", "mixers"),
        ("BlockSpec", "mlp", "mlps"),
        ("BlockSpec", "norm", "norms"),
        ("BlockSpec", "norm_mixer", "norms"),
        ("BlockSpec", "residual", "residuals"),
        ("ModelSpec", "positions", "positions"),
        ("ModelSpec", "initialiser", "initialisers"),
    ):
        bare, *options = schema["$defs"][owner]["properties"][slot]["anyOf"]
        assert OF_MODELS[family] in bare["enum"], (owner, slot)
        named = [schema["$defs"][option["$ref"].rpartition("/")[2]] for option in options if "$ref" in option]
        assert OF_MODELS[family] in [one["properties"]["kind"]["const"] for one in named], (owner, slot)


@pytest.mark.usefixtures("loaded")
def test_a_model_of_all_of_them_trains_in_a_pack_and_costs_its_parameters() -> None:
    ids = torch.randint(11, (2, 3, T), generator=stream(0, "ids"))
    packed, alone = model([4, 6]), model([6])
    torch.testing.assert_close(packed(ids)[1], alone(ids[1:])[0])
    packed(ids).logsumexp(-1).sum().backward()
    assert all(parameter.grad is not None and parameter.grad.isfinite().all() for parameter in packed.parameters())
    assert model_cost(ModelSpec.model_validate(MODEL), vocabulary=11, context=T).parameters == sum(
        parameter.numel() for parameter in alone.parameters()
    )


@pytest.mark.usefixtures("loaded")
def test_it_decodes_token_by_token() -> None:
    one, states = model([4]), ()
    ids = torch.randint(11, (1, 2, T), generator=stream(0, "ids"))
    with torch.no_grad():
        for name, parameter in one.named_parameters():
            parameter += 0.2 * torch.randn(parameter.shape, generator=stream(0, name))
    for place in range(T):
        logits, states = one.step(ids[..., place : place + 1], place, states)  # type: ignore[assignment]
        torch.testing.assert_close(logits, one(ids)[:, :, place : place + 1])


@pytest.mark.usefixtures("loaded")
def test_it_is_drawn() -> None:
    picture = to_text(layout("mine", ModelSpec.model_validate(MODEL).block))
    for label in ("DyT", "mirrored layer", "RMSNorm"):
        assert label in picture
    wide = ModelSpec.model_validate({**MODEL, "block": {**MODEL["block"], "mlp": {"kind": "squared", "ratio": 2}}})
    assert "ratio: 2" in to_text(layout("mine", wide.block))


@pytest.mark.parametrize(
    ("module", "base", "missing"),
    [
        ("sublayers", "MLPSpec", "`build`, `cost`, `source`"),
        ("sublayers", "NormSpec", "`build`, `cost`, `label`, `source`"),
        ("layer", "PositionSpec", "`applied`, `build`, `cost`, `source`"),
        ("block", "ResidualSpec", "`build`, `cost`, `source`"),
        ("layer", "InitialiserSpec", "`initial`, `source`"),
    ],
)
def test_a_kind_that_lacks_something_is_refused(module: str, base: str, missing: str, tmp_path: Path) -> None:
    code = (
        f'from typing import Literal\nfrom ablate.spec.{module} import {base}\nclass Mine({base}):\n    """Mine."""\n'
    )
    (tmp_path / "mine.py").write_text(f'{code}    kind: Literal["mine"] = "mine"\n', encoding="utf-8")
    with pytest.raises(PluginError, match=missing):
        load_plugin(str(tmp_path / "mine.py"))


SPACE = """
name: own_kinds
question: Do kinds of one's own work?
model: {family: decoder, width: 12, depth: 2, heads: 3, block: pre_ln}
task: {kind: language_model, data: squares, tokenizer: letters, context: 16, text: text}
training:
  steps: 4
  batch_size: 4
  optimizer: {kind: sign_sgd, lr: 1.0e-2, embedding_rate: 0.1}
  schedule: {kind: stable_decay, decay: 0.5}
  evaluations: 2
switches:
  norm: {layer: {}, none: {block.norm: none}}
  optimizer: {own: {}, adam: {training.optimizer: {kind: adam, lr: 1.0e-3}}}
design: {kind: leave_two_out, seeds: 2}
objective: {metric: val_loss, margin: 0.1}
"""


def print_facts(folder: Path, file: Path) -> None:
    """Load the plugin files of a folder and print what each family then has, as one JSON object."""
    torch.set_num_threads(1)
    for plugin in sorted(folder.glob("my_*.py")):
        load_plugin(str(plugin))
    planner = Planner(load_space(file), folder / "cache", lambda line: None)
    (baseline,) = (variant for variant in make_plan(planner).variants if variant.name == BASELINE)
    events = list(train([Member(baseline.spec, 0)], planner.costs.prepare(baseline.spec), torch.device("cpu")))
    checked = {}
    for family, kind in OF_THE_REST.items():
        try:
            checked[family] = check_json(check_kind(kind, family))["findings"]
        except AblateError as error:
            checked[family] = [str(error)]
    facts = {
        "listed": {family: [one["kind"] for one in kinds_json()[family]] for family in OF_THE_REST},
        "checked": checked,
        "schema": json.dumps(space_schema()),
        "designer": json.dumps(designer_schema()["space"]),
        "points": [point.name for point in planner.design().points()],
        "losses": [event.metrics["val_loss"][0] for event in events if isinstance(event, Measurement)],
        "format": find_format("list").suffix,
        "training": baseline.spec.training.canonical(),
        "task": baseline.spec.task.canonical(),
        "code": baseline.code.content["kinds"],
    }
    print(json.dumps(facts))


@pytest.fixture(scope="module")
def facts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What a process of its own prints that has loaded the plugins of the pages."""
    folder = tmp_path_factory.mktemp("plugins")
    for family in OF_THE_REST:
        write_plugin(family, folder)
    assert len(list(folder.glob("my_*.py"))) == len(OF_THE_REST)
    space = folder / "own_kinds.yaml"
    space.write_text(SPACE, encoding="utf-8")
    run = partial(print_facts, folder, space)
    done = wait_for(ForkedCommand(["facts"], folder, dict(os.environ), nullcontext, run=run), timeout=280)
    assert done.code == 0, done.err
    return done.last_object


def test_there_is_a_plugin_file_of_each_family() -> None:
    assert {*OF_MODELS, *OF_THE_REST} == {*FAMILIES}


@pytest.mark.parametrize(("family", "kind"), OF_THE_REST.items())
def test_it_is_listed_and_keeps_the_contract(facts: dict[str, Any], family: str, kind: str) -> None:
    assert kind in facts["listed"][family]
    assert facts["checked"][family] == []


@pytest.mark.parametrize(
    "kind", [kind for family, kind in OF_THE_REST.items() if family not in ("formats", "trackers")]
)
@pytest.mark.parametrize("schema", ["schema", "designer"])
def test_it_is_in_the_schema_of_files_and_in_the_designers(facts: dict[str, Any], schema: str, kind: str) -> None:
    assert re.search(rf'"const": "{kind}"' if kind != "squares" else r'"pattern": "[^"]*\|squares', facts[schema])


def test_its_fields_are_described(facts: dict[str, Any]) -> None:
    assert "Rate of the embeddings, as a share of that of all else." in facts["designer"]


def test_a_space_is_made_of_them(facts: dict[str, Any]) -> None:
    assert facts["training"]["optimizer"] == {"kind": "sign_sgd", "lr": 0.01, "embedding_rate": 0.1}
    assert facts["training"]["schedule"] == {"kind": "stable_decay", "decay": 0.5}
    assert (facts["task"]["data"], facts["task"]["tokenizer"]) == ("squares", {"kind": "letters"})
    assert facts["points"] == ["baseline", "norm=none,optimizer=adam"]
    assert facts["format"] == "txt"


def test_the_code_of_each_is_part_of_the_keys_of_its_trials(facts: dict[str, Any]) -> None:
    """Also of the source, which a space names by its address, as a text."""
    assert {label: entry["file"] for label, entry in facts["code"].items()} == {
        "optimizer sign_sgd": "my_optimizer.py",
        "schedule stable_decay": "my_schedule.py",
        "tokenizer letters": "my_tokenizer.py",
        "data source squares": "my_source.py",
    }


def test_it_trains(facts: dict[str, Any]) -> None:
    first, *_, last = facts["losses"]
    assert first == pytest.approx(math.log(28), abs=0.2)  # 28 ids, at random
    assert last < first - 0.1
