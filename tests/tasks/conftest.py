"""The built-in corpus, prepared once for the session."""

from __future__ import annotations

from pathlib import Path

import pytest

from ablate.tasks.corpus import Corpus, read_corpus
from ablate.tasks.language_model import LanguageModel, LanguageModelSpec
from ablate.tasks.tokenizers import Tokenizer


def silent(line: str) -> None:
    """A `Say` that prints nothing."""


@pytest.fixture(scope="session")
def spec() -> LanguageModelSpec:
    plain = {"data": "builtin:python_stdlib", "tokenizer": {"kind": "bpe", "vocab_size": 2048}, "context": 128}
    return LanguageModelSpec.model_validate(plain)


@pytest.fixture(scope="session")
def fingerprint(spec: LanguageModelSpec, cache: Path) -> str:
    return spec.prepare(cache, silent)


@pytest.fixture(scope="session")
def task(spec: LanguageModelSpec, cache: Path, fingerprint: str) -> LanguageModel:
    return spec.open(cache, fingerprint)


@pytest.fixture(scope="session")
def folder(cache: Path, fingerprint: str) -> Path:
    return cache / fingerprint[:32]


@pytest.fixture(scope="session")
def tokenizer(spec: LanguageModelSpec, folder: Path) -> Tokenizer:
    return spec.tokenizer.load(folder)


@pytest.fixture(scope="session")
def corpus(spec: LanguageModelSpec) -> Corpus:
    return read_corpus(spec.data, spec.validation_share, silent)
