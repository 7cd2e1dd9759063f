"""A page is one file in `dashboard/views/`: where it is in the side bar, for which studies, and what it draws."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import streamlit
from streamlit.testing.v1 import AppTest
from written_stores import simple_store

from ablate.serving import OPTIONS
from dashboard import views
from dashboard.shared import frame

PAGE = """\
import streamlit as st

from ablate.store import StudyRecord
from dashboard.views import Entry

ENTRY = Entry(
    "Zest", ":material/star:", "This study", 15, variants={variants}, applies="dashboard.views.zest:is_tangy"
)


def is_tangy(record: StudyRecord) -> bool:
    return record.name != "broken"


def show() -> None:
    st.write("how it tastes")
"""
SIDE_BAR = """\
import streamlit
from dashboard.shared.frame import navigation, side_bar
page = navigation()
streamlit.session_state["study"] = {study!r}
with streamlit.sidebar:
    side_bar(page)
"""


@pytest.fixture
def links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[str]]:
    """The links of the side bar for a study of two variants, beside a page that needs some number of them."""

    def shown(study: str, variants: int = 2) -> list[str]:
        (tmp_path / "zest.py").write_text(PAGE.format(variants=variants))
        monkeypatch.setattr(frame, "PAGES", views.read_pages())
        app = AppTest.from_string(SIDE_BAR.format(study=study), default_timeout=120).run()
        assert not app.exception, app.exception
        return [link.proto.label for link in app.sidebar.get("page_link")]

    simple_store(str(tmp_path / "s.db"))
    monkeypatch.setenv(OPTIONS, json.dumps({"stores": [str(tmp_path / "s.db")]}))
    monkeypatch.setattr(views, "__path__", [*views.__path__, str(tmp_path)])
    monkeypatch.setattr(frame, "_PAGES", {})
    monkeypatch.delitem(sys.modules, "dashboard.views.zest", raising=False)
    streamlit.cache_resource.clear()
    return shown


def test_it_stands_where_it_says_for_the_studies_that_it_is_for(links: Callable[..., list[str]]) -> None:
    found = links("done")
    assert found[: found.index("Curves") + 1] == ["Answer", "Zest", "Curves"]
    assert "Zest" not in links("broken")
    assert "Zest" not in links("done", variants=3)


def test_it_is_drawn(links: Callable[..., list[str]], shown: Callable[..., AppTest], tmp_path: Path) -> None:
    links("done")
    assert [text.value for text in shown("zest", tmp_path / "s.db", study="done").markdown][-1] == "how it tastes"


def test_a_file_without_an_entry_is_not_left_out_in_silence(tmp_path: Path) -> None:
    (tmp_path / "bland.py").write_text("def show() -> None: ...\n")
    with pytest.raises(ValueError, match=r"bland\.py .* declares no `ENTRY"):
        views.read_entry(tmp_path / "bland.py")
