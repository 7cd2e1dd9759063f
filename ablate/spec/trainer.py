"""A space's `trainer`: the command or function of the user's that trains a trial, its parameters and its metrics.

A space with a `trainer` has neither `model`, `task` nor `training`; `ablate.spec.trainer_variant` stands for them.
"""

from __future__ import annotations

import difflib
import importlib.util
import itertools
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, JsonValue, StrictStr, ValidationError, model_validator
from pydantic_core import PydanticCustomError

from ablate.errors import SpaceError
from ablate.locations import files_matching
from ablate.spec.annotations import ShortFor, Spelling
from ablate.spec.base import Spec, below, refusal
from ablate.spec.source_code import file_code, read_modules, read_sources
from ablate.spec.training import TrainingSpec

Scalar = bool | int | float | str
"""The value of a parameter."""

PLACES: Mapping[str, str] = {
    "python": "the interpreter that runs ablate",
    "seed": "the seed of the trial",
    "folder": "an empty folder for the output of this attempt",
    "checkpoint": "a folder that is kept until the trial has finished",
    "config": "a JSON file with all parameters and `seed`",
    "log": "the file with all that the trainer prints",
}
"""What a command can be given besides its parameters, as `{name}`."""
_RESERVED = (*PLACES, "seeds", "grid", "block", "trainer", "removes", "replaces", "report")
_PLACEHOLDER = re.compile(r"(?<!\{)\{([A-Za-z_][A-Za-z0-9_]*)\}(?!\})")
_DURATION = re.compile(r"(\d+(?:\.\d+)?) ?(s|min|h|days?)")
_SECONDS = {"s": 1, "min": 60, "h": 3600, "day": 86400, "days": 86400}
_MOST_FILES = 10_000
_RUNS_A_MODULE = ("-m", "--module")
"""Options of Python and of launchers that a module follows."""
_NOT_SOURCE = ("__pycache__", "site-packages", "node_modules")

ParameterName = Annotated[
    str, Spelling(r"^[A-Za-z_][A-Za-z0-9_]*$", "the name of a parameter is letters, digits and `_`, no digit first")
]


def _duration(value: Any) -> Any:
    if isinstance(value, str) and (match := _DURATION.fullmatch(value.strip())):
        value = float(match[1]) * _SECONDS[match[2]]
    if isinstance(value, (int, float)) and not isinstance(value, bool) and value > 0:
        return float(value)
    rule = "a timeout is a time, such as `30 min` or `2 h`"
    raise PydanticCustomError("duration", "{rule}", {"rule": rule, "remedy": "A bare number counts seconds."})


def _pattern(text: str) -> str:
    try:
        named = re.compile(text).groupindex
    except re.error as error:
        rule = f"this is not a regular expression: {error}"
        raise PydanticCustomError(
            "pattern", "{rule}", {"rule": rule, "remedy": "Quote it with single quotes."}
        ) from None
    if not named:
        rule = "the expression names no metric"
        remedy = r"Write a named group for each: '^step (?P<step>\d+): val loss (?P<val_loss>\S+)'."
        raise PydanticCustomError("pattern", "{rule}", {"rule": rule, "remedy": remedy})
    return text


class _BareDefault(ShortFor):
    """Annotation of a parameter that also takes its default alone, true or false among them."""

    def _written_out(self, value: Any) -> Any:
        return {self.field: value} if isinstance(value, (bool, int, float, str)) else value


