"""README and the documentation hold: blocks run, commands exist, spaces are valid, links lead somewhere."""

from __future__ import annotations

import functools
import json
import os
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from cli_runs import quick_workers, wait_for
from forked_command import ForkedCommand
from ruamel.yaml import YAML
from run_pages import run_page

from ablate.analysis.findings import read_findings
from ablate.cli.app import COMMAND_NAMES, app
from ablate.plugins import FAMILIES
from ablate.spec.design import DESIGNS
from ablate.spec.named import write_space
from ablate.spec.reading import load_space
from ablate.store import open_store
from docs.reference import commands_page, kinds_page, space_page
from docs.snippets import Block, blocks

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
PAGES = [README, *sorted((ROOT / "docs").rglob("*.md"))]
TEXTS = {page.relative_to(ROOT).as_posix(): page.read_text(encoding="utf-8") for page in PAGES}


def steps(page: str) -> list[list[str]]:
    """What `run_pages.py` does for a page."""
    found: list[list[str]] = []
    for block in blocks(TEXTS[page]):
        if block.title:
            found.append(["file", block.title, block.text])
        elif block.language == "python":
            found.append(["python", page, block.text])
        elif block.language == "console":
            found.extend(["command", page, command] for command in block.commands() if command.startswith("ablate "))
    return found if any(what != "file" for what, _, _ in found) else []


RUNNABLE = [page for page in TEXTS if steps(page)]


@pytest.mark.parametrize("page", RUNNABLE)
def test_the_blocks_of_a_page_run(page: str, tmp_path: Path, cache: Path) -> None:
    """In a fork of this process, which has imported torch and the engine. That takes longer than most pages."""
    environment = os.environ | {"ABLATE_CACHE": str(cache), "MPLBACKEND": "agg"}
    done = wait_for(ForkedCommand([page], tmp_path, environment, quick_workers, run=lambda: run_page(steps(page))))
    assert done.code == 0, (done.out + done.err)[-4000:]


def written(page: str) -> Iterator[str]:
    """Every call of `ablate` on a page, in blocks and in sentences."""
    for block in blocks(TEXTS[page]):
        yield from (command for command in block.commands() if command.startswith("ablate "))
    yield from re.findall(r"(?<!`)`(ablate [a-z][^`\n]*)`(?!`)", TEXTS[page])


@pytest.mark.parametrize("page", [page for page in TEXTS if any(written(page))])
def test_the_commands_of_a_page_exist(page: str) -> None:
    for call in written(page):
        name, *arguments = shlex.split(call.partition(" | ")[0].partition(" > ")[0].replace(" ...", ""))[1:]
        if name == "COMMAND":
            continue
        assert name in COMMAND_NAMES, call
        given = {argument.partition("=")[0] for argument in arguments if argument.startswith("--")}
        assert given <= options()[name], call


@functools.cache
def options() -> dict[str, set[str]]:
    """The options that each command takes."""
    group: Any = typer.main.get_command(app)
    return {
        name: {"--help"}.union(*((*one.opts, *one.secondary_opts) for one in command.params))
        for name, command in group.commands.items()
    }


def spaces(page: str) -> Iterator[tuple[str, str]]:
    """Every space of a page and every part of one, laid over the page's first space or that of README."""
    reader = YAML(typ="safe")
    whole = [block for name in (page, "README.md") for block in blocks(TEXTS[name]) if is_space(block)]
    for block in blocks(TEXTS[page]):
        if is_space(block):
            yield block.title, block.text
        elif block.language == "yaml" and not block.title:
            yield "part.yaml", json.dumps(reader.load(whole[0].text) | reader.load(block.text))


def is_space(block: Block) -> bool:
    return block.language == "yaml" and "switches:" in block.text and bool(block.title)


@pytest.mark.parametrize("page", [page for page in TEXTS if any(spaces(page))])
def test_the_spaces_of_a_page_are_valid(page: str, tmp_path: Path) -> None:
    own_kinds = {name for block in blocks(TEXTS[page]) if block.title.endswith(".py") for name in kinds_in(block)}
    for name, text in spaces(page):
        if any(kind in text for kind in own_kinds):
            continue  # needs its plugin: the test that runs the page reads it
        if text.startswith("extends: gpt2.yaml"):
            continue  # a command writes that file: tests/documentation/test_knockout_page.py runs it
        file = tmp_path / name
        file.write_text(text, encoding="utf-8")
        assert load_space(file).question


def kinds_in(block: Block) -> list[str]:
    return re.findall(r'kind: Literal\["(\w+)"\]', block.text)


@pytest.mark.parametrize("page", TEXTS)
def test_local_links_lead_somewhere(page: str) -> None:
    for link in re.findall(r"\]\(((?!https?:|mailto:)[^)#\s]+)(?:#[^)]*)?\)", TEXTS[page]):
        target = (ROOT / page).parent / link
        assert target.exists(), f"{link}: a page that only the site has is a dead link on GitHub"


