"""Mutation testing: `python -m benchmarks mutants [--files FILE ...] [--sample N --seed S]`.

Cosmic Ray makes the mutants: copies of a file with one small fault each. A mutant is noticed if a test fails or takes
too long. The tests that run are those that execute its lines: first those of its own package, then, if they notice
nothing, those of all others. Everything runs in copies of the working tree. `mutants.toml` lists mutants that no test
needs to notice, with the reason.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from itertools import count
from pathlib import Path
from queue import SimpleQueue
from threading import Lock
from typing import Any

from cosmic_ray.ast import get_ast
from cosmic_ray.mutating import mutate_code
from cosmic_ray.operators.operator import Operator
from cosmic_ray.operators.provider import OperatorProvider
from coverage import CoverageData

ROOT = Path(__file__).parent.parent
ACCEPTED = Path(__file__).with_suffix(".toml")
LEFT_OUT = {"dashboard", "documentation"}
"""Folders of tests that need a browser or take minutes; the tests that start Ray are left out too."""
SECONDS = 60.0
"""How long the tests of one mutant may take together, by their durations without it. The quickest run first."""
KEPT = re.compile(
    r".*Binary\w+_(Add_Sub|Sub_Add|Mul_Div|Div_Mul|FloorDiv_Mul|Mod_FloorDiv|Pow_Mul|BitOr_BitAnd|BitAnd_BitOr)"
    r"|.*Comparison\w+_(Eq_NotEq|NotEq_Eq|Is_IsNot|IsNot_Is|Lt_LtE|Lt_Gt|LtE_Lt|LtE_GtE|Gt_GtE|Gt_Lt|GtE_Gt|GtE_LtE)"
    r"|.*_Delete_(USub|Not)|AddNot|Replace(True|False|And|Or|Break|Continue)With\w+|ExceptionReplacer|NumberReplacer"
    r"|ZeroIterationForLoop"
)
"""Cosmic Ray's operators, one or two for each symbol, so that no symbol is drawn more often than others."""
OPPOSITES = {"min": "max", "max": "min", "any": "all", "all": "any", "sorted": "list", "reversed": "iter"}


class SwapCall(Operator):  # type: ignore[misc]
    """Calls the opposite of a function, or the one that keeps the order instead of `sorted`."""

    def mutation_positions(self, node: Any) -> Iterator[tuple[Any, Any]]:
        if node.type == "name" and node.value in OPPOSITES and node.get_next_leaf() == "(":
            keyed = node.value == "sorted" and "key=" in node.parent.get_code()
            if node.get_previous_leaf() != "." and not keyed:
                yield node.start_pos, node.end_pos

    def mutate(self, node: Any, index: int) -> Any:
        node.value = OPPOSITES[node.value]
        return node

    @classmethod
    def examples(cls) -> tuple[()]:
        return ()


class DropEntry(Operator):  # type: ignore[misc]
    """Leaves an entry out of a dict, or a named argument out of a call."""

    def mutation_positions(self, node: Any) -> Iterator[tuple[Any, Any]]:
        if node.type == "dictorsetmaker" and all(child.type != "sync_comp_for" for child in node.children):
            for colon in [child for child in node.children if child == ":"]:
                yield colon.start_pos, colon.end_pos
        elif node.type == "argument" and node.children[1] == "=":
            yield node.start_pos, node.end_pos

    def mutate(self, node: Any, index: int) -> Any:
        if node.type == "argument":
            return get_ast(" **{}")
        colon = [place for place, child in enumerate(node.children) if child == ":"][index]
        node.children[colon - 1 : colon + 2] = [get_ast(" **{}")]
        return node

    examples = SwapCall.examples


