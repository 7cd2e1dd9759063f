"""`vl_convert` in a process of its own.

Its runtime has threads and descriptors, which a fork of the process that used it lacks. Tests fork commands, so the
process that runs tests must not use it, in whatever order they run.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

_SERVES = """
import pickle, sys, vl_convert
while True:
    try:
        name, arguments, named = pickle.load(sys.stdin.buffer)
    except EOFError:
        break
    pickle.dump(getattr(vl_convert, name)(*arguments, **named), sys.stdout.buffer)
    sys.stdout.buffer.flush()
"""


class ConverterApart(ModuleType):
    """Stands for `vl_convert` in the process that runs tests; its forks import the real one."""

    def __init__(self) -> None:
        super().__init__("vl_convert")
        self.__spec__ = importlib.util.find_spec("vl_convert")
        self._owner = os.getpid()
        self._server: subprocess.Popen[bytes] | None = None

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name.startswith("__"):
            raise AttributeError(name)
        if os.getpid() != self._owner:
            del sys.modules["vl_convert"]
            real: Callable[..., Any] = getattr(importlib.import_module("vl_convert"), name)
            return real
        return lambda *arguments, **named: self._convert((name, arguments, named))

    def _convert(self, call: tuple[str, tuple[Any, ...], dict[str, Any]]) -> object:
        if self._server is None:
            pipe = subprocess.PIPE
            self._server = subprocess.Popen([sys.executable, "-c", _SERVES], stdin=pipe, stdout=pipe)
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        pickle.dump(call, self._server.stdin)
        self._server.stdin.flush()
        return pickle.load(self._server.stdout)

    def close(self) -> None:
        """End the process."""
        if self._server is not None and os.getpid() == self._owner:
            self._server.communicate()
            self._server = None


def stand_in() -> Callable[[], None]:
    """Make it the module `vl_convert` if that is installed; returns a function that ends its process."""
    if importlib.util.find_spec("vl_convert") is None:
        return lambda: None
    apart = ConverterApart()
    sys.modules["vl_convert"] = apart
    return apart.close
