"""Commands for answers: what a study found, on the terminal, in files and in a browser."""

from __future__ import annotations

from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ablate.analysis.numbers import plural
from ablate.cli.judge import judge as judge  # a command of this panel
from ablate.cli.options import (
    DIFFERENT,
    FAILED,
    REFUTED,
    CacheOption,
    JsonOption,
    PluginOption,
    SideArgument,
    StoreOption,
    StudyArgument,
    existing_store,
    load_plugins,
    load_trial,
    picture_file,
    read,
    store_flag,
    stored_studies,
)
from ablate.errors import AblateError
from ablate.extras import missing_packages, require
from ablate.locations import DEFAULT_STORE, SKILL
from ablate.processes import command, hide_passwords
from ablate.render.terminal.console import make_console, print_json, print_next_steps, say

if TYPE_CHECKING:
    from ablate.store import Store


def show(
    study: StudyArgument,
    store: StoreOption = DEFAULT_STORE,
    why: Annotated[
        str | None, typer.Option("--why", metavar="VARIANT", help="Explain the verdict on one variant, seed by seed.")
    ] = None,
    table: Annotated[bool, typer.Option("--table", help="Show the ablation table and how to read it.")] = False,
    checks: Annotated[bool, typer.Option("--checks", help="Show all that supports or limits the verdicts.")] = False,
    full: Annotated[bool, typer.Option("--full", help="Show answer, table, checks and claims.")] = False,
    trials: Annotated[
        bool, typer.Option("--trials", help="List the trials with the keys that `evaluate` and `reproduce` accept.")
    ] = False,
    all_: Annotated[bool, typer.Option("--all", help="Show every row of a long answer or table.")] = False,
    task: Annotated[
        str | None, typer.Option("--task", metavar="TASK", help="Show the answer on one task of a suite.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE.svg", help="Write the answer as a picture.")
    ] = None,
    json_: JsonOption = False,
) -> None:
    """Show the answer of a study, finished or not: what can go, what must stay, how sure that is, what to do next."""
    from ablate.analysis.answer import answer_of
    from ablate.analysis.suite import on_task
    from ablate.analysis.why import why as why_of
    from ablate.render.answer import answer_svg, print_answer, print_why
    from ablate.render.as_json import study_json, why_json
    from ablate.render.table import MOST_ROWS, print_checks, print_study, print_table

    if trials:
        show_trials(store, study, json_=json_)
        return
    picture = None if out is None else picture_file("--out", out)
    report, most = on_task(read(store, study), task), None if all_ else MOST_ROWS
    if picture is not None:
        from ablate.render.drawing.svg import write_svg

        write_svg(picture, answer_svg(answer_of(report)))
    console = make_console()
    if why is not None:
        explained = why_of(report, why)
        print_json(why_json(explained)) if json_ else print_why(explained, console)
    elif json_:
        print_json(study_json(report))
    elif full:
        print_answer(answer_of(report), console, store=store_flag(store), everything=True)
        console.print()
        print_study(report, console, most)
    elif table:
        print_table(report, console, most)
    elif checks:
        print_checks(report, console)
    elif out is None:
        shown_by = ("show", study, *(("--task", task) if task else ()), *store_flag(store))
        print_answer(answer_of(report), console, store=store_flag(store), everything=all_, shown_by=shown_by)


def show_trials(store: str, study: str, *, json_: bool) -> None:
    """Print the trials of a study instead of its table."""
    from ablate.analysis.status import list_trials
    from ablate.render.terminal.studies import trials_json, trials_table
    from ablate.store import open_store

    with open_store(store, create=False) as opened:
        trials = list_trials(opened, study)
    if json_:
        print_json(trials_json(trials))
    else:
        make_console().print(trials_table(trials))


def report(
    study: StudyArgument,
    store: StoreOption = DEFAULT_STORE,
    format_: Annotated[
        str,
        typer.Option(
            "--format", metavar="FORMAT", help="terminal, md, html, slides, latex, csv, parquet, json, or your own."
        ),
    ] = "terminal",
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="DIR", help="Folder for the report and its figures.", show_default="printed"),
    ] = None,
    plugin: PluginOption = None,
    json_: JsonOption = False,
) -> None:
    """Report a study: answer, table, figures, claims, environment, cost, and how to reproduce it."""
    from ablate.analysis.findings import read_findings
    from ablate.render.as_json import report_json
    from ablate.render.formats import find_format, print_report, render_report, write_report
    from ablate.store import open_store

    load_plugins(plugin)
    find_format(format_)  # report a mistake in the command line before the store is read
    format_ = "json" if json_ and out is None else format_
    with open_store(store, create=False) as opened:
        findings = read_findings(opened, study)
    if out is None:
        print_json(report_json(findings)) if json_ else print_report(render_report(findings, format_))
        return
    written = [str(path) for path in write_report(findings, format_, out)]
    if json_:
        print_json({"written": written})
    for path in written if not json_ else ():
        say(make_console(), path)
    if find_format(format_).figures and missing_packages("figures"):
        say(make_console(stderr=True), "Without figures: run `pip install 'ablate-blocks[figures]'`.")