@dataclass(frozen=True)
class Mutant:
    """A file with one fault, between lines `first` and `last`; `before` and `after` are the first line that differs."""

    file: str
    first: int
    last: int
    before: str
    after: str
    code: str

    @property
    def group(self) -> str:
        """The package, which is also the folder of its own tests."""
        return Path(self.file).parts[1]

    @property
    def changes_no_result(self) -> bool:
        """Whether no result differs: `zip` does not assert equal lengths, or a signature has `/` instead of `*`."""
        before, after = (re.sub(r"strict=(True|False)|\*\*\{\}|\s", "", line) for line in (self.before, self.after))
        return ("strict=" in self.before and before == after) or before.replace("*,", "/,", 1) == after


def _nodes(node: Any, runs: bool = True) -> Iterator[tuple[Any, bool]]:
    """All nodes of a tree, in the order of Cosmic Ray, and whether each is neither an annotation nor a decorator."""
    yield node, runs
    before = None
    for child in getattr(node, "children", ()):
        annotation = (node.type, before) in {("annassign", ":"), ("tfpdef", ":"), ("funcdef", "->")}
        yield from _nodes(child, runs and not annotation and child.type != "decorator")
        before = getattr(child, "value", None)


def places(file: str, code: str) -> Iterator[partial[Mutant | None]]:
    """For each place where an operator fits, the function that makes its mutant."""
    provider, nodes = OperatorProvider(), list(_nodes(get_ast(code)))
    for operator in [*(provider[name]() for name in provider if KEPT.fullmatch(name)), SwapCall(), DropEntry()]:
        at = [(place, runs) for node, runs in nodes for place in operator.mutation_positions(node)]
        for occurrence, ((start, end), runs) in enumerate(at):
            if runs:
                yield partial(_mutant, file, code, operator, occurrence, start[0], end[0])


def _mutant(file: str, code: str, operator: Operator, occurrence: int, first: int, last: int) -> Mutant | None:
    """The mutant of an occurrence; None if it is not Python, or Cosmic Ray cannot make it, as of `(A, module.B)`."""
    try:
        mutated = mutate_code(code, operator, occurrence)
        compile(mutated, file, "exec")
    except (AttributeError, SyntaxError):
        return None
    pairs = zip(code.splitlines(), mutated.splitlines(), strict=False)
    before, after = next((pair for pair in pairs if pair[0] != pair[1]), ("", ""))
    return Mutant(file, first, last, before.strip(), after.strip(), mutated) if before else None


