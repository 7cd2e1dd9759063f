"""Design a space with controls: the block with its drawing and cost, the switches, and the YAML for `ablate study`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd
import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from ablate.analysis.numbers import count, duration, plural, scaled
from ablate.render.blocks import Grid
from dashboard.shared.exports import Maker, code, export, is_narrow, plain_table, table_files
from dashboard.shared.form import Form, edit_switches, edited, take_offer
from dashboard.shared.pictures import Draft, ask, packed, pick_part, text_of, unpacked
from dashboard.shared.running import begin_study
from dashboard.shared.schema import NOTHING, Node, alternatives, default_of, lean, member, opened
from dashboard.shared.store import location, read_only, speed
from dashboard.shared.text import escape, prose
from dashboard.views import Entry

ENTRY = Entry("Design a space", ":material/design_services:", "All studies", 150)

SPACE = "space"
"""The parameter of the address that holds the draft."""
ESTIMATED = "text of the draft whose time was asked for"
DRAFT, REVISION = "draft of a space", "revision of the draft"
COUNTS = {"parameters": "parameters", "flops": "FLOP", "activation_bytes": "bytes"}
PARTS = {"mixer": "{mixer}", "mlp": "MLP", "rest": "norms, skips, gains", "total": "all layers"}
"""Parts of the cost to what they are called, with the kind of the mixer."""
TABS = ("Block", "Model", "Training", "Design", "Claims", "Fairness")


def show() -> None:
    """Draw the page."""
    st.title("Design a space", anchor=False)
    st.caption(
        "A space is what a study trains: a model, what is changed in it, its data and how it learns. Differences "
        "below its margin do not matter."
    )
    with st.spinner("Looking up the kinds of mixer, task and design"):
        schema = ask("schema")
    if schema is None:
        st.error("The process that checks spaces could not be started; the terminal of the dashboard shows the error.")
        return
    _begin(schema)
    controls, shown = st.columns([3, 2], gap="large")
    with controls:
        draft, form, places = _controls(schema)
    st.session_state[DRAFT] = draft
    st.query_params[SPACE] = st.session_state["space in the address"] = packed(draft)
    text = text_of(draft)
    checked = ask("check", draft, text, st.session_state.get("block at the start")) or {"problems": ["No answer."]}
    form.tell([(path, said) for path, said in checked.get("beside", [])])
    _picture(draft, schema, checked, form.prefix, places)
    with shown:
        _validity(checked, draft)
    with places.brief if is_narrow() else shown:  # below the changes, above the fields that few studies change
        if is_narrow():
            st.markdown(f"**{prose(_brief(checked))}**")
        if not checked["problems"]:
            begin_study(str(draft["name"]), text)
    with shown:
        _estimate(draft, text, checked)
        _cost(draft, checked)
        _yaml(draft, text, checked, schema)


def _begin(schema: Node) -> None:
    """The draft in the address if it is new, otherwise the edited draft, otherwise a space to start from."""
    asked = st.query_params.get(SPACE)
    if asked and asked != st.session_state.get("space in the address"):
        found = unpacked(asked)
        if found is None:
            st.toast("The address holds no space; this is a fresh one.", icon=":material/help:")
        else:
            _load(found)
    if DRAFT not in st.session_state:
        _load(_shortest(schema, ask("start", schema["spaces"][0])))
    with st.popover("Start from another space or block", icon=":material/restart_alt:"):
        space = st.selectbox("Space", schema["spaces"], key="start-space", width=240)
        if st.button("Start from this space"):
            _load(_shortest(schema, ask("start", space)))
            st.rerun()
        block = st.selectbox("Block", schema["blocks"], schema["blocks"].index("pre_ln"), key="start-block", width=240)
        if st.button("Take this block"):
            draft = st.session_state[DRAFT]
            model = {key: value for key, value in draft["model"].items() if key not in ("block", "exceptions")}
            _load(_shortest(schema, draft | {"model": model | ask("block", block)}))
            st.rerun()


def _shortest(schema: Node, plain: Draft) -> Draft:
    shortest: Draft = lean(schema["space"], plain, schema["space"]["$defs"])
    return shortest


def _load(draft: Draft) -> None:
    st.session_state[DRAFT] = draft
    st.session_state["block at the start"] = draft["model"].get("block")
    st.session_state[REVISION] = st.session_state.get(REVISION, 0) + 1


@dataclass(frozen=True, slots=True)
class Places:
    """Where the form has room for what its draft gives.

    Attributes:
        block: For the drawing of the block.
        part: For what can be done with the part that was clicked, above the changes.
        brief: For what it all amounts to in a narrow window, below them.
    """

    block: DeltaGenerator
    part: DeltaGenerator
    brief: DeltaGenerator


def _controls(schema: Node) -> tuple[Draft, Form, Places]:
    """Controls for every part of a space: the draft that they are set to, and their form with its places."""
    draft: Draft = dict(st.session_state[DRAFT])
    definitions = schema["space"]["$defs"]
    fields = schema["space"]["properties"]
    # Other keys in a narrow window: a run that its width interrupts may have set values that the browser never got.
    prefix = f"draft{st.session_state[REVISION]}{'-narrow' * is_narrow()}."
    form = Form(definitions, prefix, elsewhere={"model.block", "objective.margin"})
    with st.container(horizontal=True, vertical_alignment="bottom"):
        draft["name"] = form.control("name", fields["name"], draft.get("name", ""), "name")
        margin = definitions["ObjectiveSpec"]["properties"]["margin"]
        value = form.control("margin", margin, draft["objective"].get("margin", NOTHING), "objective.margin")
        draft["objective"] = {**draft["objective"], "margin": value}
        draft |= _trained(draft, form, definitions, fields)
    draft["question"] = form.control("question", fields["question"], draft.get("question", ""), "question")
    data = st.expander("Data and task", key="data", on_change="rerun")
    if data.open:
        with data:
            draft |= _task(draft, form, fields)
    block, changes = st.columns(2, gap="medium")
    with changes:
        part = st.container()
        draft |= edit_switches(draft, schema, form.prefix)
    places = Places(block, part, st.container())
    more = st.expander("More: every field of the space", key="more", on_change="rerun")
    if more.open:
        with more:
            draft |= _more(draft, form, schema)
    return lean(schema["space"], draft, definitions), form, places


def _trained(draft: Draft, form: Form, definitions: Node, fields: Node) -> Draft:
    """Controls of how many seeds, how many steps and which rate, where a number says it; they are not below again."""
    nodes = definitions["TrainingSpec"]["properties"]
    design, training = opened(fields["design"], draft["design"], definitions), dict(draft["training"])

    def number(label: str, name: str, node: Node, value: Any, path: str) -> Any:
        form.elsewhere.add(f"{path}.{name}")
        return form.control(label, node["properties"][name], value, f"{path}.{name}")

    kind = member(fields["design"], design, definitions)
    if kind is not None and not design.get("seeds_per_rung"):
        seeds = design.get("seeds", default_of(kind, "seeds"))
        if isinstance(seeds, int):  # no schedule
            design = {**design, "seeds": number("seeds", "seeds", kind, seeds, f"design.{design['kind']}")}
    training["steps"] = number("steps", "steps", definitions["TrainingSpec"], training.get("steps"), "training")
    optimizer = opened(nodes["optimizer"], training.get("optimizer"), definitions)
    kind = member(nodes["optimizer"], optimizer, definitions)
    if kind is not None and not (draft.get("tune") or draft.get("tuned")):
        path = f"training.optimizer.{optimizer['kind']}"
        training["optimizer"] = {**optimizer, "lr": number("learning rate", "lr", kind, optimizer.get("lr"), path)}
    return {"design": design, "training": training}


def _task(draft: Draft, form: Form, fields: Node) -> Draft:
    if draft.get("tasks"):
        st.caption("This space has several tasks; edit them, and how they are averaged, in its YAML.")
        return {}
    task = form.control("task", fields["task"], draft["task"], "task")
    return {"task": lean(fields["task"], task, form.definitions)}


def _more(draft: Draft, form: Form, schema: Node) -> Draft:
    """The fields that few studies change, those of one tab at a time."""
    definitions, fields = schema["space"]["$defs"], schema["space"]["properties"]
    tabs = dict(zip(TABS, st.tabs(list(TABS), key="tabs", on_change="rerun"), strict=True))
    shown = next((name for name, tab in tabs.items() if tab.open), TABS[0])
    with tabs[shown]:
        if shown == "Block":
            block = edited(form, definitions["BlockSpec"], draft["model"].get("block", {}), "model.block")
            return {"model": {**draft["model"], "block": block}}
        if shown == "Model":
            model = edited(form, definitions["ModelSpec"], draft["model"], "model")
            return {"model": lean(fields["model"], model, definitions)}
        if shown == "Training":
            return {"training": edited(form, definitions["TrainingSpec"], draft["training"], "training")}
        if shown == "Design":
            design = lean(fields["design"], form.control("design", fields["design"], draft["design"], "design"),
                          definitions)  # fmt: skip
            objective = edited(form, definitions["ObjectiveSpec"], draft["objective"], "objective")
            source = form.control("source", fields["source"], draft.get("source", ""), "source")
            return {"design": design, "objective": objective, "source": source}
        if shown == "Claims":
            return {"claims": form.control("claims", fields["claims"], draft.get("claims", []), "claims")}
        given = {name: draft.get(name, default_of(schema["space"], name)) for name in ("tune", "match")}
        return {name: lean(fields[name], form.control(name, fields[name], value, name), definitions)
                for name, value in given.items()}  # fmt: skip


def _validity(checked: dict[str, Any], draft: Draft) -> None:
    problems = checked["problems"]
    if problems:
        st.error("\n".join(f"- {prose(problem)}" for problem in problems), icon=":material/block:")
        return
    compares = checked["variants"] > 1 or not checked["without_effect"]  # or the first warning is that it does not
    if compares and not is_narrow():  # where the line below the changes says it
        st.success(f"A valid space: {escape(str(draft['name']))}", icon=":material/check_circle:")
    if warnings := [*checked["without_effect"], *checked["doubts"]]:
        st.warning("\n".join(f"- {prose(line)}" for line in warnings), icon=":material/warning:")
    facts = st.container(horizontal=True)
    facts.metric("Valid variants", f"{checked['variants']:,}", width="content",
                 help="Different models among the points that the design knows before results")  # fmt: skip
    if checked["points"] != checked["variants"]:
        facts.metric("Points", f"{checked['points']:,}", width="content")
    if size := checked["size"]:
        facts.metric("Trials", f"{size['trials']:,}", width="content", help="Variants times seeds")
        facts.metric("Arithmetic, about", f"{scaled(size['flops'])}FLOP", width="content",
                     help="Of the blocks of the baseline, in all trials")  # fmt: skip
        if rate := speed():
            facts.metric("Time, rough guess", duration(size["flops"] / rate), width="content",
                         help=f"One trial at a time, at the {scaled(rate)}FLOP/s of trials in this store")  # fmt: skip
    (least, most), rates = checked["training"]["seeds"], checked["training"]["rates"]
    if most > least or len(rates) > 1:  # which no field above says
        st.caption(prose(how_it_trains(checked["training"])))
    if checked["points"] == len(checked["names"]):  # all of them
        st.caption(escape(f"To be trained: {'; '.join(checked['names'])}"))
    if checked["invalid"]:
        table = pd.DataFrame(checked["invalid"])
        left_out = st.expander(f"{len(table)} points are invalid and are left out", key="invalid", on_change="rerun")
        if left_out.open:
            left_out.dataframe(table, hide_index=True, alt="Invalid points, with the reasons",
                               column_config={"reason": st.column_config.TextColumn(width="large")})  # fmt: skip


def _brief(checked: dict[str, Any]) -> str:
    """How large a valid space is and about how long it trains, in a line."""
    if checked["problems"]:
        return "Not a valid space yet; what is wrong stands below."
    size, rate = checked["size"], speed()
    trials = plural(size["trials"], "trial") if size else ""
    time = f"roughly {duration(size['flops'] / rate)}" if size and rate else ""
    return ", ".join(filter(None, (f"Valid: {plural(checked['variants'], 'variant')}", trials, time)))


def how_it_trains(training: Mapping[str, Any]) -> str:
    """The steps, seeds and learning rate of each variant, in a sentence.

    Args:
        training: The answer of `drafter.check`.
    """
    (least, most), rates = training["seeds"], training["rates"]
    seeds = plural(least, "seed") if least == most else f"{least} to {most} seeds"
    rate = f"the learning rate {rates[0]:g}"
    if len(rates) > 1:
        rate = f"a tuned learning rate of its own between {rates[0]:g} and {rates[-1]:g}"
    return f"Each variant is trained for {training['steps']:,} steps with {seeds}, at {rate}."


def _picture(draft: Draft, schema: Node, checked: dict[str, Any], prefix: str, places: Places) -> None:
    """The drawing of the block beside the initial one, and what can be done with the part that was clicked.

    If the block is invalid, the last valid one is shown.
    """
    if checked.get("picked"):
        st.session_state["last picture"] = checked["picked"]
    svg = st.session_state.get("last picture")
    if not svg:
        return
    with places.block:
        if not checked.get("picked"):
            st.caption("The last valid block:")
        key = f"{prefix}part"
        if part := pick_part(svg, st.session_state.get(key, "")):
            st.session_state[key] = part
            st.rerun()  # so that the part is marked
    with places.part:
        part = st.session_state.get(key, "")
        if not part:
            does = "Tap" if is_narrow() else "Click"
            st.info(f"{does} a part of the block to leave it out, replace or vary it.", icon=":material/ads_click:")
            return
        with st.spinner("Looking up what fits"):
            offers = ask("offers", draft, part, _values(schema)) or []
        take_offer(part, offers, draft, prefix)


def _values(schema: Node) -> dict[str, list[Any]]:
    """Paths in the block to the values that they may take, where these can be listed."""
    found: dict[str, list[Any]] = {}
    for path, node in schema["paths"].items():
        if path.startswith("block.") and not path.endswith(".kind"):
            options = alternatives(node, schema["space"]["$defs"])
            listed = [value for option in options for value in option.get("enum", [])]
            found[path] = listed + [True, False] * any(option.get("type") == "boolean" for option in options)
    return found


def _cost(draft: Draft, checked: dict[str, Any]) -> None:
    cost = checked.get("cost")
    if not cost:
        return
    rows = tuple((said, *(count(cost[part][name]) for name in COUNTS)) for part, said in _parts(draft).items())
    told = f"Cost of the block: {cost['total']['parameters']:,} parameters in all layers"
    plain_table(Grid(("part of a layer", *COUNTS.values()), (rows,), frozenset((0,))), told)
    st.caption(
        f"FLOP: arithmetic of one pass over {cost['context']:,} tokens. Bytes: what training keeps of that pass to "
        "compute gradients. The last row is all layers together."
    )


def _parts(draft: Draft) -> dict[str, str]:
    """The parts of the cost to what they are called."""
    mixer = draft["model"].get("block", {}).get("mixer", "")
    kind = mixer.get("kind", "") if isinstance(mixer, dict) else mixer
    return {part: said.format(mixer=str(kind).replace("_", " ") or "mixer") for part, said in PARTS.items()}


def _estimate(draft: Draft, text: str, checked: dict[str, Any]) -> None:
    # It reads the files that the draft names, so only a click on this draft may start it, never an address.
    if read_only():
        st.caption("`ablate plan` says it in the terminal; this dashboard only reads its store.")
        return
    asked = st.button("Measure the time here", key="estimate", disabled=bool(checked["problems"]),
                      help="Prepares the data of the space, once, measures this machine, and counts what the store "
                      "has already, as `ablate plan` does")  # fmt: skip
    if asked:
        st.session_state[ESTIMATED] = text
    if st.session_state.get(ESTIMATED) == text:
        st.fragment(_time, parallel=True)(draft, text)


def _time(draft: Draft, text: str) -> None:
    with st.spinner("Preparing the data and measuring this machine"):
        estimate = ask("plan", draft, text, location())
    if estimate is None or "problem" in estimate:
        st.warning(prose(estimate["problem"] if estimate else "The estimate failed."))
        return
    facts = st.container(horizontal=True)
    facts.metric("Trials", f"{estimate['trials'] + estimate['later']:,}", width="content")
    facts.metric("Done already", f"{estimate['done']:,}", width="content", help="In the store of this dashboard")
    facts.metric("Arithmetic", f"{scaled(estimate['flops'])}FLOP", width="content")
    facts.metric("Estimated time", duration(estimate["seconds"]), width="content")
    st.caption(prose(f"With {estimate['workers']} workers, by {estimate['basis']}. {estimate['further']}"))


def _yaml(draft: Draft, text: str, checked: dict[str, Any], schema: Node) -> None:
    """The space as text; a change of it is taken over once it is a space."""
    typed = st.text_area("The space as YAML", text, height=420, key=f"yaml {hash(text)}") or ""
    if typed.strip() != text.strip():
        found = ask("read", typed) or {"problem": "No answer."}
        if "space" in found:
            _load(_shortest(schema, found["space"]))
            st.rerun()
        st.error(prose(found["problem"]), icon=":material/block:")
    if checked["problems"]:
        st.caption("It can be downloaded once it is valid.")
        return
    name = str(draft["name"])
    files: dict[str, Maker] = {f"{name}.yaml": lambda: text, f"{name}.svg": lambda: checked["svg"]}
    rows = [{"part": said, **checked["cost"][part]} for part, said in _parts(draft).items()]
    export(files | table_files(f"{name}_cost", pd.DataFrame(rows)), "space")
    st.caption("Then, in a terminal:")
    code(f"ablate validate {name}.yaml\nablate study {name}.yaml")
