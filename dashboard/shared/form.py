"""Controls generated from a JSON Schema, one for each field by the type of its values, and the switches of a draft."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from dataclasses import field as made
from typing import Any

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from ablate.spec.paths import WORDS
from dashboard.shared.pictures import ask
from dashboard.shared.schema import (
    NOTHING,
    Node,
    alternatives,
    default_of,
    fitting,
    is_object,
    kind_of,
    lean,
    member,
    opened,
    read_yaml,
    takes_lines,
    yaml_to_edit,
)
from dashboard.shared.text import escape, prose

MOST_SEGMENTS = 4
"""The most options shown as a segmented control; more become a select box."""
BOX, NUMBER = 190, 155
"""Widths of boxes in pixels, so that several fit in a row, of numbers two on a phone."""
SENTENCES = ("question", "says")
"""Fields whose text may need several lines."""


@dataclass(frozen=True, slots=True)
class Form:
    """Draws controls and returns their values.

    Attributes:
        definitions: The definitions that references of the schema point to.
        prefix: Prefix of the keys of all controls; another prefix resets the controls.
        beside: Path of an input, an object or an entry of a list to the container that shows its problems.
        elsewhere: Paths of fields that `fields` leaves out, because they have a control elsewhere or none.
    """

    definitions: Node
    prefix: str
    beside: dict[str, DeltaGenerator] = made(default_factory=dict)
    elsewhere: set[str] = made(default_factory=set)

    def fields(self, node: Node, value: Mapping[str, Any], path: str) -> dict[str, Any]:
        """A control for each field of an object.

        Args:
            value: Its value, possibly without fields that hold their default.
            path: Its path, which names the controls.

        Returns:
            The new value, without fields that hold their default.
        """
        given: dict[str, Any] = {}
        row = st.container(horizontal=True, vertical_alignment="bottom")
        for name, field in node["properties"].items():
            default = default_of(node, name)
            if "const" in field or f"{path}.{name}" in self.elsewhere:
                if name in value:
                    given[name] = value[name]
                continue
            nested = any(is_object(alternative) for alternative in alternatives(field, self.definitions))
            with nullcontext() if nested else row:
                given[name] = self.control(name, field, value.get(name, default), f"{path}.{name}")
        return given

    def control(self, name: str, node: Node, value: Any, path: str) -> Any:
        """Draw the control of one field and return its value."""
        options = alternatives(node, self.definitions)
        objects = [option for option in options if is_object(option)]
        numbers = [option for option in options if option.get("type") in ("integer", "number")]
        nullable = any(option.get("type") == "null" for option in options)
        hint = prose(str(node.get("description", "")))
        names = [option["enum"] for option in options if "enum" in option and not is_object(option)]
        if names and objects and not isinstance(value, Mapping) and "kind" not in objects[0]["properties"]:
            return self._choice(name, names[0], value, path, hint, nullable)
        if objects and not (numbers and not isinstance(value, Mapping)):
            return self._object(name, node, objects, value, path, nullable, hint)
        bare = [option for option in options if not is_object(option) and option.get("type") != "null"]
        if len(bare) == 1:
            if "enum" in bare[0]:
                return self._choice(name, bare[0]["enum"], value, path, hint, nullable)
            plain = {"boolean": self._toggle, "integer": self._number, "number": self._number, "string": self._text}
            if (sort := _type(bare[0])) in plain:
                return plain[sort](name, bare[0], value, path, hint, nullable)
            entries = alternatives(bare[0].get("items", {}), self.definitions)
            if all(map(is_object, entries)) and isinstance(value, list):
                return self._list(name, bare[0], value, path, hint)
        return self._yaml(name, bare[0] if len(bare) == 1 else node, value, path, hint)

    def _object(
        self,
        name: str,
        node: Node,
        objects: list[dict[str, Any]],
        value: Any,
        path: str,
        nullable: bool,
        hint: str,
    ) -> Any:
        value = None if value is NOTHING else opened(node, value, self.definitions)
        if nullable and not self._toggle(name, {}, value is not None, f"{path}?", hint, False):
            return None
        if not isinstance(value, Mapping):
            value = {} if isinstance(value, (str, type(None))) else {"init": value}
        kinds = {kind: one for one in objects if (kind := kind_of(one))}
        with self._frame(name, node, objects, value):
            if not kinds:
                st.caption(_title(name), help=hint)
                given = self.fields(objects[0], value, path)
                self.beside[path] = st.empty()
                return given
            kind = str(self._choice(name, list(kinds), value.get("kind", next(iter(kinds))), path, hint, False))
            kept = value if value.get("kind") == kind else {}
            given = self.fields(kinds[kind], kept, f"{path}.{kind}")
            self.beside[path] = st.empty()
            return {"kind": kind} | given

    def _frame(self, name: str, node: Node, objects: list[dict[str, Any]], value: Any) -> Any:
        """The container of an object's controls; if it has nested objects, an expander, open if a value is set."""
        within = [field for one in objects for field in one["properties"].values()]
        if not any(is_object(alternative) for field in within for alternative in alternatives(field, self.definitions)):
            return st.container(border=True)
        return st.expander(_title(name), expanded=bool(lean(node, value, self.definitions)))

    def _choice(self, name: str, options: list[Any], value: Any, path: str, hint: str, nullable: bool) -> Any:
        key = self._begin(path, value if value in options else None if nullable else options[0])
        if len(options) <= MOST_SEGMENTS and sum(len(str(option)) for option in options) < 30:
            return st.segmented_control(_title(name), options, key=key, help=hint, required=not nullable)
        shown = [None, *options] if nullable else options
        return st.selectbox(_title(name), shown, key=key, help=hint, width=BOX)

    def _toggle(self, name: str, node: Node, value: Any, path: str, hint: str, nullable: bool) -> bool:
        return bool(st.toggle(_title(name), key=self._begin(path, value is True), help=hint))

    def _number(self, name: str, node: Node, value: Any, path: str, hint: str, nullable: bool) -> Any:
        whole = node["type"] == "integer"
        cast = int if whole else float
        least, most = (None if (end := node.get(word)) is None else cast(end) for word in ("minimum", "maximum"))
        first = cast(value) if isinstance(value, (int, float)) else None if nullable else (least or cast(1))
        shape: dict[str, Any] = {"step": 1} if whole else {"format": "%g", "step": _step(first)}
        key = self._begin(path, first)
        return st.number_input(_title(name), least, most, key=key, help=hint, width=NUMBER, **shape)

    def _text(self, name: str, node: Node, value: Any, path: str, hint: str, nullable: bool) -> str | None:
        key = self._begin(path, value if isinstance(value, str) else "")
        known = st.session_state[key]
        if name in SENTENCES:
            return st.text_area(_title(name), key=key, help=hint, height="content") or (None if nullable else "")
        typed = st.text_input(_title(name), key=key, help=hint, width=BOX if len(known) < 24 else "stretch") or ""
        return None if nullable and not typed else typed

    def _yaml(self, name: str, node: Node, value: Any, path: str, hint: str) -> Any:
        """Fields without a control are edited as YAML."""
        key, title = self._begin(path, yaml_to_edit(node, value)), f"{_title(name)} (YAML)"
        box = st.text_area if takes_lines(node) else st.text_input
        typed = box(title, key=key, help=hint) or ""
        self.beside[path] = st.empty()
        if not typed.strip():
            return None if value is NOTHING or value is None else type(value)()
        read, wrong = read_yaml(typed)
        if wrong:
            _complain(self.beside.pop(path), wrong)
        return read

    def _list(self, name: str, node: Node, value: Any, path: str, hint: str) -> list[Any]:
        """A list of objects: each with its controls and a button to remove it, and a button to add one."""
        key = f"{self.prefix}{path}[]"
        entries: list[tuple[int, Any]] = st.session_state.setdefault(key, list(enumerate(value)))
        sorts = {_sort(alternative): alternative for alternative in alternatives(node["items"], self.definitions)}
        items = []
        for number, (entry, begun) in enumerate(entries):
            with st.container(border=True):
                place = f"{path}.{entry}"
                row = st.container(horizontal=True, vertical_alignment="bottom")
                with row:
                    sort = self._choice("sort", list(sorts), _sort(fitting(list(sorts.values()), begun)), place, hint,
                                        False)  # fmt: skip
                given = self.fields(sorts[sort], begun if isinstance(begun, Mapping) else {}, f"{place}.{sort}")
                constants = {field: one["const"] for field, one in sorts[sort]["properties"].items() if "const" in one}
                items.append(lean(sorts[sort], given | constants, self.definitions))
                self.beside[f"{path}.{number}"] = st.empty()
                if row.button("Remove", key=f"{self.prefix}{place}-", icon=":material/delete:"):
                    st.session_state[key] = [kept for kept in entries if kept[0] != entry]
                    st.rerun()
        if st.button(f"Add to {_title(name)}", key=f"{self.prefix}{path}+", icon=":material/add:", help=hint):
            st.session_state[key] = [*entries, (1 + max((entry for entry, _ in entries), default=-1), {})]
            st.rerun()
        return items

    def tell(self, problems: list[tuple[str, str]]) -> None:
        """Show each problem beside the closest control that it refers to."""
        messages: dict[str, list[str]] = {}
        for path, said in problems:
            within = [own for own in self.beside if f"{path}.".startswith(f"{own}.")]
            if within:
                messages.setdefault(max(within, key=len), []).append(said)
        for path, sentences in messages.items():
            _complain(self.beside[path], " ".join(sentences))

    def _begin(self, path: str, value: Any) -> str:
        """The key of a control, which holds `value` when it is first drawn."""
        key = f"{self.prefix}{path}"
        if key not in st.session_state:
            st.session_state[key] = value
        return key


