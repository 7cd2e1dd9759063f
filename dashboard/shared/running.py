"""Studies that the dashboard starts: each is a separate process `ablate study`, which outlives the dashboard.

What an answer leaves open has its command to copy and, on this machine, a button that runs it.

A folder `runs` beside the store keeps for each study the last start, its output, and its space if it came from the
designer. Nothing is started or stopped unless the server and the visitor are on the same machine.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from threading import Thread
from typing import Literal

import psutil
import streamlit as st
from pydantic_core import from_json

from ablate.analysis.answer import Answer
from ablate.analysis.next_steps import NextStep, study_arguments
from ablate.analysis.numbers import about
from ablate.analysis.status import StudyStatus, status_of
from ablate.errors import AblateError, NotFoundError
from ablate.processes import child_environment, command, hide_passwords, python_command
from ablate.serving import FORWARDED, LOOPBACK, OPTIONS, host_name
from ablate.spec.annotations import STUDY_NAME
from dashboard.shared.exports import code
from dashboard.shared.frame import STUDY, link, open_page
from dashboard.shared.pictures import text_of
from dashboard.shared.schema import read_yaml
from dashboard.shared.store import LIVE, every, location, options, record, report, store, summary
from dashboard.shared.text import escape, prose

_TAIL = 40_000
"""Number of bytes at the end of a log that are shown."""
_MOVED = "the study whose progress was shown"
_SLACK = 2.0
"""Seconds by which two readings of the start time of a process may differ."""


class RunError(AblateError):
    """A study that cannot be started or stopped from here."""


@dataclass(frozen=True, slots=True)
class Run:
    """The last start of a study from the dashboard.

    Attributes:
        began: Start time of the process, seconds since the epoch.
        started: When it was started, as an ISO time.
        command: The command, passwords hidden.
        log: File of its output.
    """

    study: str
    pid: int
    began: float
    started: str
    command: tuple[str, ...]
    log: str

    @property
    def alive(self) -> bool:
        """Whether the process still runs."""
        try:
            process = psutil.Process(self.pid)
            ours = abs(process.create_time() - self.began) < _SLACK
            return bool(ours and process.status() != psutil.STATUS_ZOMBIE)
        except psutil.Error:
            return False

    def tail(self) -> str:
        """The last `_SHOWN` bytes of its output."""
        try:
            with Path(self.log).open("rb") as log:
                log.seek(0, os.SEEK_END)
                log.seek(max(0, log.tell() - _TAIL))
                return log.read().decode(errors="replace")
        except OSError:
            return ""


def may_run() -> bool:
    """Whether this visitor may start and stop studies: the server listens on loopback, without a proxy before it.

    The headers of the request reveal a proxy, and a host name that resolves to this machine from elsewhere.
    """
    if not options()["may_run"] or hide_passwords(location()) != location():
        return False
    headers = st.context.headers
    if any(headers.get(name) for name in FORWARDED):
        return False
    host = headers.get("Host")
    return host is None or host_name(host) in LOOPBACK


def runs_folder(store: str) -> Path:
    """The folder with the runs of a store; for a database on a server, `studies/runs` in the working folder."""
    return Path("studies/runs").absolute() if "://" in store else Path(store).expanduser().absolute().parent / "runs"


def last_run(study: str) -> Run | None:
    """The last run of a study; None if the dashboard has started none."""
    return _read(_file(study, "json")) if STUDY_NAME.fits(study) else None


def start_space(study: str, text: str) -> Run:
    """Start the study of a space file with this text.

    Raises:
        RunError: Studies may not be started from here, or this one is already running.
    """
    _check(study)
    file = _file(study, "yaml")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")
    plugins = [f"--plugin={plugin}" for plugin in options()["plugins"]]
    return _start(study, ["study", str(file), f"--store={location()}", *plugins])


def start(study: str, arguments: Sequence[str]) -> Run:
    """Start `ablate` with these arguments, which continue a study.

    Raises:
        RunError: Studies may not be started from here, or this one is already running.
    """
    _check(study)
    return _start(study, arguments)


def stop(run: Run) -> None:
    """Ask a run to stop: running trials are checkpointed, and ended ones are stored.

    Raises:
        RunError: Studies may not be stopped from here.
    """
    if not may_run():
        raise RunError("studies can be stopped only on the machine of the dashboard", where=run.study)
    if run.alive:
        os.kill(run.pid, signal.SIGTERM)  # not SIGINT, which a shell may have set to be ignored


def _check(study: str) -> None:
    if not may_run():
        raise RunError("studies can be started only on the machine of the dashboard", where=study)
    if not STUDY_NAME.fits(study):
        raise RunError("this is not a name of a study", where=repr(study))
    before = last_run(study)
    if before is not None and before.alive:
        raise RunError("the study is already running", where=study, remedy="Wait for its end, or stop it.")


def _start(study: str, arguments: Sequence[str]) -> Run:
    log = _file(study, "log")
    log.parent.mkdir(parents=True, exist_ok=True)
    environment = {name: value for name, value in child_environment().items() if name != OPTIONS}
    with log.open("wb") as output:
        process = subprocess.Popen(
            python_command("-m", "ablate", *arguments),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=environment | {"PYTHONUNBUFFERED": "1", "COLUMNS": "120", "NO_COLOR": "1"},
            start_new_session=True,
        )
    try:
        began = psutil.Process(process.pid).create_time()
    except psutil.Error:
        began = 0.0
    Thread(target=process.wait, daemon=True).start()  # so that it does not stay a zombie process
    now = datetime.now(UTC).isoformat(timespec="seconds")
    run = Run(study, process.pid, began, now, ("ablate", *map(hide_passwords, arguments)), str(log))
    _file(study, "json").write_text(json.dumps(asdict(run)), encoding="utf-8")
    return run


def _file(study: str, suffix: str) -> Path:
    return runs_folder(location()) / f"{study}.{suffix}"


def _read(file: Path) -> Run | None:
    """The run that a file describes; None if it does not. Its log is always the one beside the file."""
    try:
        plain = from_json(file.read_bytes())
        command = tuple(str(word) for word in plain["command"])
        log = str(file.with_suffix(".log"))
        return Run(file.stem, int(plain["pid"]), float(plain["began"]), str(plain["started"]), command, log)
    except (OSError, ValueError, KeyError, TypeError):
        return None


def continuing_arguments(study: str, seeds: str = "") -> list[str]:
    """The arguments of `ablate` that continue a study of this dashboard's store."""
    return study_arguments(study, location(), seeds, [str(plugin) for plugin in options()["plugins"]])