class PageFormat(StrEnum):
    """What the pages of `ablate site` are."""

    html = "html"
    md = "md"


def site(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Where to write it.")],
    studies: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="STUDY",
            help="Studies, in the order of the index.",
            show_default="all that have results",
            autocompletion=stored_studies,
        ),
    ] = None,
    store: StoreOption = DEFAULT_STORE,
    title: Annotated[str, typer.Option("--title", metavar="TEXT", help="Title of the index.")] = "Studies",
    format_: Annotated[PageFormat, typer.Option("--format", help="HTML, or Markdown.")] = PageFormat.html,
    json_: JsonOption = False,
) -> None:
    """Write a static site over studies, for any web server: an index with their answers, reports, figures and data.

    Pages run no script and load nothing. Beside each report lie its JSON, with the space, and the table as CSV.
    """
    from ablate.analysis.findings import read_findings
    from ablate.render.site import write_site
    from ablate.store import open_store

    with open_store(store, create=False) as opened:
        names = studies or sorted(study.name for study in opened.studies() if study.finished)
        if not names:
            raise AblateError("no study has results yet", where=opened.where, remedy="Run one: `ablate study FILE`.")
        written = write_site(
            [read_findings(opened, name) for name in dict.fromkeys(names)], folder, format_.value, title
        )
    if json_:
        print_json({"written": [str(file) for file in written]})
    else:
        say(make_console(), f"Wrote {'one study' if len(names) == 1 else f'{len(names)} studies'} to {written[0]}.")
    if missing_packages("figures"):
        say(make_console(stderr=True), "Without figures: run `pip install 'ablate-blocks[figures]'`.")


def claims(
    study: StudyArgument,
    store: StoreOption = DEFAULT_STORE,
    fail_if_refuted: Annotated[
        bool, typer.Option("--fail-if-refuted", help="Exit with 1 if a claim is refuted.")
    ] = False,
    json_: JsonOption = False,
) -> int:
    """Show the verdicts on the claims of a study: supported, refuted or undecided."""
    from ablate.render.as_json import claims_json
    from ablate.render.table import print_claims, print_warnings

    report = read(store, study)
    judged = report.answer.claims
    if json_:
        print_json(claims_json(judged))
    elif judged:
        console = make_console()
        print_warnings(report, console)
        print_claims(judged, console)
    else:
        say(make_console(), f"{study} has no claims. Add them under `claims:` in its space file.")
    return REFUTED if fail_if_refuted and any(claim.verdict == "refuted" for claim in judged) else 0


def gate(
    study: StudyArgument,
    variant: Annotated[
        str | None, typer.Option("--variant", metavar="VARIANT", help="The variant.", show_default="the only one")
    ] = None,
    better: Annotated[
        bool,
        typer.Option("--better/--not-worse", help="Whether it must be better by the margin, or not worse by it."),
    ] = False,
    store: StoreOption = DEFAULT_STORE,
    json_: JsonOption = False,
) -> int:
    """Ask one question about a variant, for CI and loops: is it better than the baseline, or not worse?

    Exit codes: 0 it passes, 1 it does not, 3 undecided (the seeds that would decide are printed), 2 it cannot be asked.
    """
    from ablate.analysis.why import gate as ask
    from ablate.analysis.why import only_variant

    report = read(store, study)
    asked = ask(report, variant or only_variant(report), "better" if better else "not worse")
    if json_:
        print_json(asdict(asked))
    else:
        console = make_console()
        reason = asked.reason[0].upper() + asked.reason[1:].rstrip(".")
        say(console, f"{asked.passed}: {asked.variant}, asked for `{asked.asked}`. {reason}.")
        if asked.next:
            steps = {command(*step.arguments, *store_flag(store)): step.told for step in asked.next}
            print_next_steps(console, "To decide it:", steps)
    return {"passes": 0, "fails": DIFFERENT, "undecided": FAILED}[asked.passed]