class ParameterSpec(Spec):
    """A parameter of a trainer. Its type is that of its default: true or false, an integer, a number or a text."""

    default: Scalar
    """The value where nothing sets another. Write `1.0`, not `1`, where fractions may follow."""
    choices: tuple[Scalar, ...] = ()
    """All values that it can have; any of its type unless set."""
    min: float | None = None
    """The smallest value."""
    max: float | None = None
    """The largest value."""

    @model_validator(mode="after")
    def _default_fits(self) -> Self:
        try:
            self.check(self.default)
        except ValidationError as error:
            raise below(("default",), error) from None
        return self

    def check(self, value: JsonValue) -> Scalar:
        """The value as this parameter has it: an integer becomes a float where fractions are allowed.

        Raises:
            ValidationError: It has another type, or is out of bounds.
        """
        wanted = type(self.default)
        if wanted is float and type(value) is int:
            value = float(value)
        if type(value) is not wanted or not isinstance(value, (bool, int, float, str)):
            words = {bool: "true or false", int: "an integer", float: "a number", str: "a text"}[wanted]
            rule = f"its default is {self.default!r}, so that it is {words}"
            raise refusal((), value, rule, "Change the value or the default.", kind="type")
        if self.choices and value not in self.choices:
            rule = f"it is one of {', '.join(map(str, self.choices))}"
            raise refusal((), value, rule, "Choose one of them, or add it to `choices`.", kind="choice")
        if not isinstance(value, (bool, str)) and (
            (self.min is not None and value < self.min) or (self.max is not None and value > self.max)
        ):
            low, high = (("" if end is None else f"{end:g}") for end in (self.min, self.max))
            remedy = f"The bounds are {low or 'none'} to {high or 'none'}."
            raise refusal((), value, "it is out of its bounds", remedy, kind="bound")
        return value


class ExcludedSpec(Spec):
    """A combination of parameters that is never trained."""

    when: dict[ParameterName, Scalar | tuple[Scalar, ...]] = Field(min_length=1)
    """Parameter to the value, or the list of values, that make the combination when all are met."""
    because: str = ""
    """The reason, which the list of excluded combinations shows."""

    def meets(self, values: Mapping[str, Scalar]) -> bool:
        """Whether a variant is such a combination."""
        return all(values[name] in (at if isinstance(at, tuple) else [at]) for name, at in self.when.items())


class MetricsSpec(Spec):
    """Where a trainer writes its metrics. They are read while it runs.

    A row has numbers by name: `step`, `train_loss`, and metrics, of which `val_loss` is drawn as the learning curve and
    watched by pruners. A metric has the value of the last row that holds it. A loss that is not finite ends the trial
    as diverged. `seconds` and `tokens` are known too; the others are kept by their names.
    """

    file: str = "{folder}/metrics.jsonl"
    """The file, with `{folder}`, `{checkpoint}` or `{log}`."""
    format: Literal["jsonl", "json", "csv", "log"] = "jsonl"
    """`jsonl`: an object on each line. `json`: one object, read at the end. `csv`: a header and a line for each row.
    `log`: lines that `line` finds. Names in objects within objects are joined by dots."""
    line: Annotated[str, AfterValidator(_pattern)] | None = None
    """Of the format `log`: a regular expression that is searched in each line; each named group is a number."""
    rows: str | None = None
    """Of the format `json`: the key of a list of rows in the object, such as `log_history` of `trainer_state.json`."""
    rename: dict[str, str] = Field(default_factory=dict)
    """Name in the file to the name here: `{eval_loss: val_loss}`."""

    @model_validator(mode="after")
    def _has_a_line(self) -> Self:
        if (self.format == "log") != (self.line is not None):
            rule = "the format `log` needs `line`" if self.line is None else "`line` applies to the format `log` only"
            remedy = r"Write `line: '^step (?P<step>\d+): val loss (?P<val_loss>\S+)'`, for example."
            raise refusal(("line",), self.line, rule, remedy if self.line is None else "Leave it out.")
        if self.rows is not None and self.format != "json":
            raise refusal(("rows",), self.rows, "`rows` applies to the format `json` only", "Leave it out.")
        if unknown := [name for name in _PLACEHOLDER.findall(self.file) if name not in ("folder", "checkpoint", "log")]:
            rule = f"there is no `{{{unknown[0]}}}` for a file of metrics"
            raise refusal(("file",), self.file, rule, "Use `{folder}`, `{checkpoint}` or `{log}`.")
        if not _PLACEHOLDER.search(self.file):
            rule = "all trials would write this file, and read what others wrote"
            remedy = "Let the command write into `{folder}`, and name the file there: `{folder}/metrics.jsonl`."
            raise refusal(("file",), self.file, rule, remedy)
        return self


