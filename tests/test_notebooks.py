"""Notebooks run from their first cell to their last, and a study shows itself as they say."""

from __future__ import annotations

import ast
import json
import re
import sys
from pathlib import Path

import pandas as pd
import pytest
from cli_runs import Workplace, quick_workers, wait_for

import ablate
import ablate.analysis
import ablate.store
from ablate.errors import AblateError, MissingPackageError, NotFoundError

NOTEBOOKS = sorted((Path(__file__).parent.parent / "docs").glob("*.ipynb"))

SAYS = {
    "first_study": ("3 variants, 9 trials", "<table", "<svg", "StudyResult(study='copy_text', trials=9, trained=9"),
    "own_kind": ("running_mean keeps all 14 rules", "{'mixer': 'mean'} ", "mean of the past", "<table"),
}
"""What the output of each notebook contains."""

SHOWN = """
def _show(value):
    for method in ("_repr_html_", "_repr_svg_", "__repr__"):
        if (shown := getattr(value, method, lambda: None)()) is not None:
            print(shown)
            return
"""


def as_program(notebook: Path) -> str:
    """The code cells in turn, with fewer steps; the last expression of each is shown as Jupyter shows it."""
    text = notebook.read_text(encoding="utf-8")
    assert text.count("{steps: 250,") == 1
    cells = json.loads(text.replace("{steps: 250,", "{steps: 20,"))["cells"]
    lines = [SHOWN]
    for source in ("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"):
        tree = ast.parse(source)
        if isinstance(last := tree.body[-1], ast.Expr):
            tree.body[-1] = ast.parse(f"_show({ast.unparse(last.value)})").body[0]
        lines.append(ast.unparse(tree))
    return "\n".join(lines)


def test_every_notebook_is_tested() -> None:
    assert {notebook.stem for notebook in NOTEBOOKS} == set(SAYS)


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda notebook: notebook.stem)
def test_a_notebook_runs(notebook: Path, tmp_path: Path, cache: Path) -> None:
    program = compile(as_program(notebook), str(notebook), "exec")
    done = wait_for(Workplace(tmp_path, cache).fork(run=lambda: exec(program, {"__name__": "__main__"})))
    assert done.code == 0, done.err
    for text in SAYS[notebook.stem]:
        assert text in done.out


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory, cache: Path) -> ablate.Study:
    place = Workplace(tmp_path_factory.mktemp("study"), cache)
    file = place.folder / place.space()
    file.write_text(file.read_text().replace("file:text", f"file:{place.folder / 'text'}"))
    with quick_workers():
        return ablate.run(file, store=place.store, device="cpu", workers=1, cache=cache)


def test_a_study_gives_its_table(study: ablate.Study) -> None:
    table = study.table()
    assert isinstance(table, pd.DataFrame)
    assert list(table["variant"]) == ["baseline", "values=identity", "norm=none"]
    assert list(table["mean"]) == [row.metrics["val_loss"].mean for row in study.report.variants]
    assert [row["variant"] for row in study.rows()] == list(table["variant"])


def test_a_study_gives_its_curves(study: ablate.Study) -> None:
    ends = study.curves().groupby(["variant", "seed"]).last()
    assert len(ends) == 6
    assert set(ends["step"]) == {6}
    means = ends["val_loss"].groupby("variant").mean()
    for row in study.report.variants:
        assert means[row.name] == pytest.approx(row.metrics["val_loss"].mean)


def test_a_study_shows_itself(study: ablate.Study) -> None:
    assert repr(study) == study.answer
    page = study._repr_html_()
    assert page is not None
    assert page.count("<table") == 2, "the answer and the ablation table"
    assert '<td class="text" data-title="variant">norm=<wbr>none</td>' in page
    figure = study.plot()
    assert figure._repr_svg_().startswith("<svg")
    assert study.figures()[0] == "forest"


def test_a_figure_that_there_is_not_is_refused(study: ablate.Study) -> None:
    with pytest.raises(AblateError, match=r"this study has no such figure; expected one of forest, .*; got 'pie'"):
        study.plot("pie")


def test_a_study_is_read_where_it_lies(study: ablate.Study) -> None:
    result = study.result
    assert result is not None
    assert (result.trained, result.failed) == (6, 0)
    again = ablate.Study("tiny", study._store)
    assert again.result is None
    assert again.answer == study.answer
    with pytest.raises(NotFoundError):
        _ = ablate.Study("none", study._store).answer


def test_without_pandas_rows_remain(study: ablate.Study, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    for look in (study.table, study.curves):
        with pytest.raises(MissingPackageError, match=r"needs pandas, .*'ablate-blocks\[notebook\]'"):
            look()
    assert len(study.rows()) == 3


@pytest.mark.parametrize("package", [ablate, ablate.analysis, ablate.store], ids=lambda package: package.__name__)
def test_a_notebook_completes_what_a_package_offers(package: object) -> None:
    assert set(package.__all__) <= set(dir(package))  # type: ignore[attr-defined]
    assert all(getattr(package, name) is not None for name in package.__all__)  # type: ignore[attr-defined]


PLUGIN = """
from ablate.tasks.memory import CopySpec
class {name}Spec(CopySpec):
    \"\"\"Copies.\"\"\"
    kind: __import__("typing").Literal["{kind}"] = "{kind}"
"""


@pytest.mark.parametrize("how", ["load_space", "plan", "run"])
def test_a_space_of_a_plugin_is_read(how: str, tmp_path: Path, cache: Path) -> None:
    """Each way has a kind of its own, because a kind that was once imported is known from then on."""
    kind = f"copied_by_{how}"
    (tmp_path / f"{how}.py").write_text(PLUGIN.format(name=how.title().replace("_", ""), kind=kind))
    place = Workplace(tmp_path, cache)
    file = tmp_path / place.space(steps=2, seeds=1)
    file.write_text(re.sub("(?m)^task: .*$", f"task: {{kind: {kind}, span: 4}}", file.read_text()))
    with pytest.raises(AblateError, match=kind):
        ablate.load_space(file)
    plugins = tmp_path / f"{how}.py"
    if how == "load_space":
        assert ablate.load_space(file, plugins=[plugins]).task.kind_name() == kind
    elif how == "plan":
        assert len(ablate.plan(file, cache=cache, plugins=str(plugins)).trials) == 3
    else:
        with quick_workers():
            done = ablate.run(file, store=place.store, device="cpu", workers=1, cache=cache, plugins=plugins).result
        assert done is not None
        assert done.trained == 3