def show_command(study: str, seeds: str = "") -> None:
    """Show the command that continues a study."""
    code(command(*continuing_arguments(study, seeds)))


def refresh(study: str) -> float | None:
    """Refresh interval of the live parts of a page, in seconds; None once neither a trial nor a run of it is left."""
    run = last_run(study)
    return every(study) or (LIVE if run is not None and run.alive else None)


def awaits_start() -> bool:
    """Whether the address names a study that this dashboard has started and that is not in the store yet.

    Then the page shows its log until its first trials are planned.
    """
    study = st.query_params.get(STUDY)
    run = last_run(study) if study else None
    if study is None or run is None or _is_stored(study):
        return False
    st.title(f"{'Starting' if run.alive else 'Not started:'} {escape(study, 80)}", anchor=False)
    st.fragment(_await, run_every=LIVE if run.alive else None)(run)
    return True


def _await(run: Run) -> None:
    if _is_stored(run.study) or not run.alive:
        key = f"awaited {run.study} {run.pid}"
        if not st.session_state.get(key):
            st.session_state[key] = True
            st.rerun()
    st.caption("It reads its data and plans its trials; the answer appears here then." if run.alive else "It ended:")
    code(run.tail().strip() or "No output yet.")
    if run.alive:
        stop_button(run)


def _is_stored(study: str) -> bool:
    try:
        return summary(study) is not None
    except NotFoundError:
        return False


def show_progress(study: str, sentence: str) -> None:
    """The progress of a study: a bar with the time left and a button to stop it while it runs, else a sentence."""
    status, run = _status(study), last_run(study)
    alive = run is not None and run.alive
    if status is None and not alive:
        if st.session_state.pop(_MOVED, None) == study:
            st.rerun()  # the whole page, whose parts need not be read again and again any longer
        st.caption(escape(sentence))
        return
    st.session_state[_MOVED] = study
    share, said = 0.0, f"Starting. {sentence}"
    if status is not None:
        driver = status.driver
        ended = driver.settled + driver.failed
        share = min(1.0, ended / max(1, driver.planned))
        left = f", {about(status.seconds_left)} left" if status.seconds_left else ""
        said = f"{ended:,} of {driver.planned:,} trials ended, {driver.running:,} running{left}. "
        said += "There is no verdict on a variant before all its seeds have ended."
    with st.container(horizontal=True, vertical_alignment="center"):
        st.progress(share, escape(said))
        if run is not None and alive:
            stop_button(run)
        link("cluster", "Now running")


def _status(study: str) -> StudyStatus | None:
    """The driver of a study that runs now, and how fast; None if none does."""
    found = (run for run in status_of(store().activity()).studies if run.driver.study == study and run.driver.alive)
    return next(found, None)