def ideas(
    text: Annotated[str, typer.Argument(metavar="TEXT", help="Only ideas that mention this.", show_default="all")] = "",
    store: StoreOption = DEFAULT_STORE,
    json_: JsonOption = False,
) -> None:
    """List the ideas that all studies of a store have tried, with their verdicts, so that none is tried twice.

    An idea is a change that a study compared, or a claim that it tested. Refuted ones come first.
    """
    from ablate.analysis.ideas import chance_warning, read_ideas
    from ablate.render.terminal.studies import ideas_table

    with existing_store(store) as opened:
        found = [] if opened is None else read_ideas(opened, text)
    if json_:
        ideas = [asdict(idea) | {"updated": idea.updated.isoformat()} for idea in found]
        print_json({"ideas": ideas, "caution": chance_warning(found)})
        return
    console = make_console()
    if found:
        console.print(ideas_table(found))
    else:
        say(console, f"No study of {hide_passwords(store)} has tried {text or 'anything'} yet.")
    if found and (warning := chance_warning(found)):
        say(console, warning)


def calibrate(
    study: StudyArgument,
    store: StoreOption = DEFAULT_STORE,
    json_: JsonOption = False,
) -> None:
    """Show the smallest difference that each number of seeds can detect, at the noise of a study's own trials."""
    from ablate.analysis.calibration import read_calibration
    from ablate.render.terminal.studies import calibration_json, print_calibration
    from ablate.store import open_store

    with open_store(store, create=False) as opened:
        calibration = read_calibration(opened, study)
    if json_:
        print_json(calibration_json(calibration))
    else:
        print_calibration(calibration, make_console())


def diff(
    left: SideArgument,
    right: SideArgument,
    store: StoreOption = DEFAULT_STORE,
    plugin: PluginOption = None,
    json_: JsonOption = False,
) -> None:
    """Show what differs between two variants, trials or space files: in spec, environment and result."""
    from ablate.analysis.diff import read_diff
    from ablate.render.terminal.compare import diff_json, print_diff

    load_plugins(plugin)
    difference = read_diff(left, right, store)
    if json_:
        print_json(diff_json(difference))
    else:
        print_diff(difference, make_console())


def export(
    name: Annotated[
        str, typer.Argument(metavar="STUDY|TRIAL", help="A study (--optuna), or the key of a trial (--hf).")
    ],
    optuna: Annotated[
        str | None, typer.Option("--optuna", metavar="URL", help="Optuna's storage, for instance sqlite:///optuna.db.")
    ] = None,
    hf: Annotated[
        Path | None, typer.Option("--hf", metavar="DIR", help="A new folder for the model, as transformers opens it.")
    ] = None,
    store: StoreOption = DEFAULT_STORE,
    cache: CacheOption = None,
    plugin: PluginOption = None,
    json_: JsonOption = False,
) -> None:
    """Write the trials of a study for Optuna, or the model of a trial for Hugging Face.

    With --optuna the trials are added to Optuna's storage, for `optuna-dashboard` and Optuna's plots; run it again to
    add what has ended since. With --hf a trial that kept its weights becomes a folder for `from_pretrained` of
    `transformers`, with tokenizer and card: in its format where it has this model; other decoders with a modelling file
    that needs `trust_remote_code=True` and `ablate`.
    """
    if (optuna is None) == (hf is None):
        raise AblateError(
            "one of --optuna and --hf says what is written",
            where="ablate export",
            got="neither" if hf is None else "both",
            remedy="`ablate export STUDY --optuna URL`, or `ablate export TRIAL --hf DIR`.",
        )
    if optuna is not None:
        done, sentence = _to_optuna(name, optuna, store)
    else:
        assert hf is not None, "one of the two is given"
        done, sentence = _to_hugging_face(name, hf, store, cache, plugin)
    print_json(done, indent=None) if json_ else say(make_console(), sentence)


def _to_optuna(study: str, storage: str, store: str) -> tuple[dict[str, Any], str]:
    """Write the trials; what was written, as data and as a sentence."""
    from ablate.analysis.optuna_export import export_optuna
    from ablate.store import open_store

    with open_store(store, create=False) as opened:
        written, there = export_optuna(opened, study, storage)
    before = f", {there} were there already" if there else ""
    url = hide_passwords(storage)
    done = {"study": study, "written": written, "there": there, "storage": url}
    return done, f"{plural(written, 'trial')} of {study} written to {url}{before}."


