"""README's code runs as it is printed, and its table names the commands that exist."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from ablate.commands import PANEL_OF
from ablate.spec.design import DESIGNS
from ablate.spec.reading import load_space
from ablate.terminal.template import write_template

README = (Path(__file__).parent.parent / "README.md").read_text(encoding="utf-8")


def block(language: str, containing: str) -> str:
    found = [code for code in re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL) if containing in code]
    assert len(found) == 1, f"README has {len(found)} {language} blocks with {containing!r}"
    return found[0]


def run(arguments: list[str], folder: Path, cache: Path) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(folder), "ABLATE_CACHE": str(cache)}
    command = [sys.executable, *arguments]
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=240, check=False
    )


def test_the_python_example_runs(tmp_path: Path, cache: Path) -> None:
    code = block("python", "ablate.load_space")
    assert len([line for line in code.splitlines() if line.strip()]) <= 10
    done = run(["-c", code], tmp_path, cache)
    assert done.returncode == 0, done.stderr
    variants, parameters = done.stdout.splitlines()
    assert variants == "11 variants, 33 trials"
    assert int(parameters) > 100_000


def test_the_mixer_example_is_listed_and_trains(tmp_path: Path, cache: Path) -> None:
    code = block("python", "my_mixer.py")
    assert len(code.splitlines()) <= 32
    (tmp_path / "my_mixer.py").write_text(code, encoding="utf-8")
    kinds = run(["-m", "ablate.cli", "kinds", "--plugin", "my_mixer.py"], tmp_path, cache)
    assert kinds.returncode == 0, kinds.stderr
    assert "running_mean" in kinds.stdout
    check = run(["-m", "ablate.cli", "check", "running_mean", "--plugin", "my_mixer.py"], tmp_path, cache)
    assert check.returncode == 0, check.stdout + check.stderr
    space = block("yaml", "my_question").replace("removed: {block.skips.mixer: 0}", "mean: {block.mixer: running_mean}")
    space = space.replace("steps: 200", "steps: 2").replace("seeds: 3", "seeds: 1").replace("depth: 4", "depth: 1")
    (tmp_path / "space.yaml").write_text(space, encoding="utf-8")
    study = run(["-m", "ablate.cli", "study", "space.yaml", "--plugin", "my_mixer.py", "--json"], tmp_path, cache)
    assert study.returncode == 0, study.stderr
    assert '"trained": 3' in study.stdout.splitlines()[-1]


def test_the_task_example_is_listed_and_trained_on(tmp_path: Path, cache: Path) -> None:
    code = block("python", "my_task.py")
    assert len(code.splitlines()) <= 30
    (tmp_path / "my_task.py").write_text(code, encoding="utf-8")
    kinds = run(["-m", "ablate.cli", "kinds", "--plugin", "my_task.py"], tmp_path, cache)
    assert kinds.returncode == 0, kinds.stderr
    assert "Say a random text backwards" in kinds.stdout
    space = re.sub(r"task: {.*}", "task: {kind: reverse, span: 12}", block("yaml", "my_question"))
    space = space.replace("steps: 200", "steps: 2").replace("seeds: 3", "seeds: 1").replace("depth: 4", "depth: 1")
    (tmp_path / "space.yaml").write_text(space, encoding="utf-8")
    data = run(["-m", "ablate.cli", "data", "space.yaml", "--plugin", "my_task.py", "--json"], tmp_path, cache)
    assert data.returncode == 0, data.stderr
    shown = json.loads(data.stdout)
    assert shown["baselines"]["guess"]["val_accuracy"] == 0.1
    said = shown["samples"][0].split()
    digits = [word for word in said if word.isdigit() and len(word) == 1][:12]
    answers = re.findall(r"then (\d)", shown["samples"][0])
    assert answers == digits[::-1]
    study = run(["-m", "ablate.cli", "study", "space.yaml", "--plugin", "my_task.py", "--json"], tmp_path, cache)
    assert study.returncode == 0, study.stderr
    assert '"trained": 3' in study.stdout.splitlines()[-1]


def test_a_package_brings_its_task_by_an_entry_point(tmp_path: Path, cache: Path) -> None:
    (tmp_path / "my_task.py").write_text(block("python", "my_task.py"), encoding="utf-8")
    about = tmp_path / "reversing-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: reversing\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[ablate.tasks]\nreverse = my_task:ReverseSpec\n")
    code = "import ablate.cli as c; c.app(['kinds'])"
    found = run(["-c", f"import sys; sys.path.insert(0, {str(tmp_path)!r}); {code}"], tmp_path, cache)
    assert "Say a random text backwards" in found.stdout, found.stderr


def test_the_space_in_the_readme_is_valid(tmp_path: Path) -> None:
    file = tmp_path / "space.yaml"
    file.write_text(block("yaml", "my_question"), encoding="utf-8")
    assert load_space(file).name == "my_question"


def test_the_claims_in_the_readme_go_with_its_space(tmp_path: Path) -> None:
    file = tmp_path / "space.yaml"
    file.write_text(block("yaml", "my_question") + block("yaml", "claims:"), encoding="utf-8")
    assert [claim.id for claim in load_space(file).claims] == ["skip-is-needed", "order", "size"]


def test_the_fair_comparison_in_the_readme_goes_with_its_space(tmp_path: Path) -> None:
    file = tmp_path / "space.yaml"
    file.write_text(block("yaml", "my_question") + block("yaml", "tune:"), encoding="utf-8")
    space = load_space(file)
    assert space.tune is not None
    assert (len(list(space.tune.combinations())), space.match.equal) == (3, "flops")


def test_what_the_template_suggests_is_valid(tmp_path: Path) -> None:
    file = write_template("question", tmp_path)
    text = file.read_text(encoding="utf-8").replace("# tune:", "tune:").replace("# match:", "match:")
    file.write_text(text, encoding="utf-8")
    space = load_space(file)
    assert space.tune is not None
    assert space.tune.seeds * len(list(space.tune.combinations())) == 3 * space.design.fixed_seeds()
    assert space.match.equal == "flops"


def test_the_table_of_commands_is_complete() -> None:
    named = set(re.findall(r"^\| `ablate (\w+)", README, re.MULTILINE))
    assert named == set(PANEL_OF)


@pytest.mark.parametrize("link", sorted(set(re.findall(r"\]\(((?!https?:)[^)#]+)\)", README))))
def test_local_links_lead_somewhere(link: str) -> None:
    assert (Path(__file__).parent.parent / link).exists()


def test_the_table_of_designs_is_complete() -> None:
    table = README.partition("| `design.kind` |")[2].partition("\n\n")[0]
    assert set(re.findall(r"^\| `(\w+)`", table, re.MULTILINE)) == set(DESIGNS.members())
