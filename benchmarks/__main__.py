"""Runs benchmarks: `python -m benchmarks [--smoke] [NAME ...]`. A benchmark is a file of this folder with
`main(smoke)`.

`python -m benchmarks NAME [OPTIONS]` runs a fault campaign: a file with `campaign()`, which takes options and returns
an exit code. Campaigns run only if named.
"""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path

import benchmarks
from ablate.nn.kernels.processor import keep_freed_memory
from benchmarks.machine import machine


def files_with(function: str) -> list[str]:
    """The names of the files that define this function. None is imported: some need packages that others do not."""
    files = sorted(Path(benchmarks.__path__[0]).glob("*.py"))
    return [file.stem for file in files if f"\ndef {function}(" in file.read_text(encoding="utf-8")]


def discovered() -> list[str]:
    """The names of all benchmarks."""
    return [name for name in files_with("main") if name != "__main__"]


def run(names: list[str]) -> int:
    """Run the named benchmarks or all; `--smoke`: at their smallest sizes. An unknown name prints the known ones."""
    known, smoke = discovered(), "--smoke" in names
    names = [name for name in names if name != "--smoke"]
    unknown = [name for name in names if name not in known and name != "--list"]
    if unknown or "--list" in names:
        print(*(f"there is no benchmark {name}; known benchmarks:" for name in unknown), *known, sep="\n")
        return 2 if unknown else 0
    keep_freed_memory()  # as the workers of a study do
    for name in names or known:
        print(f"\n== {name}\n")
        import_module(f"benchmarks.{name}").main(smoke)
    print(f"\n{machine()}")
    return 0


def main(arguments: list[str]) -> int:
    """Run a campaign with its options, or benchmarks."""
    if arguments and arguments[0] in files_with("campaign"):
        code: int = import_module(f"benchmarks.{arguments[0]}").campaign(arguments[1:])
        return code
    return run(arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
