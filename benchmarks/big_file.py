"""Memory and speed of preparing a large text file: the peak memory must not grow with the file.

`python -m benchmarks.big_file 2048` uses a file of 2 GiB (and twice that for the tokens). `ablate data` with a file of
10 GiB took 162 s of processor time and at most 377 MiB (2026-11-21).
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
import tempfile
from itertools import count
from pathlib import Path

SMALL = 64
"""Default file size in MiB."""

_PREPARE = """
import json, resource, sys, time
from pathlib import Path
from ablate.spec.task import TaskSpec
spec = TaskSpec.parse(json.loads(sys.argv[1]))
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
begin = time.perf_counter()
task = spec.open(Path(sys.argv[2]), spec.prepare(Path(sys.argv[2]), lambda line: None))
task.train_batch(0, 0, 16)
tokens = sum(task.describe().tokens.values())
task.baselines()
print(json.dumps({
    "seconds": time.perf_counter() - begin,
    "idle": before / 1024,
    "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    "tokens": tokens,
}))
"""


def write_text(path: Path, mebibytes: int) -> int:
    """Write random words in distinct documents of about 100 KiB; returns the size in bytes."""
    generator = random.Random(0)
    words = ["".join(generator.choices("abcdefghij", k=generator.randint(2, 9))) for _ in range(5000)]
    texts = [" ".join(generator.choices(words, k=16_000)) for _ in range(16)]
    with path.open("w", encoding="ascii") as file:
        for document in count():
            file.write(f"document {document}\n{texts[document % len(texts)]}\n<|endoftext|>\n")
            if file.tell() >= mebibytes << 20:
                break
    return path.stat().st_size


def prepared(path: Path, folder: Path) -> dict[str, float]:
    """Prepare a file in a separate process; returns its measurements."""
    plain = {"kind": "language_model", "data": f"file:{path}", "tokenizer": "bytes", "context": 128}
    command = [sys.executable, "-c", _PREPARE, json.dumps(plain), str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    measured: dict[str, float] = json.loads(done.stdout)
    return measured


def main(smoke: bool = False) -> None:
    """Print the peak memory for files of up to 64 MiB."""
    measure(1 if smoke else SMALL)


def measure(mebibytes: int) -> None:
    """Print the peak memory for files of an eighth, half and all of a size."""
    print(f"{'file':>10} {'seconds':>9} {'MiB/s':>7} {'before':>8} {'peak':>8}  MiB of memory")
    for size in sorted({max(1, mebibytes // 8), max(1, mebibytes // 2), mebibytes}):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            written = write_text(folder / "big.txt", size)
            row = prepared(folder / "big.txt", folder / "cache")
            assert row["tokens"] > 0.99 * written
            speed = written / 2**20 / row["seconds"]
            cells = f"{row['seconds']:9.1f} {speed:7.1f} {row['idle']:8.0f} {row['peak']:8.0f}"
            print(f"{written / 2**20:7.0f}MiB {cells}", flush=True)


if __name__ == "__main__":
    measure(*map(int, sys.argv[1:] or [str(SMALL)]))
