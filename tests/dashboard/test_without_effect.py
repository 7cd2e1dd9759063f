"""Settings without effect are reported with the same sentences by `ablate validate`, `ablate plan` and the designer."""

from __future__ import annotations

from pathlib import Path

import pytest

from ablate.planning.forecast import Forecast
from ablate.planning.planner import Planner, make_plan
from ablate.planning.points import check_points
from ablate.render.terminal.plan import plan_json, validate_json
from ablate.spec.reading import load_space
from dashboard.drafter import check

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
