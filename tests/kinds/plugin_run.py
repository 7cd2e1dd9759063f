"""Run by `test_plugin_files` in a process of its own: loads plugin files and prints what each family then has."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch
from plugin_kinds import OF_THE_REST

from ablate.api import load_space
from ablate.contracts.checking import check_kind
from ablate.designs.base import BASELINE
from ablate.errors import AblateError
from ablate.planning.planner import Planner, make_plan
from ablate.plugins import load_plugin
from ablate.render.formats import find_format
from ablate.render.terminal.checked_kinds import check_json
from ablate.render.terminal.kinds import kinds_json
from ablate.spec.schema import space_schema
from ablate.training.events import Measurement
from ablate.training.loop import train
from ablate.training.members import Member


def main(folder: Path, space: str) -> None:
    torch.set_num_threads(1)
    for file in sorted(folder.glob("my_*.py")):
        load_plugin(str(file))
    sys.path.insert(0, str(Path(__file__).parent.parent.parent))
    from dashboard.drafter import schema as designer_schema

    read = load_space(space)
    planner = Planner(read, folder / "cache", lambda line: None)
    plan = make_plan(planner)
    baseline = next(variant for variant in plan.variants if variant.name == BASELINE)
    task = planner.costs.prepare(baseline.spec)
    events = list(train([Member(baseline.spec, 0)], task, torch.device("cpu")))
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


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