def _to_hugging_face(
    trial: str, folder: Path, store: str, cache: Path | None, plugin: list[str] | None
) -> tuple[dict[str, Any], str]:
    """Write the model; what was written, as data and as a sentence."""
    from ablate.nn.model import model_cost
    from ablate.render.card import PICTURE, ModelFacts, card
    from ablate.render.drawing import layout, to_svg
    from ablate.store import open_store
    from ablate.trained.hugging_face.export import write_folder

    trained = load_trial(trial, store, cache, plugin, accept_changed_code=None)
    shape, spec = trained.task.shape, trained.variant.model
    sizes = {"vocabulary": shape.vocabulary, "context": shape.context}
    written = write_folder(folder, spec, trained.model, trained.task.codec(), **sizes)
    with open_store(store, create=False) as opened:
        record = opened.trial(trained.key)
        verdicts = _verdicts(opened, trained.key)
    facts = ModelFacts(
        key=trained.key,
        seed=record.seed,
        cost=model_cost(spec, **sizes),
        metrics=dict(record.metrics),
        verdicts=verdicts,
        native=written.native,
        tokenizer=written.tokenizer,
        data=str(getattr(trained.variant.task, "data", trained.variant.task.kind_name())),
    )
    (folder / "README.md").write_text(card(trained.variant, facts), encoding="utf-8")
    (folder / PICTURE).write_text(to_svg(layout("block", spec.block, bool(spec.exceptions))), encoding="utf-8")
    how = f"as a {written.model_type} model" if written.native else "with a modelling file (trust_remote_code=True)"
    done = {"trial": trained.key, "folder": str(folder), "model_type": written.model_type, "native": written.native}
    return done, f"Wrote trial {trained.key[:12]} to {folder}, {how}."


def _verdicts(store: Store, key: str) -> list[str]:
    """What the studies that planned a trial say of its variant."""
    from ablate.analysis import read_study

    verdicts = []
    for study in store.studies():
        report = read_study(store, study.name)
        variant = next((planned.variant for planned in report.record.planned if planned.key == key), None)
        row = next((row for row in report.variants if row.name == variant), None)
        if row is None:
            continue
        said = "the baseline of the study" if row.name == report.baseline.name else row.verdict_sentence
        verdicts.append(f"{study.name}, {row.name}: {said or 'no verdict'} ({report.metric}, margin {report.margin:g})")
    return verdicts


def mcp(
    folder: Annotated[
        Path, typer.Option("--folder", metavar="DIR", help="Where spaces, studies and data are written.")
    ] = Path("ablate-mcp"),
    max_seconds: Annotated[
        float, typer.Option("--max-seconds", metavar="N", min=0, help="Seconds of training that it may start in all.")
    ] = 600.0,
    allow_code: Annotated[
        bool, typer.Option("--allow-code", help="Let spaces name plugins and trainers, which run as you.")
    ] = False,
    skill: Annotated[
        bool, typer.Option("--skill", help="Print the skill file, which tells an assistant how to ask well, and end.")
    ] = False,
) -> None:
    """Serve an assistant by the Model Context Protocol on standard input and output.

    Its tools describe what a space can say, check a space, plan it, train it within the time that you allow, and read
    the verdicts. Everything is written in one folder.
    """
    if skill:
        print(SKILL.read_text(encoding="utf-8"), end="")
        return
    require("mcp", "the MCP server", where="ablate mcp")
    from ablate.assistant import serve_assistant

    serve_assistant(folder, max_seconds, code=allow_code)


def dashboard(
    stores: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="STORE",
            help="Stores to look at together: files, or SQLAlchemy URLs.",
            show_default="the one of --store",
        ),
    ] = None,
    store: StoreOption = DEFAULT_STORE,
    port: Annotated[
        int | None,
        typer.Option(
            "--port", metavar="N", min=1, max=65535, help="Where to listen.", show_default="8501, or the next free one"
        ),
    ] = None,
    host: Annotated[
        str, typer.Option("--host", metavar="ADDRESS", help="Address to listen on; 0.0.0.0 lets other machines in.")
    ] = "127.0.0.1",
    token: Annotated[
        str | None,
        typer.Option(
            "--token",
            metavar="TEXT",
            help="The token that the dashboard asks each visitor for.",
            show_default="none here; generated and printed with --host",
        ),
    ] = None,
    plugin: PluginOption = None,
) -> None:
    """Look at studies in a browser: answers, curves, trials, comparisons; also while a study runs.

    With --host it asks for a token, and only reads the store.
    """
    from ablate.serving import serve

    serve(stores or [store], port, host, tuple(plugin or ()), token)
