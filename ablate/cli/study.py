"""`ablate study`: train what a space asks for and answer its question."""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import TYPE_CHECKING

from ablate.cli.cluster_options import (
    AddressOption,
    CheckpointOption,
    CpusOption,
    EngineOption,
    GpusOption,
    LabelOption,
    MemoryOption,
    ResourceOption,
    StorageOption,
    refuse_without_cluster,
    with_options,
)
from ablate.cli.loading import load_asked, read
from ablate.cli.options import (
    DEFAULT_STORE,
    FAILED,
    INTERRUPTED,
    AcceptCodeOption,
    CacheOption,
    DataOption,
    DesignOption,
    DeviceOption,
    JsonOption,
    LogToOption,
    PackOption,
    PluginOption,
    SeedsOption,
    SpaceArgument,
    StoredOption,
    StoreOption,
    ThreadsOption,
    TimeOption,
    WorkersOption,
    pack_size,
    store_flag,
)
from ablate.command_line import command
from ablate.errors import StoreError
from ablate.render.terminal.console import make_console, print_json

if TYPE_CHECKING:
    from rich.console import Console

    from ablate.execution.driver import StudyResult


def study(
    file: SpaceArgument,
    data: DataOption = None,
    seeds: SeedsOption = None,
    design: DesignOption = None,
    stored: StoredOption = False,
    store: StoreOption = DEFAULT_STORE,
    device: DeviceOption = "auto",
    workers: WorkersOption = None,
    threads: ThreadsOption = 1,
    pack: PackOption = "auto",
    cache: CacheOption = None,
    plugin: PluginOption = None,
    json_: JsonOption = False,
    engine: EngineOption = "local",
    address: AddressOption = None,
    cpus: CpusOption = None,
    gpus: GpusOption = None,
    memory: MemoryOption = None,
    resource: ResourceOption = None,
    label: LabelOption = None,
    checkpoint_every: CheckpointOption = None,
    storage: StorageOption = None,
    log_to: LogToOption = None,
    accept_changed_code: AcceptCodeOption = False,
    time: TimeOption = False,
) -> int:
    """Train what a space asks for and answer its question.

    Run it again to continue where it stopped: finished trials are in the store and are not trained again. With --json
    the progress goes to stderr and the last line of stdout is an object. Exit codes: 0 fine, 2 invalid space or
    options, 3 some trials failed, 130 interrupted.
    """
    from ablate.analysis.answer import answer_of
    from ablate.api import run
    from ablate.render.answer import print_answer
    from ablate.render.terminal.live import Display
    from ablate.store.database import in_memory

    most = pack_size(pack)
    given = {
        "cpus": cpus,
        "gpus": gpus,
        "memory": memory,
        "checkpoint_every": checkpoint_every,
        "storage": storage,
    }
    if in_memory(store):
        remedy = "Name a file with --store, or leave it out."
        raise StoreError("a store in memory is gone when the command ends", where=f"--store {store}", remedy=remedy)
    refuse_without_cluster(engine, address=address, custom=resource, labels=label)
    space = load_asked(file, store, plugin, data, seeds, design, stored=stored)
    resources = with_options(space.resources, resource, label, **given)
    console = make_console(stderr=json_)
    with Display(console) as display:
        ran = run(
            space,
            store=store,
            device=device,
            workers=workers,
            threads=threads,
            cache=cache,
            plugins=tuple(plugin or ()),
            observer=display,
            engine=engine,
            address=address,
            resources=resources,
            pack=most,
            log_to=tuple(log_to or ()),
            accept_changed_code=accept_changed_code,
            time=time,
        )
    result = ran.result
    assert result is not None, "a study that was run says how that ended"
    if json_:
        counts = {key: value for key, value in asdict(result).items() if key != "interrupted"}
        print_json(counts | {"seconds": round(result.seconds, 3)}, indent=None)
    elif not result.interrupted:
        console.print()
        answer, plugins = answer_of(read(store, result.study)), [f"--plugin={name}" for name in plugin or ()]
        print_answer(answer, console, store=store_flag(store), plugins=plugins)
    _print_ending(result, console)
    return INTERRUPTED if result.interrupted else FAILED if result.failed else 0


def _print_ending(result: StudyResult, console: Console) -> None:
    """The command that continues, while something is left to do."""
    from ablate.analysis.text import plural
    from ablate.render.terminal.console import print_next_steps

    again, all_of = {command(*sys.argv[1:]): ""}, plural(result.trials, "trial")
    if result.interrupted:
        done = result.trained + result.reused + result.diverged + result.pruned
        print_next_steps(console, f"\nStopped with {done} of {all_of} done; they are stored. Continue:", again)
    elif result.failed:
        print_next_steps(console, f"\n{result.failed} of {all_of} failed. Retry:", again)
