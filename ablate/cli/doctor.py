"""`ablate doctor`: check this machine in a minute."""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from ablate.cli.options import DIFFERENT, DeviceOption, JsonOption
from ablate.errors import EngineError
from ablate.render.terminal.console import make_console, print_json, say


def doctor(
    device: DeviceOption = "auto",
    out: Annotated[Path, typer.Option("--out", help="The file to attach to a report.")] = Path("ablate-doctor.json"),
    json_: JsonOption = False,
) -> int:
    """Check this machine: versions, memory, equal results by every way of running a step, exchange between processes.

    It trains a small model for seconds in each way, prints a table and writes the same as JSON. Exit codes: 0 fine, 1
    something differs.
    """
    # The profiler that measures memory would say when it starts and stops; torch reads these when it is loaded.
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    if not out.absolute().parent.is_dir():
        raise EngineError("there is no such folder", where=f"--out {out}", remedy="Create it, or name another file.")
    if out.is_dir():
        raise EngineError("this is a folder", where=f"--out {out}", expected="a file", remedy="Name a file in it.")
    from ablate.execution.doctor import examine
    from ablate.execution.environment import choose_device
    from ablate.render.terminal.status import print_findings

    chosen, progress = choose_device(device), make_console(stderr=True)
    findings = []
    for finding in examine(chosen):
        say(progress, f"{finding.name}: {finding.state}", style="dim")
        findings.append(finding)
    results = {"device": chosen, "findings": [asdict(finding) for finding in findings]}
    out.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
    if json_:
        print_json(results)
    else:
        print_findings(findings, make_console())
        say(progress, f"Wrote {out}")
    return DIFFERENT if any(finding.state == "differs" for finding in findings) else 0
