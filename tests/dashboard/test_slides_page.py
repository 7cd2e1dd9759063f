"""The page of slides: what the process with torch writes, in a frame of its own, and the same file to be kept."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest
import streamlit
from streamlit.testing.v1 import AppTest
from written_stores import simple_store

from ablate.serving import OPTIONS


def _page() -> None:
    import streamlit as st

    from dashboard.shared.frame import navigation
    from dashboard.views.slides import show

    navigation()
    st.session_state["study"] = "done"
    show()


def test_the_page_shows_the_slides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    simple_store(str(tmp_path / "s.db"))
    monkeypatch.setenv(OPTIONS, json.dumps({"stores": [str(tmp_path / "s.db")]}))
    streamlit.cache_resource.clear()
    app = AppTest.from_function(_page, default_timeout=90).run()
    streamlit.cache_resource.clear()
    assert not app.exception, app.exception
    (frame,) = [one for one in app.main if one.type == "iframe"]
    kind, _, content = frame.proto.src.partition(",")
    assert kind == "data:text/html;base64"
    html = base64.b64decode(content).decode()
    assert html.count("<section>") == 3
    assert "Why done?" in html
    assert "prefers-color-scheme" not in html, "the theme of the page decides, not that of the system"
