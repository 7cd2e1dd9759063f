"""A trainer that no one at ablate wrote, as a script and as a module: it does what its parameter `does` says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

SCRIPT = """\
import argparse, json, os, random, subprocess, sys, time
from pathlib import Path

parser = argparse.ArgumentParser()
for name in ("does", "out", "kept", "metrics"):
    parser.add_argument(f"--{name}")
parser.add_argument("--lr", type=float)
parser.add_argument("--steps", type=int)
parser.add_argument("--seed", type=int)
given = parser.parse_args()
metrics, kept = Path(given.metrics), Path(given.kept, "step")
batches, own = random.Random(given.seed), random.Random(f"{given.seed} {given.lr} {given.does}")
print("begins", flush=True)
if given.does == "start_others":  # one in the same group, which would outlive its parent
    other = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(300)"])
    Path(given.out, "other").write_text(str(other.pid))
begin = int(kept.read_text()) if kept.exists() else 0
with metrics.open("w") as file:
    for step in range(begin + 1, given.steps + 1):
        loss = 1 / step + abs(given.lr - 0.1) + batches.gauss(0, 0.02) + own.gauss(0, 0.002)
        if given.does == "diverge" and step == 2:
            loss = float("nan")
        if given.does == "damage" and step == 2:
            file.write('{"step": 2, "val_l\\n')
        row = {"step": step, "train_loss": loss + 0.1, "val_loss": loss}
        if given.does == "unmeasured" and step > 2:
            row["val_loss"] = None
        print(json.dumps(row), file=file, flush=True)
        if given.does == "stop" and step == 2:
            break
        if given.does == "wait" and step == 1:
            while not Path(given.out, "go").exists():
                time.sleep(0.01)
        if given.does in ("die_once", "exit_once") and step == 2 and not kept.exists():
            kept.write_text(str(step))
            os.kill(os.getppid(), 9) if given.does == "die_once" else sys.exit("no luck")
        if given.does == "exit" and step == 2:
            sys.exit("ValueError: the rate is too large")
        if given.does == "hang" and step == 2 or given.does == "start_others":
            time.sleep(300)
"""


def trainer(**changes: Any) -> dict[str, Any]:
    """The `trainer` of a space that runs the script."""
    return {
        "command": [
            "{python}",
            "train.py",
            *("--does={does}", "--lr={lr}", "--steps={steps}", "--seed={seed}"),
            *("--out={folder}", "--kept={checkpoint}", "--metrics={folder}/metrics.jsonl"),
        ],
        "parameters": {"does": "train", "lr": 0.1, "steps": 3},
        "steps": "steps",
        **changes,
    }


def space(**changes: Any) -> dict[str, Any]:
    """A space of two variants and two seeds that runs the script."""
    return {
        "name": "own",
        "question": "Is the rate too large?",
        "trainer": trainer(),
        "switches": {"rate": {"low": {}, "high": {"lr": 0.3}}},
        "design": {"kind": "leave_one_out", "seeds": 2},
        "objective": {"metric": "val_loss", "direction": "minimize", "margin": 0.05},
        **changes,
    }


def write_script(folder: Path, text: str = SCRIPT) -> None:
    (folder / "train.py").write_text(text)