def draw(files: Iterable[str], size: int | None, seed: int, accepted: set[tuple[str, ...]]) -> list[Mutant]:
    """A random sample without accepted mutants, with the same number from each package; all if no size is given."""
    groups = defaultdict[str, list[partial[Mutant | None]]](list)
    for file in files:
        groups[Path(file).parts[1]] += places(file, (ROOT / file).read_text(encoding="utf-8"))
    drawn, numbers = list[Mutant](), random.Random(seed)
    for name in sorted(groups):
        numbers.shuffle(groups[name])
        made = (mutant for make in groups[name] if (mutant := make()) is not None)
        # A changed number in a call that ends processes would end those of others.
        wanted = (
            one
            for one in made
            if (one.before, one.after) not in accepted and "kill" not in one.before and not one.changes_no_result
        )
        drawn += [one for _, one in zip(range(size // len(groups)) if size else count(), wanted, strict=False)]
    return drawn


class Copy:
    """A copy of the working tree, and a process that runs its tests in forks of itself, with torch imported already."""

    def __init__(self, folder: Path, stack: contextlib.ExitStack) -> None:
        self.folder, self.time = folder, time.time()
        listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        for name in subprocess.check_output(listed, cwd=ROOT, text=True).split("\0"):
            if name and (ROOT / name).is_file():
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, folder / name)
        (folder / ".coveragerc").write_text("[run]\nrelative_files = true\n", encoding="utf-8")
        variables = {**os.environ, "PYTHONPATH": str(folder), "OMP_NUM_THREADS": "1", "TMPDIR": str(folder.parent)}
        command, pipe = [sys.executable, "-P", __file__, str(folder)], subprocess.PIPE
        self.server = stack.enter_context(subprocess.Popen(command, env=variables, text=True, stdin=pipe, stdout=pipe))

    def run(self, tests: Sequence[str], limit: float, *options: str) -> bool:
        """Whether these tests pass within a time."""
        assert self.server.stdin is not None
        assert self.server.stdout is not None
        print(json.dumps([[*options, *tests], limit]), file=self.server.stdin, flush=True)
        return self.server.stdout.readline() == "0\n"

    def measure(self, tests: str, kept: Path) -> Covered:
        """Run a folder of tests, unless that is done already, and read what each executed."""
        data, durations = kept / f"{tests}.coverage", kept / f"{tests}.json"
        if not durations.exists():
            options = ["--cov=ablate", "--cov-context=test", "--cov-report=", "-m", "not ray"]
            self.run([f"tests/{tests}"], 3600, "--continue-on-collection-errors", *options)
            shutil.move(self.folder / ".coverage", data)
            shutil.move(self.folder.with_suffix(".json"), durations)
        lines = CoverageData(str(data))
        lines.read()
        return Covered(lines, json.loads(durations.read_text(encoding="utf-8")))

    def notices(self, mutant: Mutant, covered: Covered) -> bool:
        """Whether a test fails or hangs with a mutant."""
        tests, code = covered.tests(mutant), (self.folder / mutant.file).read_text(encoding="utf-8")
        self._write(mutant.file, mutant.code)
        try:
            return bool(tests) and not self.run(tests, 15 + 5 * sum(map(covered.seconds.__getitem__, tests)), "-x")
        finally:
            self._write(mutant.file, code)

    def _write(self, file: str, code: str) -> None:
        """Write a file with a time of its own: Python compiles a module again only if its size or second differs."""
        self.time += 2
        (self.folder / file).write_text(code, encoding="utf-8")
        os.utime(self.folder / file, (self.time, self.time))


@dataclass(frozen=True)
class Covered:
    """Which tests of a folder execute which lines, and the seconds of those that pass."""

    lines: CoverageData
    seconds: dict[str, float]

    def tests(self, mutant: Mutant) -> list[str]:
        """The quickest tests that execute the lines of a mutant; where only imports do, those that execute its file."""
        contexts = self.lines.contexts_by_lineno(mutant.file)
        names = {
            line: {test.partition("|")[0] for test in tests} & self.seconds.keys() for line, tests in contexts.items()
        }
        found = set[str]().union(*(names.get(line, ()) for line in range(mutant.first, mutant.last + 1)))
        chosen, total = list[str](), 0.0
        for test in sorted(found or set[str]().union(*names.values()), key=self.seconds.__getitem__):
            total += self.seconds[test]
            if total <= SECONDS:
                chosen.append(test)
        return chosen


class Durations:
    """A plug-in of pytest that writes the seconds of each test that passed."""

    def __init__(self, path: Path) -> None:
        self.path, self.seconds, self.others = path, defaultdict[str, float](float), set[str]()

    def pytest_runtest_logreport(self, report: Any) -> None:
        self.seconds[report.nodeid] += report.duration
        self.others |= {report.nodeid} if report.outcome != "passed" else set()

    def pytest_sessionfinish(self) -> None:
        passed = {test: seconds for test, seconds in self.seconds.items() if test not in self.others}
        self.path.write_text(json.dumps(passed), encoding="utf-8")


def serve(folder: Path) -> None:
    """Run the tests that standard input asks for, each time in a fork, and print its exit code."""
    sys.path.insert(0, str(folder))
    os.chdir(folder)
    for name in ("torch", "scipy.stats", "scipy.optimize", "pydantic", "sqlalchemy", "ruamel.yaml"):
        import_module(name)
    pytest = import_module("pytest")
    for line in sys.stdin:
        arguments, limit = json.loads(line)
        child = os.fork()
        if not child:
            os.setsid()
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            log = os.open(folder.with_suffix(".log"), os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.dup2(log, 1)
            os.dup2(log, 2)
            plain = ["-q", "-p", "no:cacheprovider", "-p", "no:randomly", "--hypothesis-seed=0"]
            os._exit(pytest.main([*plain, *arguments], plugins=[Durations(folder.with_suffix(".json"))]))
        done, status, end = 0, 0, time.monotonic() + limit
        try:
            while not done and time.monotonic() < end:
                time.sleep(0.02)
                done, status = os.waitpid(child, os.WNOHANG)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child, signal.SIGKILL)  # with all that it started
        if not done:
            os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status) if done else "too late", flush=True)


