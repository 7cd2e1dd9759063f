"""Star, tags and note of a study or a trial, shown and edited."""

from __future__ import annotations

import streamlit as st

from ablate.errors import StoreError
from ablate.store import Mark
from ablate.store.marks import Marked
from dashboard.shared.store import read_only, store
from dashboard.shared.text import escape, prose

MOST_TAGS = 20


def edit_mark(kind: Marked, name: str) -> None:
    """A form that shows the mark and writes what is entered."""
    mark = store().marks.of(kind, name)
    key = f"{kind}-{name}"
    stated = [word for word in ("★" * mark.starred, ", ".join(mark.tags), "note" * bool(mark.note)) if word]
    with (
        st.expander(
            f"Star, tags, note{': ' if stated else ''}{escape(' · '.join(stated), 100)}", icon=":material/star:"
        ),
        st.form(f"mark-{key}", border=False),
    ):
        starred = st.toggle("Star", mark.starred, key=f"star-{key}")
        tags = st.text_input("Tags, separated by commas", ", ".join(mark.tags), key=f"tags-{key}", max_chars=400)
        note = st.text_area("Note", mark.note, key=f"note-{key}", max_chars=20_000)
        if st.form_submit_button("Save", type="primary", disabled=read_only()) and not read_only():
            _save(kind, name, Mark(starred, split_tags(tags or ""), note or ""))
    if mark.note:
        st.text(mark.note)


def split_tags(text: str) -> tuple[str, ...]:
    """The tags in a text that separates them by commas."""
    tags = dict.fromkeys(" ".join(tag.split()) for tag in text.split(","))
    return tuple(tag for tag in tags if tag)[:MOST_TAGS]


def _save(kind: Marked, name: str, mark: Mark) -> None:
    try:
        store().marks.put(kind, name, mark)
    except StoreError as error:
        st.error(prose(str(error)))
    else:
        st.rerun()