class TrainerSpec(Spec):
    """A program or function of your own that trains one trial: the key `trainer` of a space, which then has no `model`,
    `task` and `training`."""

    command: tuple[StrictStr, ...] | None = None
    """The program and its arguments, run without a shell in the working folder of the study. An argument may hold
    `{parameter}`, `{seed}`, `{python}` (the interpreter that runs ablate), `{folder}` (empty, for this attempt's
    output), `{checkpoint}` (a folder that is kept until the trial has finished), `{config}` (a JSON file with all
    parameters and the seed) and `{log}` (the file with all that it prints). `{{name}}` is a plain `{name}`."""
    function: StrictStr | None = None
    """`MODULE:FUNCTION`, called in a process of its own with the parameters as keywords, and with `seed`, `folder`,
    `checkpoint` and `report` if it takes them. It returns or yields rows of metrics, or calls
    `report(step=..., val_loss=...)`."""
    parameters: dict[ParameterName, Annotated[ParameterSpec, _BareDefault("default")]] = Field(min_length=1)
    """What switches, the design and `tune` set, by name: a default, or `{default: ..., choices: [...]}`, or with `min`
    and `max`."""
    metrics: MetricsSpec = MetricsSpec()
    """Where the metrics are."""
    steps: Annotated[int, Field(ge=1)] | StrictStr | None = None
    """The step of the last row, or the parameter that is that number, for progress and pruners."""
    timeout: Annotated[float, BeforeValidator(_duration)] | None = Field(
        default=None,
        json_schema_extra={"anyOf": [{"type": "number"}, {"type": "string", "pattern": _DURATION.pattern}]},
    )
    """The longest time of one attempt, such as `30 min`: one that takes longer has failed. None unless set."""
    sources: tuple[StrictStr, ...] | None = None
    """Files, folders and patterns whose content decides the numbers, relative to the working folder: when one changes,
    trials are trained again. Python files count with the modules beside them that they import, without comments and
    docstrings. Default: the files and modules that `command` names, also by values of parameters, or the module of
    `function`."""
    excluded: tuple[ExcludedSpec, ...] = ()
    """Combinations of parameters that are left out."""

    @model_validator(mode="after")
    def _is_a_trainer(self) -> Self:
        if (self.command is None) == (self.function is None):
            rule = "a trainer is either a `command` or a `function`"
            remedy = 'Write `command: ["{python}", "train.py", "--seed", "{seed}"]`, or `function: module:train`.'
            raise refusal((), {}, rule, remedy)
        for name in self.parameters:
            if name in _RESERVED:
                raise refusal(("parameters", name), {}, f"`{name}` has a meaning of its own", "Rename the parameter.")
        if self.command is not None:
            self._check_command(self.command)
        elif not re.fullmatch(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*", self.function or ""):
            rule = "a function is written as its module, a colon and its name"
            raise refusal(("function",), self.function, rule, "Write `function: train:main` for `main` in train.py.")
        elif self.metrics != MetricsSpec(rename=self.metrics.rename):
            rule = "a function returns its metrics or reports them"
            raise refusal(("metrics",), {}, rule, "Leave out all but `rename`.")
        if isinstance(self.steps, str):
            self._check_name(("steps",), self.steps)
            if type(self.parameters[self.steps].default) is not int:
                raise refusal(("steps",), self.steps, "the steps are an integer parameter", "Name one, or a number.")
        for place, excluded in enumerate(self.excluded):
            for name in excluded.when:
                self._check_name(("excluded", place, "when", name), name)
        return self

    def _check_command(self, command: tuple[str, ...]) -> None:
        if not command or not command[0].strip():
            raise refusal(("command",), list(command), "the command names no program", "Begin with one.")
        used = {name for argument in command for name in _PLACEHOLDER.findall(argument)}
        for place, argument in enumerate(command):
            for name in _PLACEHOLDER.findall(argument):
                if name not in PLACES and name not in self.parameters:
                    near = difflib.get_close_matches(name, [*PLACES, *self.parameters], n=1)
                    remedy = (
                        f"Did you mean `{{{near[0]}}}`?"
                        if near
                        else f"Declare it in `parameters`, or write `{{{{{name}}}}}`."
                    )
                    raise refusal(("command", place), argument, f"there is no parameter `{name}`", remedy)
        for name in () if "config" in used else self.parameters:
            if name not in used:
                rule = f"no argument has `{{{name}}}`, so that it would change nothing"
                raise refusal(("parameters", name), {}, rule, "Pass it to the command, or leave it out.")
        if not used & {"seed", "config"}:
            rule = "no argument has `{seed}`, so that all seeds would train the same"
            raise refusal(("command",), list(command), rule, 'Add an argument such as `"--seed={seed}"`.')

    def _check_name(self, loc: tuple[str | int, ...], name: str, kind: Literal["no_path", "name"] = "name") -> None:
        if name not in self.parameters:
            near = difflib.get_close_matches(name, self.parameters, n=1)
            remedy = f"Did you mean `{near[0]}`?" if near else f"Its parameters: {', '.join(self.parameters)}."
            raise refusal(loc, {}, f"the trainer has no parameter `{name}`", remedy, kind=kind)

    @property
    def defaults(self) -> dict[str, Scalar]:
        """The value of each parameter where nothing sets it."""
        return {name: parameter.default for name, parameter in self.parameters.items()}

    def check(self, values: Mapping[str, JsonValue]) -> dict[str, Scalar]:
        """The values of a variant, by name, those of parameters that are not given at their default.

        Raises:
            ValidationError: There is no such parameter, a value does not fit, or the combination is excluded; paths
                begin with the name of a parameter.
        """
        checked = self.defaults
        for name, value in values.items():
            self._check_name((name,), name, "no_path")
            try:
                checked[name] = self.parameters[name].check(value)
            except ValidationError as error:
                raise below((name,), error) from None
        for excluded in self.excluded:
            if excluded.meets(checked):
                met = ", ".join(f"{name}={checked[name]}" for name in excluded.when)
                rule = f"{met} is excluded{f': {excluded.because}' if excluded.because else ''}"
                raise refusal((next(iter(excluded.when)),), {}, rule, "Change `trainer.excluded` to train it.")
        return checked

    def training(self, values: Mapping[str, Scalar]) -> TrainingSpec:
        """What is known of the training of a variant: its steps; 0 if not even they are."""
        steps = values[self.steps] if isinstance(self.steps, str) else self.steps
        known: dict[str, Any] = {"steps": int(steps or 0), "batch_size": 1}
        return TrainingSpec.model_construct(**known)

    def canonical(self) -> Any:
        """What gives the numbers besides the values of parameters: command or function, and how metrics are read."""
        plain = super().canonical()
        return {name: plain[name] for name in ("command", "function", "metrics") if name in plain}

    def missing(self, root: Path) -> str | None:
        """Which program or file is not there, as a sentence; None if all are."""
        program = None if self.command is None else self.command[0]
        if program and "{" not in program and shutil.which(program) is None and not (root / program).is_file():
            return f"There is no program `{program}`; `{{python}}` is the interpreter that runs ablate."
        for argument in self.command or ():
            if argument.endswith(".py") and "{" not in argument and not (root / argument).is_file():
                return f"There is no file `{argument}` in {root}, to which paths in the command are relative."
        try:
            self.source_files(root)
        except SpaceError as error:
            return str(error)
        return None

    def source_files(self, root: Path) -> dict[str, Path]:
        """The declared files by their names in messages.

        Args:
            root: The working folder of the study.

        Raises:
            SpaceError: One is missing, or there are too many.
        """
        if self.sources is not None:
            return {
                str(file.relative_to(root) if file.is_relative_to(root) else file): file
                for file in self._declared(root)
            }
        if self.function is not None:
            module = self.function.partition(":")[0]
            return {f"{module}.py": _module_file(module, root)}
        found: dict[str, Path] = {}
        arguments = self.command or ()
        for before, argument in zip(("", *arguments), arguments, strict=False):
            if before in _RUNS_A_MODULE and (file := _file_below(argument, root, "__main__")):
                found[str(file.relative_to(root))] = file
            elif not _PLACEHOLDER.search(argument):
                named = (argument, argument.partition("=")[2])
                found |= {name: root / name for name in named if name and os.path.isfile(root / name)}
        return found

    def counted_files(self, root: Path) -> list[Path]:
        """The declared files, and the modules that those among them import.

        Args:
            root: The working folder of the study.

        Raises:
            SpaceError: One is missing, or there are too many.
        """
        files: list[Path] = []
        for file in self.source_files(root).values():
            python = file.suffix == ".py"
            files += [path for path, _ in read_sources(*_imported(file, root)).values()] if python else [file]
        return files

    def _declared(self, root: Path) -> Iterator[Path]:
        count = 0
        for source in self.sources or ():
            path = root / source
            found: Iterator[Path] = iter([path])
            if path.is_dir():
                found = (file for file in files_matching(path, "**/*") if _is_source(file.relative_to(path)))
            elif not path.is_file():
                found = files_matching(root, source)
            files = sorted(itertools.islice(found, _MOST_FILES - count + 1))
            count += len(files)
            if not files or count > _MOST_FILES:
                raise SpaceError(
                    "there is no such file" if not files else f"these are more than {_MOST_FILES:,} files",
                    where=f"`trainer.sources`, {source}",
                    expected=f"a file, a folder or a pattern below {root}",
                    remedy="Correct it, or run ablate in the folder to which it is relative."
                    if not files
                    else "Name fewer.",
                )
            yield from files

    def with_values(self, values: Mapping[str, JsonValue]) -> TrainerSpec:
        """The trainer whose command has the values of parameters in it, so that it names their files too."""
        if self.sources is not None or self.command is None:
            return self
        places = {name: f"{{{name}}}" for name in PLACES}
        command = tuple(filled(argument, {**self.defaults, **values, **places}) for argument in self.command)
        return self if command == self.command else self.model_copy(update={"command": command})

    def code(self, root: Path) -> dict[str, Any]:
        """The digests of its sources as `Code.content` holds those of kinds, by label.

        Raises:
            SpaceError: A file is missing or cannot be read.
        """
        entries: dict[str, Any] = {}
        for name, file in self.source_files(root).items():
            try:
                python = file.suffix == ".py"
                modules = read_modules(*_imported(file, root)) if python else {"": file_code(file)}
            except OSError as error:
                raise SpaceError(str(error), where=f"`trainer.sources`, {name}") from error
            plain = {one: {"whole": code.whole, "parts": dict(code.parts)} for one, code in modules.items()}
            entries[f"source {name.replace(' ', '_')}"] = {"file": name, "modules": plain}
        return entries


def _is_source(file: Path) -> bool:
    return not any(part.startswith(".") or part in _NOT_SOURCE for part in file.parts)


def _imported(file: Path, root: Path) -> tuple[Path, str, list[Path]]:
    """A Python file, the package to which its relative imports refer, and where the modules that it imports may be."""
    folders = [root, root / "src"]
    home = next((folder for folder in reversed(folders) if file.is_relative_to(folder)), file.parent)
    while home not in folders and (home / "__init__.py").is_file():
        home = home.parent
    return file, ".".join(file.parent.relative_to(home).parts), folders


def _file_below(module: str, root: Path, of_package: str) -> Path | None:
    """The file of a module below the working folder; of a package, the file of this name. It is not imported."""
    for folder in (root, root / "src"):
        path = folder.joinpath(*module.split("."))
        files = (path.parent / f"{path.name}.py", path / f"{of_package}.py")
        for file in reversed(files) if (path / "__init__.py").is_file() else files:  # the order of Python's import
            if file.is_file():
                return file
    return None


def _module_file(module: str, root: Path) -> Path:
    """The file of a module, below the working folder or installed; it is not imported."""
    if (file := _file_below(module, root, "__init__")) is not None:
        return file
    try:
        found = importlib.util.find_spec(module)
    except (ImportError, ValueError):
        found = None
    if found is None or found.origin is None:
        raise SpaceError(
            "there is no such module",
            where=f"`trainer.function`, {module}",
            expected=f"{module.replace('.', '/')}.py below {root}, or an installed module",
            remedy="Correct the name, or run ablate in the folder of the module.",
        )
    return Path(found.origin)


def filled(argument: str, values: Mapping[str, object]) -> str:
    """An argument with the values of its placeholders; `{{name}}` becomes `{name}`."""
    text = _PLACEHOLDER.sub(lambda match: str(values[match[1]]), argument)
    return re.sub(r"\{(\{[A-Za-z_][A-Za-z0-9_]*\})\}", r"\1", text)
