"""Spaces with the user's trainer: what is refused, what a trial's key holds, what has no model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from own_trainers import SCRIPT, space, trainer, write_script
from pydantic import ValidationError

from ablate.errors import SpaceError
from ablate.spec.paths import assign
from ablate.spec.sentences import describe
from ablate.spec.space import SpaceSpec, TrainerSpace
from ablate.spec.trainer import ParameterSpec, TrainerSpec
from ablate.spec.trainer_variant import TrainerVariant, read_variant

COMMAND = ["{python}", "train.py", "{seed}"]
GRID = {"kind": "grid", "seeds": 1}


def made(**changes: Any) -> SpaceSpec:
    plain = space()
    for path, value in changes.items():
        assign(plain, path.replace("__", "."), value)
    return SpaceSpec.model_validate(plain)


@pytest.mark.parametrize(
    ("changes", "path", "rule"),
    [
        ({"trainer__command": []}, "trainer.command", "the command names no program"),
        ({"trainer__command": None}, "trainer", "a trainer is either a `command` or a `function`. Write `command:"),
        ({"trainer__function": "a:b"}, "trainer", "a trainer is either a `command` or a `function`"),
        ({"trainer": {"function": "train.py", "parameters": {"x": 1}}}, "trainer.function", "its module, a colon and"),
        ({"trainer": {"function": "train:run", "parameters": {}}}, "trainer.parameters", "at least one entry is"),
        (
            {"trainer__command": [*trainer()["command"], "{sed}"]},
            "trainer.command.9",
            "there is no parameter `sed`; got '{sed}'. Did you mean `{seed}`?",
        ),
        (
            {"trainer__command": trainer()["command"][:-4]},
            "trainer.command",
            "no argument has `{seed}`, so that all seeds would train the same",
        ),
        ({"trainer__parameters__more": 1}, "trainer.parameters.more", "no argument has `{more}`, so that it would"),
        ({"trainer__parameters__seed": 1}, "trainer.parameters.seed", "`seed` has a meaning of its own"),
        ({"trainer__parameters__a-b": 1}, "trainer.parameters.a-b", "the name of a parameter is letters, digits"),
        (
            {"trainer__parameters__lr": {"default": 1.0, "max": 0.5}},
            "trainer.parameters.lr.default",
            "out of its bounds",
        ),
        ({"trainer__parameters__lr": None}, "trainer.parameters.lr", "a mapping of keys to values is expected"),
        ({"trainer__steps": "lr"}, "trainer.steps", "the steps are an integer parameter"),
        ({"trainer__steps": "stepss"}, "trainer.steps", "the trainer has no parameter `stepss`. Did you mean `steps`?"),
        ({"trainer__timeout": "soon"}, "trainer.timeout", "a timeout is a time, such as `30 min` or `2 h`"),
        ({"trainer__timeout": 0}, "trainer.timeout", "a timeout is a time"),
        ({"trainer__metrics": {"format": "log"}}, "trainer.metrics.line", "the format `log` needs `line`"),
        ({"trainer__metrics": {"format": "log", "line": "("}}, "trainer.metrics.line", "not a regular expression"),
        (
            {"trainer__metrics": {"format": "log", "line": "loss"}},
            "trainer.metrics.line",
            "the expression names no metric",
        ),
        ({"trainer__metrics": {"line": "(?P<a>.)"}}, "trainer.metrics.line", "`line` applies to the format `log` only"),
        (
            {"trainer__metrics": {"file": "{out}/x"}},
            "trainer.metrics.file",
            "there is no `{out}` for a file of metrics",
        ),
        ({"trainer__metrics": {"file": "out/x"}}, "trainer.metrics.file", "all trials would write this file"),
        ({"trainer__excluded": [{"when": {"rate": 1}}]}, "trainer.excluded.0.when.rate", "has no parameter `rate`"),
        ({"switches__rate__high": {"lrr": 1.0}}, "switches.rate.high.lrr", "no parameter `lrr`. Did you mean `lr`?"),
        (
            {"switches__rate__high": {"lr": "fast"}},
            "switches.rate.high.lr",
            "its default is 0.1, so that it is a number",
        ),
        (
            {"switches__rate__high": {"steps": 1.5}},
            "switches.rate.high.steps",
            "its default is 3, so that it is an integer",
        ),
        (
            {"trainer__parameters__lr": {"default": 0.1, "max": 0.2}},
            "switches.rate.high.lr",
            "it is out of its bounds; got 0.3. The bounds are none to 0.2.",
        ),
        (
            {
                "trainer__parameters__does": {"default": "train", "choices": ["train", "wait"]},
                "switches__rate__high": {"does": "sleep"},
            },
            "switches.rate.high.does",
            "it is one of train, wait",
        ),
        ({"switches__rate__high": {"steps": True}}, "switches.rate.high.steps", "so that it is an integer"),
        ({"tune": {"lrr": [0.1, 0.2]}}, "tune.lrr.0", "the trainer has no parameter `lrr`"),
        ({"model": {"depth": 1}}, "model", "a space with a `trainer` has no `model`"),
        ({"training": {"steps": 1}}, "training", "a space with a `trainer` has no `training`"),
        ({"budgets": [1, 2]}, "budgets", "a space with a `trainer` has no `budgets`"),
        ({"timing": True}, "timing", "a space with a `trainer` has no `timing`"),
        ({"objective__reach": 1.9}, "objective.reach", "read from curves of models that ablate builds"),
        ({"match": "flops"}, "match", "equal flops are known of models that ablate builds"),
        ({"resources": {"shard": True, "gpus": 2}}, "resources.shard", "dividing a model among GPUs needs models that"),
        ({"resources": {"checkpoint_every": 5}}, "resources.checkpoint_every", "writes into `{checkpoint}` itself"),
        ({"objective__metric": "test_loss"}, "objective.metric", "a test metric cannot be an objective"),
    ],
)
def test_what_is_refused(changes: dict[str, Any], path: str, rule: str) -> None:
    with pytest.raises(ValidationError) as refused:
        made(**changes)
    problems = [(".".join(map(str, loc)), said) for loc, said in describe(refused.value)]
    assert any(path == where and rule in said for where, said in problems), problems


def test_a_timeout_is_in_seconds_whatever_its_unit() -> None:
    written = {"90 s": 90, "1.5 min": 90, "2h": 7200, "1 day": 86400, "2 days": 172800}
    read = {text: made(trainer__timeout=text) for text in written}
    assert {text: one.trainer.timeout for text, one in read.items() if isinstance(one, TrainerSpace)} == written


def test_settings_set_parameters_of_their_types() -> None:
    given = made(
        trainer__parameters__does={"default": "train", "choices": ["train", "wait"]},
        switches={"a": {"x": {}, "y": {"lr": 1, "does": "wait"}}, "b": {"x": {}, "y": {"lr": 0.5}}},
    )
    assert isinstance(given, TrainerSpace)
    spec = given.resolve({"a": "y"})
    assert isinstance(spec, TrainerVariant)
    assert spec.parameters == {"does": "wait", "lr": 1.0, "steps": 3}
    assert isinstance(spec.parameters["lr"], float)
    assert given.resolve({"a": "y", "b": "y"}).model_dump(mode="json")["lr"] == 0.5  # the path is the name
    assert spec.training.steps == 3
    unknown = TrainerSpec.model_validate(trainer(steps=None))
    assert TrainerVariant(trainer=unknown, parameters={}).training.steps == 0
    with pytest.raises(SpaceError, match="it is one of train, wait"):
        given.resolve({}, {"does": "sleep"})


@pytest.mark.parametrize("low", [None, 1])
@pytest.mark.parametrize("high", [None, 3])
def test_a_parameter_has_the_values_between_its_bounds_and_these(low: int | None, high: int | None) -> None:
    parameter = ParameterSpec(default=2, min=low, max=high)
    for value in range(5):
        if (low is None or low <= value) and (high is None or value <= high):
            assert parameter.check(value) == value
        else:
            with pytest.raises(ValidationError, match="out of its bounds"):
                parameter.check(value)


def test_a_variant_and_a_space_survive_json() -> None:
    given = made(switches__rate__replaces="the rate by a larger one")
    spec = given.resolve({"rate": "high"})
    assert read_variant(spec.model_dump_json()) == spec
    assert read_variant(spec.model_dump_json()).content_hash() == spec.content_hash()
    again = SpaceSpec.model_validate(given.model_dump(mode="json"))
    assert again.model_dump() == given.model_dump()
    assert again.content_hash() == given.content_hash()


def test_excluded_combinations_are_left_out() -> None:
    excluded = [{"when": {"lr": [0.3, 0.5], "steps": 6}, "because": "it takes too long"}]
    given = made(trainer__excluded=excluded, switches__steps={"few": {}, "many": {"steps": 6}}, design=GRID)
    settings = {"rate": "high", "steps": "many"}
    error = given.composer.error_with({}, settings)
    assert error is not None
    assert given.composer.reason(settings, error) == (
        "rate=high, steps=many: `lr`: lr=0.3, steps=6 is excluded: it takes too long. "
        "Change `trainer.excluded` to train it."
    )
    assert given.composer.error_with({}, {"steps": "many"}) is None


def key(**changes: Any) -> str:
    return made(**changes).resolve({"rate": "high"}).trial_key("", 0)


@pytest.mark.usefixtures("folder")
def test_the_key_holds_what_gives_the_numbers(folder: Path) -> None:
    write_script(folder)
    before = key()
    same: list[dict[str, Any]] = [
        {"trainer__timeout": "1 h"},
        {"trainer__parameters__lr": {"default": 0.1, "min": 0.0}},
        {"trainer__excluded": [{"when": {"lr": 9.0}}]},
        {"trainer__sources": ["train.py"]},
        {"trainer__metrics": {"format": "jsonl"}},
        {"trainer__steps": None},
    ]
    assert {key(**changes) for changes in same} == {before}
    other: list[dict[str, Any]] = [
        {"trainer__command": [*trainer()["command"], "--fast"]},
        {"trainer__parameters__does": "wait"},
        {"switches__rate__high": {"lr": 0.25}},
        {"trainer__metrics": {"rename": {"val_loss": "val_x"}}, "objective__metric": "val_x"},
    ]
    assert len({before, *(key(**changes) for changes in other)}) == 5
    write_script(folder, SCRIPT + "\n# a comment\n")
    assert key() == before
    write_script(folder, SCRIPT + "\nprint('bye')\n")
    assert key() != before
    write_script(folder)
    assert key() == before


@pytest.mark.usefixtures("folder")
def test_declared_sources_are_files_folders_patterns_and_imports(folder: Path) -> None:
    hidden = ("data/.hidden", "data/.git/b.txt", "data/__pycache__/c.txt")
    for name in ("data/a.txt", *hidden, "lib/__init__.py", "lib/model.py", "other.py"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text("x = 1")
    write_script(folder, "import lib.model")
    sources = made(trainer__sources=["train.py", "data", "oth*.py"]).resolve({}).declared_sources()
    assert sources is not None
    assert sorted(entry["file"] for entry in sources.code(folder).values()) == ["data/a.txt", "other.py", "train.py"]
    before = key()
    (folder / "lib" / "model.py").write_text("x = 2")
    assert key() != before
    for source in ("nothing", "a**", "[", "/nothing/*"):
        with pytest.raises(
            SpaceError, match=r"`trainer.sources`, .*: there is no such file; expected a file, a folder"
        ):
            key(trainer__sources=[source])


MODULES: dict[str, tuple[dict[str, str], dict[str, Any], set[str]]] = {
    "a_module": ({"train.py": "import near"}, {"command": ["-m", "train"]}, {"near"}),
    "a_module_of_a_package": (
        {"lab/train.py": "from . import model\nimport near"},
        {"command": ["-m", "lab.train"]},
        {"lab.model", "near"},
    ),
    "a_package": ({"lab/__main__.py": "from .model import a"}, {"command": ["-m", "lab"]}, {"lab.model"}),
    "a_launcher": ({"train.py": "import near"}, {"command": ["torchrun", "-m", "train"]}, {"near"}),
    "a_function": (
        {"lab/train.py": "from lab.model import a\nimport near"},
        {"function": "lab.train:main"},
        {"lab.model", "near"},
    ),
    "a_package_above": (
        {"lab/runs/train.py": "from ..model import a"},
        {"function": "lab.runs.train:main"},
        {"lab.model"},
    ),
    "below_src": (
        {"src/lab/train.py": "from . import model"},
        {"function": "lab.train:main"},
        {"lab.model"},
    ),
    "a_script_of_another_folder": (
        {"scripts/train.py": "import lab.model, near"},
        {"command": ["scripts/train.py"]},
        {"lab.model", "near"},
    ),
    "an_option_with_a_file": ({"train.py": "", "own.yaml": "a"}, {"command": ["train.py", "--set=own.yaml"]}, set()),
}
"""Files and a trainer to the modules beside it that count; `near` and `lab.model` exist always."""


@pytest.mark.parametrize(("files", "given", "wanted"), MODULES.values(), ids=MODULES)
def test_the_code_that_a_trainer_runs_counts_however_it_is_named(
    tmp_path: Path, files: dict[str, str], given: dict[str, Any], wanted: set[str]
) -> None:
    below = "src/lab/model.py" if "src/lab/train.py" in files else "lab/model.py"
    for name, text in {"near.py": "", below: "", **files}.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    if "command" in given:
        given = {"command": ["{python}", *given["command"], "--lr={lr}", "--seed={seed}"]}
    trainer = TrainerSpec.model_validate({**given, "parameters": {"lr": 0.1}})
    code = trainer.code(tmp_path)
    assert {name for entry in code.values() for name in entry["modules"]} == {"", *wanted}
    assert {path.name for path in trainer.counted_files(tmp_path)} >= {Path(name).name for name in files}
    (tmp_path / next(reversed(files))).write_text("x = 2")
    assert trainer.code(tmp_path) != code


def test_a_package_comes_before_a_module_of_its_name_as_in_python(tmp_path: Path) -> None:
    files = {"lab.py": "import near", "near.py": "", "lab/__main__.py": "from . import model", "lab/model.py": ""}
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    command = {"command": ["{python}", "-m", "lab", "--lr={lr}", "--seed={seed}"], "parameters": {"lr": 0.1}}
    trainer = TrainerSpec.model_validate(command)
    assert [*trainer.code(tmp_path)] == ["source lab.py"], "without `__init__.py` the module comes first"
    (tmp_path / "lab" / "__init__.py").write_text("import near\n")
    (entry,) = trainer.code(tmp_path).values()
    assert entry["file"] == "lab/__main__.py"
    before = trainer.code(tmp_path)
    (tmp_path / "lab" / "__init__.py").write_text("x = 1\n")
    assert trainer.code(tmp_path) != before, "Python runs it too"


def test_what_is_missing_is_said_before_anything_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    lost = made(trainer__command=["no-such-program", *trainer()["command"][1:]])
    assert (
        lost.task.missing() == "There is no program `no-such-program`; `{python}` is the interpreter that runs ablate."
    )
    function = {"function": "nowhere:train", "parameters": {"lr": 0.1}}
    assert "there is no such module" in str(made(trainer=function).task.missing())


def test_what_needs_a_model_says_so() -> None:
    given = made()
    for ask in (
        lambda: given.model.width,
        lambda: given.resolve({}).model.block,
        lambda: given.task.length,
        given.resolve({}).require_model,
    ):
        with pytest.raises(
            SpaceError, match="needs a model and data that ablate knows, and this study runs a trainer of"
        ):
            ask()


@pytest.mark.parametrize("argument", ["conf/{size}.yaml", "--config=conf/{size}.yaml", "{file}", "--config={file}"])
def test_files_that_values_of_parameters_name_count(folder: Path, argument: str) -> None:
    write_script(folder)
    (folder / "conf").mkdir()
    for size in ("small", "large"):
        (folder / "conf" / f"{size}.yaml").write_text("width: 1")
    name, small, large = "size", "small", "large"
    if "{file}" in argument:
        name, small, large = "file", "conf/small.yaml", "conf/large.yaml"
    plain = {
        "trainer": {"command": ["{python}", "train.py", argument, "--seed={seed}"], "parameters": {name: small}},
        "switches": {"of": {"small": {}, "large": {name: large}}},
    }
    given = SpaceSpec.model_validate({**space(), **plain})

    def keys() -> list[str]:
        return [given.resolve({"of": size}).trial_key("", 0) for size in ("small", "large")]

    before = keys()
    (folder / "conf" / "large.yaml").write_text("width: 2")
    assert keys()[0] == before[0]
    assert keys()[1] != before[1]


@pytest.mark.parametrize(
    ("name", "before", "after"),
    [
        ("data.jsonl", '"a text"\n"b"\n', '"another text"\n"b"\n'),
        ("data.jsonl", '"a text"\n{"b": 1}\n', '"another text"\n{"b": 1}\n'),
        ("prompt.md", "# You are helpful\n", "# You are brief\n"),
        ("data.csv", "1, 2  # a\n", "1, 2  # b\n"),
    ],
)
def test_data_that_reads_as_python_counts_whole(folder: Path, name: str, before: str, after: str) -> None:
    write_script(folder)
    keys = []
    for text in (before, after):
        (folder / name).write_text(text)
        keys.append(key(trainer__sources=["train.py", name]))
    assert keys[0] != keys[1]


def test_large_data_counts_without_being_read_into_memory(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_script(folder)
    (folder / "data.bin").write_bytes(bytes(100))
    small = key(trainer__sources=["train.py", "data.bin"])
    monkeypatch.setattr("ablate.spec.source_code._LARGE", 99)
    assert key(trainer__sources=["train.py", "data.bin"]) == small
    (folder / "data.bin").write_bytes(bytes(101))
    assert key(trainer__sources=["train.py", "data.bin"]) != small