def examine(mutants: Sequence[Mutant], folders: set[str], copies: SimpleQueue[Copy], kept: Path) -> Iterator[Mutant]:
    """Run the tests that cover each mutant, of its own package and then of the others; the mutants not noticed."""
    covered = dict[str, Covered]()
    locks = {tests: Lock() for tests in folders}

    def survives(mutant: Mutant) -> bool:
        copy = copies.get()
        try:
            for tests in sorted(folders, key=lambda name: (name != mutant.group, name)):
                with locks[tests]:  # what no mutant asks for is not measured
                    if tests not in covered:
                        covered[tests] = copy.measure(tests, kept)
                if copy.notices(mutant, covered[tests]):
                    return False
            return True
        finally:
            copies.put(copy)

    with ThreadPoolExecutor(copies.qsize()) as pool:
        yield from (mutant for mutant, left in zip(mutants, pool.map(survives, mutants), strict=True) if left)


def campaign(arguments: Sequence[str]) -> int:
    """Print the mutants that were not noticed and a table by package; the exit code is 1 if there is one."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks mutants", description=__doc__)
    parser.add_argument("--files", nargs="+", help="files of ablate, others are left out; all of ablate by default")
    parser.add_argument("--tests", nargs="+", help="folders of `tests` instead of all")
    parser.add_argument("--sample", type=int, help="mutants to draw, as many from each package; all by default")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--processes", type=int, default=1, help="copies in which tests run")
    parser.add_argument("--kept", type=Path, help="keep what tests execute in this folder, for runs on the same tree")
    asked = parser.parse_args(arguments)
    named = asked.files or [str(path.relative_to(ROOT)) for path in sorted((ROOT / "ablate").rglob("*.py"))]
    files = [name for name in named if re.fullmatch(r"ablate/.*\.py", name) and (ROOT / name).exists()]
    excused = tomllib.loads(ACCEPTED.read_text(encoding="utf-8"))["mutant"]
    mutants = draw(files, asked.sample, asked.seed, {(one["before"], one["after"]) for one in excused})
    folders = {path.name for path in (ROOT / "tests").iterdir() if path.is_dir()} - LEFT_OUT
    with contextlib.ExitStack() as stack:
        place = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="ablate-mutants-")))
        place.chmod(0o755)  # PostgreSQL's server, which tests start in it, is another user's where this is root
        copies = SimpleQueue[Copy]()
        for number in range(asked.processes):
            copies.put(Copy(place / str(number), stack))
        kept = asked.kept or place / "kept"
        kept.mkdir(parents=True, exist_ok=True)
        left = list[Mutant]()
        for one in examine(mutants, set(asked.tests or folders), copies, kept):
            print(f"{one.file}:{one.first}\n    {one.before}\n    {one.after}", flush=True)
            left.append(one)
    print(f"\n{'package':12} {'mutants':>8} {'noticed':>8} {'share':>6}")
    drawn, lost = (Counter(key for one in some for key in (one.group, "all")) for some in (mutants, left))
    for name, number in sorted(drawn.items(), key=lambda entry: (entry[0] == "all", entry)):
        print(f"{name:12} {number:8} {number - lost[name]:8} {1 - lost[name] / number:6.0%}")
    return 1 if left else 0


if __name__ == "__main__":
    serve(Path(sys.argv[1]))
