"""A trainer that knows nothing of ablate: a two-layer network in numpy learns which of three spirals a point is on.

`python spaces/trainers/spirals.py --seed 0 --out .` writes `metrics.jsonl` and goes on from `--checkpoint`, if given.
"""

import argparse
import json
from pathlib import Path

import numpy as np

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--lr", type=float, default=0.1)
parser.add_argument("--width", type=int, default=64)
parser.add_argument("--activation", choices=["relu", "tanh", "none"], default="relu")
parser.add_argument("--momentum", type=float, default=0.9)
parser.add_argument("--steps", type=int, default=1000)
parser.add_argument("--seed", type=int, required=True)
parser.add_argument("--out", type=Path, required=True)
parser.add_argument("--checkpoint", type=Path)
given = parser.parse_args()


def spirals(count, rng):
    """Points [N, 2] on three noisy arms, and the arm of each."""
    labels, radius = rng.integers(3, size=count), rng.uniform(0.1, 1.0, size=count)
    angle = 4 * radius + 2 * np.pi * labels / 3 + rng.normal(scale=0.15, size=count)
    return np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1), labels


def activated(x):
    """The hidden layer and the derivative of its activation."""
    if given.activation == "relu":
        return np.maximum(x, 0), (x > 0).astype(float)
    return (np.tanh(x), 1 - np.tanh(x) ** 2) if given.activation == "tanh" else (x, np.ones_like(x))


def logits_of(x, parts):
    """Logits [N, 3] of points, their hidden layer, and the derivative of its activation."""
    hidden, slope = activated(x @ parts["w1"] + parts["b1"])
    return hidden @ parts["w2"] + parts["b2"], hidden, slope


def loss_of(logits, labels):
    """Mean cross-entropy, and its gradient [N, 3]."""
    shares = np.exp(logits - logits.max(axis=1, keepdims=True))
    shares /= shares.sum(axis=1, keepdims=True)
    loss = -np.log(shares[np.arange(len(labels)), labels] + 1e-12).mean()
    return loss, (shares - np.eye(3)[labels]) / len(labels)


validation = spirals(1000, np.random.default_rng(2**31))  # the same for every seed
data = np.random.default_rng([given.seed, 0])  # batches: the same for every variant of a seed
initial = np.random.default_rng([given.seed, 1])
parts = {
    "w1": initial.normal(scale=1.0, size=(2, given.width)),
    "b1": np.zeros(given.width),
    "w2": initial.normal(scale=given.width**-0.5, size=(given.width, 3)),
    "b2": np.zeros(3),
}
speed = {name: np.zeros_like(part) for name, part in parts.items()}
begin = 0
saved = given.checkpoint / "state.npz" if given.checkpoint else None
if saved is not None and saved.exists():
    state = np.load(saved)
    begin = int(state["step"])
    parts, speed = ({name: state[f"{kind}_{name}"] for name in parts} for kind in ("part", "speed"))
    for _ in range(begin):
        spirals(64, data)  # the batches that it has seen

metrics = given.checkpoint or given.out  # beside the checkpoint, so that the curve goes on too
with (metrics / "metrics.jsonl").open("a" if begin else "w") as file:
    for step in range(begin + 1, given.steps + 1):
        x, labels = spirals(64, data)
        logits, hidden, slope = logits_of(x, parts)
        loss, gradient = loss_of(logits, labels)
        back = gradient @ parts["w2"].T * slope
        gradients = {"w1": x.T @ back, "b1": back.sum(0), "w2": hidden.T @ gradient, "b2": gradient.sum(0)}
        for name in parts:
            speed[name] = given.momentum * speed[name] - given.lr * gradients[name]
            parts[name] = parts[name] + speed[name]
        if step % (given.steps // 10) == 0:
            found, right = logits_of(validation[0], parts)[0], validation[1]
            row = {"step": step, "train_loss": loss, "val_loss": loss_of(found, right)[0]}
            print(json.dumps(row | {"val_accuracy": float((found.argmax(1) == right).mean())}), file=file, flush=True)
            if saved is not None:
                named = {f"part_{name}": part for name, part in parts.items()}
                np.savez(saved.with_name("new.npz"), step=step, **named, **{f"speed_{n}": v for n, v in speed.items()})
                saved.with_name("new.npz").replace(saved)