@pytest.mark.parametrize("page", TEXTS)
def test_make_targets_exist(page: str) -> None:
    targets = set(re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    calls = [command for block in blocks(TEXTS[page]) for command in block.commands() if command.startswith("make ")]
    calls += re.findall(r"`(make [a-z ]+)`", TEXTS[page])
    assert {target for call in calls for target in call.split()[1:]} <= targets


def test_every_page_is_in_the_navigation() -> None:
    navigation = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:")[2]
    for page in TEXTS:
        name = page.removeprefix("docs/")
        if page != "README.md" and not name.startswith("decisions/"):
            assert re.search(rf"[-:] {name}\b", navigation), page


def test_every_decision_is_listed() -> None:
    listed = re.findall(r"\]\((\d{4}-[\w-]+\.md)\)", TEXTS["docs/decisions/index.md"])
    assert listed == sorted(file.name for file in (ROOT / "docs" / "decisions").glob("0*.md"))


def test_the_table_of_designs_is_complete() -> None:
    table = TEXTS["docs/concepts/designs.md"].partition("| `design.kind` |")[2].partition("\n\n")[0]
    assert set(re.findall(r"^\| `(\w+)`", table, re.MULTILINE)) == set(DESIGNS.members())


def test_the_glossary_is_sorted_and_has_each_term_once() -> None:
    terms = re.findall(r"^\| \*\*([^*]+)\*\*", TEXTS["docs/glossary.md"], re.MULTILINE)
    assert len(terms) > 40
    assert terms == sorted(set(terms), key=str.lower)


def test_the_reference_names_every_command_and_option() -> None:
    page = commands_page()
    assert set(re.findall(r"^### ablate ([\w-]+)", page, re.MULTILINE)) == set(COMMAND_NAMES)
    study = page.partition("### ablate study\n")[2].partition("\n### ")[0]
    assert re.search(r"^\| `--pack N\|auto` \| auto \| Maximum number of trials", study, re.MULTILINE)
    assert re.search(r"^\| `SPACE` \| required \|", study, re.MULTILINE)


def test_the_reference_of_the_space_gives_type_default_and_meaning() -> None:
    page = space_page()
    model = page.partition("## ModelSpec\n")[2].partition("\n## ")[0]
    assert re.search(r"^\| `depth` \| integer ≥ 1, ≤ \d+ \| required \| Number of blocks", model, re.MULTILINE)
    assert re.search(r"^\| `tied_head` \| boolean \| `true` \|", model, re.MULTILINE)
    assert not re.search(r"\| *\|$", page, re.MULTILINE), "a key has no description"


def test_the_reference_lists_every_kind_under_its_family() -> None:
    page = kinds_page()
    for name, family in FAMILIES.items():
        (section,) = re.findall(rf"^## \w* ?{name}\n(.*?)(?=^## )", page, re.MULTILINE | re.DOTALL | re.IGNORECASE)
        assert re.findall(r"^### `([\w:]+)`", section, re.MULTILINE) == list(family.members())


def test_every_family_has_a_page_that_shows_how_to_write_a_kind() -> None:
    listed = re.findall(r"^\| `(\w+)` \|", TEXTS["docs/how-to/own-kind.md"], re.MULTILINE)
    assert sorted(listed) == sorted(FAMILIES)


def test_packages_bring_kinds_by_the_entry_points_that_the_page_names() -> None:
    """How one is loaded: tests/cli/test_check.py."""
    named = re.findall(r'^\[project.entry-points."ablate\.(\w+)"\]$', TEXTS["docs/how-to/own-task.md"], re.MULTILINE)
    assert named
    assert set(named) <= {name for name, family in FAMILIES.items() if family.entry_points == f"ablate.{name}"}


def test_my_question_is_one_file_everywhere(tmp_path: Path) -> None:
    text = write_space("my_question", tmp_path).read_text(encoding="utf-8")
    shown = {page: block.text for page in TEXTS for block in blocks(TEXTS[page]) if block.title == "my_question.yaml"}
    assert {"README.md", "docs/concepts/spaces.md"} <= shown.keys()
    assert {page: one.strip() for page, one in shown.items()} == dict.fromkeys(shown, text.strip())


def test_verdicts_with_twice_the_steps_and_other_rates_are_those_of_the_kept_studies(tmp_path: Path) -> None:
    """The table of the results, and the sentence of README on it."""
    table = TEXTS["docs/results.md"].partition("| | the study | twice the steps |")[2].partition("\n\n")[0]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()[2:]]
    shown = {row[0]: row[1:] for row in rows if not row[0].startswith("claim")}
    words = []
    with open_store(f"{tmp_path}/kept.db", create=True) as store:
        for name in ("simplify_block.study", "twice_the_steps", "half_the_rates", "twice_the_rates"):
            store.import_study(ROOT / "studies" / "simplify_block" / f"{name}.zip")
            study = "simplify_block" if name.endswith(".study") else f"simplify_block_{name}"
            report = read_findings(store, study).report
            words.append({row.name: str(row.verdict.word) for row in report.variants if row.verdict is not None})
    assert shown == {name: [column[name] for column in words] for name in words[0]}
    study, steps, half, rates = words
    assert half == study
    assert {name for name in study if steps[name] != study[name]} == {"sas"}
    assert {name: rates[name] for name in study if rates[name] != study[name]} == {
        "sas": "worse",
        "sas_p": "worse",
        "norm=none": "needed",
    }
    assert (
        "With half of every learning rate all verdicts stay. With twice the steps SAS, too, is undecided; with twice "
        "every rate SAS and SAS-P are worse, and the normalisation must stay."
    ) in " ".join(TEXTS["README.md"].split())


def test_what_the_template_suggests_is_valid(tmp_path: Path) -> None:
    file = write_space("question", tmp_path)
    text = file.read_text(encoding="utf-8").replace("# tune:", "tune:").replace("# match:", "match:")
    file.write_text(text, encoding="utf-8")
    space = load_space(file)
    assert space.tune is not None
    assert space.tune.seeds * len(list(space.tune.combinations())) == 3 * space.design.fixed_seeds()
    assert space.match.equal == "flops"
