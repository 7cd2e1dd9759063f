"""Cases of `hostile` around what is printed: names in every script, streams of every encoding, closed streams."""

from __future__ import annotations

import json
from collections.abc import Sequence

from hypothesis import strategies as st

from benchmarks.hostile_cases import LINES, TINY, Case, Streams, around

SCRIPTS = (
    "größe", "ελάττωση", "заголовок", "ההחלטה", "التطبيع", "नियमितीकरण", "ক্ষমতা", "การทำให้เป็นปกติ", "块去跳", "スキップ",
    "건너뛰기", "ჩართვა", "ፈጣን", "e\u0301te\u0301", "🧪", "a\u200db", "n" * 300, "../..", "<b>", "$x^2$", "%d", "#",
)  # fmt: skip
"""Names of switches and settings, one or more for each script, and some that other formats read as marks."""


def named_space(names: Sequence[str]) -> str:
    """`TINY` with switches and settings of these names instead of its own; each gives another learning rate."""
    rates = {name: {"kept": {}, f"{name}!": {"training.optimizer.lr": 1e-3 * at}} for at, name in enumerate(names, 1)}
    switches = json.dumps(rates, ensure_ascii=False)
    lines = TINY.splitlines()
    begin = lines.index("switches:")
    return "\n".join([*lines[:begin], f"switches: {switches}", *lines[begin + 3 : lines.index("claims:")]]) + "\n"


NAMED = named_space(SCRIPTS)


def _streams() -> st.SearchStrategy[Streams]:
    encodings = st.sampled_from(["ascii", "latin-1", "cp1252", "utf-8", "utf-16-le", "shift_jis"])
    closed = st.sets(st.sampled_from([0, 1, 2])).map(frozenset)
    return st.builds(Streams, encodings, st.one_of(st.just(frozenset()), closed), st.booleans())


@st.composite
def _name_case(draw: st.DrawFn) -> Case:
    texts = st.text(
        st.characters(exclude_categories=("Cs", "Cc", "Zs", "Zl", "Zp"), exclude_characters=",="), min_size=1
    )
    names = draw(st.lists(st.one_of(st.sampled_from(SCRIPTS), texts), min_size=2, max_size=4, unique=True))
    line = draw(st.sampled_from([("validate", "named.yaml"), ("plan", "named.yaml"), ("data", "named.yaml")]))
    files = around(b"") | {"named.yaml": named_space(names).encode()}
    del files["studies/ablate.db"]
    return Case("name", line, files, draw(_streams()))


def printing_cases(store: bytes) -> st.SearchStrategy[Case]:
    """All of these; `store` holds the study of `NAMED`."""
    files = around(store) | {"tiny.yaml": NAMED.encode()}
    streams = st.builds(Case, st.just("stream"), st.sampled_from(LINES), st.just(files), _streams())
    return st.one_of(_name_case(), streams)