def edited(form: Form, node: Node, value: Any, path: str) -> Any:
    """Draw a control for each field of an object and return its value in its shortest form."""
    option = member(node, value, form.definitions)
    assert option is not None
    return lean(node, form.fields(option, value, path), form.definitions)


def _complain(beside: DeltaGenerator, said: str) -> None:
    beside.caption(f":red[:material/error: {prose(said)}]")


def _sort(node: Node) -> str:
    """The label of an entry of a list whose entries may be of several types."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", str(node.get("title", "entry"))).lower()


def _type(node: Node) -> str:
    """The type of a value that is not an object; of several types, `string`, in which all can be entered."""
    sort = node.get("type", "")
    return sort if isinstance(sort, str) else "string"


def _title(name: str) -> str:
    return escape(name.replace("_", " "))


def _step(value: float | None) -> float:
    """A tenth of the value's power of ten."""
    return 0.1 if not value else float(f"1e{int(f'{abs(value):e}'.rpartition('e')[2]) - 1}")


Switches = dict[str, dict[str, Any]]
TOLD = "What the setting removes or replaces, for the sentences of the answer; if empty, they are made from its paths."


def edit_switches(draft: Mapping[str, Any], schema: Node, prefix: str) -> dict[str, Any]:
    """Show the switches with their buttons, and the controls that add to them.

    Args:
        schema: The answer of `drafter.schema`.
        prefix: Prefix of the keys of all controls.

    Returns:
        The new `switches` and `variants` of the space.
    """
    kept = st.session_state.setdefault(f"{prefix}switches", draft["switches"])
    switches: Switches = {name: dict(settings) for name, settings in kept.items()}
    told = ask("words", draft["model"], switches) or {}
    for name, settings in list(switches.items()):
        with st.container(border=True):
            row = st.container(horizontal=True, vertical_alignment="center")
            first = next((setting for setting, _ in _settings(settings)), "")
            row.markdown(f"**{_title(name)}**  \n:small[baseline: {escape(first)}]", width="stretch")
            if row.button("Remove", key=f"{prefix}remove.{name}", icon=":material/delete:", help="Remove this switch"):
                del switches[name]
                _put(prefix, switches)
            for word in WORDS:
                if word in settings:
                    st.caption(escape(f"{word} {settings[word]}"))
            lines = []
            for setting, paths in _settings(settings)[1:]:
                said = ", ".join(f"{path}: {json.dumps(value, ensure_ascii=False)}"
                                 for path, value in paths.items() if path not in WORDS)  # fmt: skip
                words = told.get(name, {}).get(setting, "")
                path = f"  \n  :small[{escape(said)}]" if said else ""
                lines.append(f"- **{escape(setting)}**{f': {escape(words)}' if words else ''}{path}")
            st.markdown("\n".join(lines))
    variants = {
        name: settings
        for name, settings in draft.get("variants", {}).items()
        if all(switch in WORDS or setting in switches.get(switch, {}) for switch, setting in settings.items())
    }
    if variants:
        with st.container(border=True):
            st.markdown("**Settings together**")
            for name, settings in variants.items():
                words = (told.get(switch, {}).get(setting) or f"{switch}={setting}"
                         for switch, setting in settings.items() if switch not in WORDS)  # fmt: skip
                st.markdown(f"- **{escape(name)}**: {escape(' + '.join(words))}")
    by_path = st.expander("Add a setting by its path", key="by path", on_change="rerun")
    if by_path.open:
        with by_path:
            _add(switches, schema, prefix)
    return {"switches": switches, "variants": variants}