def stop_button(run: Run) -> None:
    """A button that stops a run, for those who may."""
    if may_run() and st.button("Stop", icon=":material/stop:", key="stop"):
        stop(run)
        st.toast("Asked to stop: running trials are checkpointed first.", icon=":material/stop:")


def show_next_steps(answer: Answer, title: str = "What next?") -> None:
    """What would settle or extend an answer: each command to copy with its purpose and, on this machine, a button.

    Nothing while the study runs.
    """
    run = last_run(answer.study)
    if not answer.next or _status(answer.study) is not None or (run is not None and run.alive):
        return
    with st.container(border=True):
        st.markdown(f"**{escape(title)}**")
        for number, step in enumerate(answer.next):
            time = f", {about(step.seconds)} of training" if step.seconds else ""
            told = step.purpose if may_run() else step.told
            st.caption(prose(f"{told[0].upper()}{told[1:]}{time}.{_limit(step, answer.study)}"))
            arguments = [*step.arguments, f"--store={location()}"]
            arguments += [f"--plugin={plugin}" for plugin in options()["plugins"]]
            typed = command(*arguments) if step.arguments else step.field
            if typed and (not may_run() or step.arguments[:1] == ("claims",)):  # which starts nothing
                code(typed)
            elif typed:
                act = partial(_take, step, answer.study, arguments)
                with st.container(horizontal=True):
                    start_button(
                        step_label(step, answer.study), "play_arrow", act, f"next-{number}", primary=number == 0
                    )
                    with st.popover("Command" if step.arguments else "In the design", key=f"typed-{number}"):
                        code(typed)
        if run is not None:
            link("runs", "Log of the last run", **{STUDY: answer.study})


def _take(step: NextStep, study: str, arguments: Sequence[str]) -> Run:
    """Start what a step names: its command, or the space of the study with its field of the design."""
    if step.arguments:
        return start(study, arguments)
    space = record(study).space
    return start_space(study, text_of(space | {"design": space["design"] | read_yaml(step.field)[0]}))


def _seeds(step: NextStep, study: str) -> tuple[str, int]:
    """The seeds that a step asks for as it states them, and how many the study would have more at most."""
    options_of = dict(zip(step.arguments, step.arguments[1:], strict=False))
    seeds = options_of.get("--seeds", step.field.partition(":")[2].strip(" ]"))
    return seeds, int(re.split("[:, ]+", seeds)[-1]) - len(report(study).baseline.planned) if seeds else 0


def _limit(step: NextStep, study: str) -> str:
    """When a step ends that adds seeds until all is settled, in a sentence; empty for another."""
    seeds, more = _seeds(step, study)
    return f" The run stops once that is settled, at the latest after {more} more seeds." if ":" in seeds else ""


DESIGNED = {"grid": "Train the other combinations", "simplify": "Try removals together"}
"""What a button does that runs a study with another design."""


def step_label(step: NextStep, study: str) -> str:
    """What a button does that takes a step: `Add 2 seeds, 4 in all`."""
    seeds, more = _seeds(step, study)
    if ":" in seeds:
        return "Add seeds until settled"
    if seeds:
        where = " on the largest rung" if "," in seeds else f", {seeds} in all"
        return f"Add {more} seeds{where}"
    options_of = dict(zip(step.arguments, step.arguments[1:], strict=False))
    if rung := options_of.get("--rung"):
        return f"Add rung {rung}"
    if times := options_of.get("--longer"):
        return f"Train {times} times as long"
    return DESIGNED.get(options_of.get("--design", ""), "Resume")


def begin_study(name: str, text: str) -> None:
    """The button that starts the study of a valid draft; nothing where studies may not be started."""
    if not may_run():
        return
    run = last_run(name)
    busy = run is not None and run.alive
    with st.container(horizontal=True, vertical_alignment="center"):
        start_button("Start this study", "play_arrow", lambda: start_space(name, text), "start-study", disabled=busy,
                     primary=True)  # fmt: skip
        if busy:
            link("answer", "It runs: see its answer grow", **{STUDY: name})
        if summary(name) is not None:
            st.caption("The store has a study of this name; it continues with this space.", width="content")


def start_button(
    label: str, icon: str, act: Callable[[], Run], key: str, *, disabled: bool = False, primary: bool = False
) -> None:
    """A button that starts a run, and shows the error if that fails.

    Args:
        primary: Whether it is what the page is for.
    """
    kind: Literal["primary", "secondary"] = "primary" if primary else "secondary"
    if not st.button(escape(label), icon=f":material/{icon}:", key=key, disabled=disabled, type=kind):
        return
    try:
        run = act()
    except AblateError as error:
        st.error(prose(str(error)))
    else:
        open_page("answer", **{STUDY: run.study})
