"""Tokens a second and peak memory of preparing a file of documents, beside `datasets.map`; and a run killed half-way.

`python -m benchmarks.token_cache 1024` uses a file of 1 GiB. Both sides read the same JSON lines, encode the same BPE
vocabulary and leave tokens on the disk, one process each; ours also hashes every document, leaves copies out and holds
a split out. `python -m benchmarks.token_cache 10240 --beside 256 --without-kill` prepares 10 GiB, gives `datasets.map`
256 MiB of the same text, and kills nothing; it needs 16 GiB of disk.
"""

from __future__ import annotations

import argparse
import json
import random
import signal
import subprocess
import sys
import tempfile
import time
from itertools import count, islice
from pathlib import Path

SMALL = 16
"""Default file size in MiB."""
VOCABULARY = 2048

_OURS = """
import json, resource, sys, time
from pathlib import Path
from ablate.tasks.language_model import LanguageModelSpec
spec = LanguageModelSpec.model_validate(json.loads(sys.argv[1]))
begin = time.perf_counter()
fingerprint = spec.prepare(Path(sys.argv[2]), lambda line: None)
seconds = time.perf_counter() - begin
used = resource.getrusage(resource.RUSAGE_SELF)
task = spec.open(Path(sys.argv[2]), fingerprint)
print(json.dumps({
    "seconds": seconds,
    "tokens": sum(tokens.size for tokens in task.tokens.values()),
    "processor": used.ru_utime + used.ru_stime,
    "peak": used.ru_maxrss / 1024,
    "fingerprint": fingerprint,
}))
"""

_MAP = """
import json, resource, sys, time
import datasets
from tokenizers import Tokenizer
datasets.disable_progress_bars()
tokenizer = Tokenizer.from_file(sys.argv[2])
begin = time.perf_counter()
rows = datasets.load_dataset("json", data_files=sys.argv[1], cache_dir=sys.argv[3], split="train")
def encode(batch):
    return {"ids": [one.ids for one in tokenizer.encode_batch(batch["text"])]}
rows = rows.map(encode, batched=True, batch_size=64, remove_columns=["text"])
seconds = time.perf_counter() - begin
used = resource.getrusage(resource.RUSAGE_SELF)
tokens = sum(len(row) for batch in rows.iter(64) for row in batch["ids"])
print(json.dumps({
    "seconds": seconds,
    "tokens": tokens,
    "processor": used.ru_utime + used.ru_stime,
    "peak": used.ru_maxrss / 1024,
}))
"""


def write_lines(path: Path, mebibytes: int) -> int:
    """Write random words in distinct documents of about 4 KiB as JSON lines; returns the size in bytes."""
    generator = random.Random(0)
    words = ["".join(generator.choices("abcdefghij", k=generator.randint(2, 9))) for _ in range(5000)]
    texts = [" ".join(generator.choices(words, k=640)) for _ in range(256)]
    with path.open("w", encoding="ascii") as file:
        for document in count():
            file.write(json.dumps({"text": f"document {document} {texts[document % len(texts)]}"}) + "\n")
            if file.tell() >= mebibytes << 20:
                break
    return path.stat().st_size


def main(smoke: bool = False) -> None:
    """Print the table for a small file."""
    measure(1 if smoke else SMALL)


def measure(mebibytes: int, beside: int | None = None, kill: bool = True) -> None:
    """Print tokens a second and peak memory of both, and of a preparation that was killed half-way and run again.

    Args:
        mebibytes: Size of the file.
        beside: Size of the part of it that `datasets.map` prepares; None: the whole file.
        kill: Whether the file is also prepared in two parts, with signal 9 between them.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        written = write_lines(folder / "big.jsonl", mebibytes)
        tokenizer = _tokenizer(folder)
        plain = {
            "kind": "language_model",
            "data": f"file:{folder / 'big.jsonl'}",
            "tokenizer": {"kind": "saved", "file": str(tokenizer)},
            "context": 128,
        }
        whole = _run(_OURS, json.dumps(plain), str(folder / "cache"))
        rows = [("ablate", written, whole)]
        part, size = folder / "big.jsonl", written
        if beside is not None:
            part = folder / "part.jsonl"
            size = write_lines(part, beside)
        rows.append(("datasets.map", size, _run(_MAP, str(part), str(tokenizer), str(folder / "map"))))
        if kill:
            killed, rest = _killed_half_way(plain, folder / "killed", int(whole["tokens"]))
            assert rest["fingerprint"] == whole["fingerprint"], "the same data, killed or not"
    print(f"{'':24} {'MiB':>7} {'seconds':>9} {'tokens/s':>11} {'of processor time':>18} {'peak MiB':>9}")
    for title, size, row in rows:
        speed, processor = (float(row["tokens"]) / float(row[name]) for name in ("seconds", "processor"))
        shown = f"{float(row['seconds']):9.1f} {speed:11,.0f} {processor:18,.0f} {float(row['peak']):9.0f}"
        print(f"{title:24} {size / 2**20:7,.0f} {shown}")
    if kill:
        print(f"{'ablate, until the kill':24} {'':7} {killed:9.1f}")
        print(f"{'ablate, run again':24} {'':7} {float(rest['seconds']):9.1f} {'':30} {float(rest['peak']):9.0f}")


def _tokenizer(folder: Path) -> Path:
    """A BPE vocabulary trained on the first thousand documents, in a file that both sides read."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    trained = Tokenizer(models.BPE())
    trained.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trained.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    with (folder / "big.jsonl").open(encoding="ascii") as file:
        texts = [json.loads(line)["text"] for line in islice(file, 1000)]
    trained.train_from_iterator(texts, trainer)
    path = folder / "tokenizer.json"
    trained.save(str(path))
    return path


def _run(code: str, *arguments: str) -> dict[str, float | str]:
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=True)
    measured: dict[str, float | str] = json.loads(done.stdout.splitlines()[-1])
    return measured


def _killed_half_way(plain: dict[str, object], cache: Path, tokens: int) -> tuple[float, dict[str, float | str]]:
    """Seconds until half of the tokens were on the disk and the process was killed, and what the next run measured."""
    command = [sys.executable, "-c", _OURS, json.dumps(plain), str(cache)]
    begin = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    while process.poll() is None:
        if sum(path.stat().st_size for path in cache.glob("*.building/train.npy")) > tokens:  # 2 bytes for each token
            process.send_signal(signal.SIGKILL)
        time.sleep(0.01)
    return time.perf_counter() - begin, _run(_OURS, json.dumps(plain), str(cache))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m benchmarks.token_cache", description=__doc__)
    parser.add_argument("mebibytes", type=int, nargs="?", default=SMALL)
    parser.add_argument("--beside", type=int, help="MiB for `datasets.map`; unless given, the whole file")
    parser.add_argument("--without-kill", action="store_true")
    asked = parser.parse_args()
    measure(asked.mebibytes, asked.beside, not asked.without_kill)
