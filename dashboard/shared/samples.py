"""What a trained decoder writes, asked for on the page and written by `ablate generate` in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys

import streamlit as st

from ablate.store import StudyRecord, VariantRecord
from shared.store import options, read_only

PATIENCE = 180
"""Seconds that a sample may take; the weights are loaded anew for each."""


def can_write(record: StudyRecord, variant: VariantRecord) -> bool:
    """Whether the trials of a variant are decoders of which the weights were kept."""
    kept = [spec.get("training", {}).get("save_weights") for spec in (record.space, variant.spec)]
    return any(kept) and variant.spec["model"].get("family") == "decoder"


def sample_box(keys: dict[str, str]) -> None:
    """A form that asks for the next tokens of a text, and what each trial writes; `keys` has them by label."""
    with st.form("sample", border=True):
        prompt = st.text_input("Text to go on from", key="prompt", max_chars=2000)
        seed = st.number_input("Seed of the draws", 0, 2**31, key="draws", width=180)
        asked = st.form_submit_button("Write", icon=":material/edit:", disabled=read_only())
    if not asked or read_only():
        return
    for (label, key), column in zip(keys.items(), st.columns(len(keys)), strict=True):
        with column, st.spinner("Loading the weights"):
            st.text(label)
            st.code(_write(key, str(prompt or ""), int(seed)), language=None, wrap_lines=True)


def _write(key: str, prompt: str, seed: int) -> str:
    chosen = options()
    command = [sys.executable, "-P", "-m", "ablate", "generate", key, "--json", f"--prompt={prompt}"]
    command += [f"--seed={seed}", "--tokens=200", f"--store={chosen['store']}"]
    command += [f"--plugin={plugin}" for plugin in chosen["plugins"]]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    except subprocess.TimeoutExpired:
        return f"Nothing came within {PATIENCE} s."
    if done.returncode:
        return done.stderr.strip().splitlines()[-1] if done.stderr.strip() else "This could not be written."
    return prompt + str(json.loads(done.stdout)["text"])