def take_offer(part: str, offers: Sequence[Mapping[str, Any]], draft: Mapping[str, Any], prefix: str) -> None:
    """Buttons and a list of what can be done with a part of the block; a click makes a setting of it.

    Args:
        part: The slot of the part.
        offers: The answer of `drafter.offers`.
        prefix: Prefix of the keys of all controls.
    """
    st.markdown(f"**{escape(part.replace('_', ' '))}**")
    if not offers:
        st.caption("No single setting changes this part and gives a valid model. Add one below, or change the block.")
    switches: Switches = st.session_state.get(f"{prefix}switches", draft["switches"])
    settings = sum(map(len, switches.values()))
    chosen = None
    for number, offer in enumerate(offer for offer in offers if offer["removes"]):
        if st.button(f"Remove {escape(offer['words'])}", key=f"{prefix}take.{number}", icon=":material/remove_circle:"):
            chosen = offer
    others = {str(offer["words"]): offer for offer in offers if not offer["removes"]}
    if others:
        words = st.selectbox("Replace or vary", list(others), None, key=f"{prefix}other.{part}.{settings}")
        chosen = others[words] if words else chosen
    if chosen is not None:
        st.toast(escape(f"Below the block: a switch for {chosen['words']}"), icon=":material/check:")
        _put(prefix, _with_setting(switches, chosen))


def _with_setting(switches: Switches, offer: Mapping[str, Any]) -> Switches:
    """The switches with the setting of an offer; the switch is named after the path that is its subject."""
    *parents, last = str(offer["path"]).removeprefix("block.").split(".")
    name = "_".join([*parents[-1:], last]) if last in ("mixer", "mlp") else last
    if any(offer["path"] not in paths for _, paths in _settings(switches.get(name, {}))[1:]):
        name = "_".join([*parents, last])
    value = offer["setting"][offer["path"]]
    setting = "removed" if offer["removes"] else json.dumps(value).strip('"').replace(".", "_")
    return {**switches, name: {"kept": {}, **switches.get(name, {}), setting: {**offer["setting"], **offer["text"]}}}


def _add(switches: Switches, schema: Node, prefix: str) -> None:
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
