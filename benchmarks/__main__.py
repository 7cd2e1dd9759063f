"""Run benchmarks: `python -m benchmarks [NAME ...]`. A file of this folder with a `main()` is a benchmark."""

from __future__ import annotations

import pkgutil
import sys
from collections.abc import Callable
from importlib import import_module

import benchmarks
from ablate.kernels.allocator import keep_freed_memory
from benchmarks.machine import machine


def found() -> dict[str, Callable[[], None]]:
    """Every benchmark by its name."""
    modules = {
        entry.name: import_module(f"benchmarks.{entry.name}")
        for entry in pkgutil.iter_modules(benchmarks.__path__)
        if entry.name != "__main__"
    }
    return {name: module.main for name, module in modules.items() if hasattr(module, "main")}


def run(names: list[str]) -> int:
    """Run the named benchmarks, or all; a name that is none says which there are."""
    known = found()
    unknown = [name for name in names if name not in known and name != "--list"]
    if unknown or "--list" in names:
        print(*(f"no benchmark is called {name}; there are:" for name in unknown), *known, sep="\n")
        return 2 if unknown else 0
    keep_freed_memory()  # as the workers of a study do
    for name in names or known:
        print(f"\n== {name}\n")
        known[name]()
    print(f"\n{machine()}")
    return 0


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
