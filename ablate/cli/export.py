"""`ablate export`: a study or a model for other programs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ablate.analysis.text import plural
from ablate.cli.loading import load_trial
from ablate.cli.options import DEFAULT_STORE, CacheOption, PluginOption, StoreOption
from ablate.command_line import hide_passwords
from ablate.errors import AblateError
from ablate.render.terminal.console import make_console, say

if TYPE_CHECKING:
    from ablate.store import Store


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
) -> None:
    """Write the trials of a study for Optuna, or the model of a trial for Hugging Face.

    With --optuna the trials are added to Optuna's storage, for `optuna-dashboard` and Optuna's plots; run it again to
    add what has ended since. With --hf a trial that kept its weights becomes a folder for
    `AutoModelForCausalLM.from_pretrained`, with tokenizer and card: in the format of `transformers` where it has this
    model, else with a modelling file that needs `trust_remote_code=True` and `ablate`.
    """
    if (optuna is None) == (hf is None):
        raise AblateError(
            "one of --optuna and --hf says what is written",
            where="ablate export",
            got="neither" if hf is None else "both",
            remedy="`ablate export STUDY --optuna URL`, or `ablate export TRIAL --hf DIR`.",
        )
    if optuna is not None:
        _to_optuna(name, optuna, store)
    elif hf is not None:
        _to_hugging_face(name, hf, store, cache, plugin)


def _to_optuna(study: str, storage: str, store: str) -> None:
    from ablate.analysis.optuna_export import export_optuna
    from ablate.store import open_store

    with open_store(store, create=False) as opened:
        written, there = export_optuna(opened, study, storage)
    before = f", {there} were there already" if there else ""
    say(make_console(), f"{plural(written, 'trial')} of {study} written to {hide_passwords(storage)}{before}.")


def _to_hugging_face(trial: str, folder: Path, store: str, cache: Path | None, plugin: list[str] | None) -> None:
    from ablate.nn.model.build import model_cost
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
    say(make_console(), f"Wrote trial {trained.key[:12]} to {folder}, {how}.")


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
