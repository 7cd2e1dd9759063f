"""Cases of `hostile` around a call: files named like modules, missing homes, long paths.

Files of such names can only stand in for what is not imported yet, so those calls start in a new process.
"""

from __future__ import annotations

from hypothesis import strategies as st

from benchmarks.hostile_cases import LINES, TINY, Case, Surroundings, around

SHADOWS = (
    "ast", "copy", "csv", "datetime", "inspect", "json/__init__", "logging", "numpy", "pydantic/__init__",
    "queue", "random", "ruamel/__init__", "secrets", "socket", "sqlite3", "string", "tempfile", "torch/__init__",
    "typer", "typing",
)  # fmt: skip
"""Modules that ablate imports and Python does not import before it runs a module."""
PLACES = ("", "missing", "tiny.yaml", "/proc/none", "~nobody/x", "n" * 300, "long/" * 60, "größe/块")
"""Values of variables that name a folder: most of them cannot be one."""
_SHORT = [("list",), ("show", "tiny"), ("validate", "tiny.yaml"), ("data", "tiny.yaml"), ("draw", "pre_ln")]
_PLUGIN = b"import copy, random\nimport helper\nassert helper.VALUE == copy.copy(7) and random.random() < 1\n"


@st.composite
def _shadow_case(draw: st.DrawFn, store: bytes) -> Case:
    names = draw(st.lists(st.sampled_from(SHADOWS), min_size=1, max_size=4, unique=True))
    files = {f"{name}.py": b"raise SystemExit('a file of the user was imported')" for name in names}
    beside = {"mine/kind.py": _PLUGIN, "mine/helper.py": b"VALUE = 7", "mine/copy.py": b"raise SystemExit('no')"}
    line = draw(st.sampled_from([*_SHORT, ("validate", "tiny.yaml", "--plugin", "mine/kind.py")]))
    return Case("shadow", line, around(store) | files | beside, surroundings=Surroundings(in_new_process=True))


@st.composite
def _homeless_case(draw: st.DrawFn, store: bytes) -> Case:
    places = st.one_of(st.none(), st.sampled_from(PLACES))
    names = ("HOME", "XDG_CACHE_HOME", "ABLATE_CACHE", "TMPDIR")
    variables = tuple((name, draw(places)) for name in names)
    return Case("home", draw(st.sampled_from(LINES)), around(store), surroundings=Surroundings(variables))


@st.composite
def _path_case(draw: st.DrawFn) -> Case:
    name = draw(st.sampled_from(["n" * 100, "größe", "块去跳", "a b", "#%d"]))
    space = "/".join([name] * draw(st.integers(1, 8))) + "/space.yaml"
    line = draw(st.sampled_from([("validate", space), ("data", space), ("plan", space, "--cache", "c" * 300)]))
    return Case("path", line, around(b"") | {space: TINY.encode()})


def surrounding_cases(store: bytes) -> st.SearchStrategy[Case]:
    """All of these; few start a new process, as that takes a second."""
    return st.one_of(_homeless_case(store), _path_case(), _homeless_case(store), _path_case(), _shadow_case(store))
