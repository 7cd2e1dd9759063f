"""The switches of a draft: shown, added and removed. A setting maps spec paths to values."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import streamlit as st

from ablate.spec.texts import WORDS
from dashboard.shared.form import Form
from dashboard.shared.schema import NOTHING, Node, lean
from dashboard.shared.text import escape

Switches = dict[str, dict[str, Any]]
TOLD = "What the setting removes or replaces, for the sentences of the answer; if empty, they are made from its paths."


def edit_switches(draft: Mapping[str, Any], schema: Node, prefix: str) -> dict[str, Any]:
    """Show the switches with their buttons, and the controls that add to them.

    Args:
        draft: The plain space.
        schema: The answer of `drafter.schema`.
        prefix: Prefix of the keys of all controls.

    Returns:
        The new `switches` and `variants` of the space.
    """
    kept = st.session_state.setdefault(f"{prefix}switches", draft["switches"])
    switches: Switches = {name: dict(settings) for name, settings in kept.items()}
    for name, settings in list(switches.items()):
        with st.container(border=True):
            row = st.container(horizontal=True, vertical_alignment="center")
            row.markdown(f"**{escape(name)}**", width="stretch")
            if row.button("Remove", key=f"{prefix}remove.{name}", icon=":material/delete:", help="Remove this switch"):
                del switches[name]
                _put(prefix, switches)
            for word in WORDS:
                if word in settings:
                    st.caption(escape(f"{word} {settings[word]}"))
            for number, (setting, paths) in enumerate(_settings(settings)):
                said = ", ".join(f"{path}: {json.dumps(value, ensure_ascii=False)}" for path, value in paths.items())
                first = " (the baseline's)" if number == 0 else ""
                st.markdown(f"{escape(setting)}{first}: {escape(said) if said else 'changes nothing'}")
    _add(switches, schema, prefix)
    variants = {
        name: settings
        for name, settings in draft.get("variants", {}).items()
        if all(switch in WORDS or setting in switches.get(switch, {}) for switch, setting in settings.items())
    }
    return {"switches": switches, "variants": variants}


def _add(switches: Switches, schema: Node, prefix: str) -> None:
    st.markdown("**Add a setting**")
    names = st.columns(3)
    switch = names[0].text_input("Switch", key=f"{prefix}switch", placeholder="a new name, or one above")
    setting = names[1].text_input("Setting", key=f"{prefix}setting", placeholder="removed")
    first = names[2].text_input(
        "Baseline's setting", key=f"{prefix}first", placeholder="kept", disabled=switch in switches
    )
    path = st.selectbox(
        "Path that it sets", list(schema["paths"]), index=None, key=f"{prefix}path", placeholder="block.skips.mixer"
    )
    if path is not None:
        node, definitions = schema["paths"][path], schema["space"]["$defs"]
        value = lean(node, Form(definitions, f"{prefix}value.").control("value", node, NOTHING, path), definitions)
    row = st.container(horizontal=True, vertical_alignment="bottom")
    with row:
        word = st.segmented_control("In words, it", WORDS, key=f"{prefix}word", help=TOLD)
        words = st.text_input("what", key=f"{prefix}words", placeholder="the skip around attention", disabled=not word)
    ready = bool(switch and setting and path)
    st.caption("This path is added to a setting that exists: to remove a part one often has to change a gain too.")
    if st.button("Add", key=f"{prefix}add", icon=":material/add:", type="primary", disabled=not ready):
        settings = switches.setdefault(str(switch), {first or "kept": {}})
        texts = {word: words} if word and words else {}
        kept = {key: item for key, item in settings.get(str(setting), {}).items() if not (texts and key in WORDS)}
        settings[str(setting)] = kept | {str(path): value} | texts
        _put(prefix, switches)


def _settings(switch: Mapping[str, Any]) -> list[tuple[str, Mapping[str, Any]]]:
    """The settings of a switch, without its text."""
    return [(setting, paths) for setting, paths in switch.items() if setting not in WORDS]


def _put(prefix: str, switches: Switches) -> None:
    st.session_state[f"{prefix}switches"] = switches
    st.rerun()
