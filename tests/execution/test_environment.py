"""The environment that a trial records, in a repository that would like to run programs."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from ablate.execution.environment import describe_environment

Repository = Callable[..., str]


@pytest.fixture
def git(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Repository:
    """Runs git in a new repository with one committed file, which is the working folder."""
    folder = tmp_path / "repository"
    folder.mkdir()
    monkeypatch.chdir(folder)
    for name in ("GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM"):
        monkeypatch.setenv(name, "/dev/null")

    def run(*arguments: str) -> str:
        named = ("-c", "user.name=a", "-c", "user.email=a@b.c")
        return subprocess.run(["git", *named, *arguments], check=True, capture_output=True, text=True).stdout.strip()

    run("init", "-q")
    Path("file.txt").write_text("one")
    run("add", ".")
    run("commit", "-q", "-m", "first")
    return run


def test_commit_and_changes_are_recorded(git: Repository) -> None:
    found = describe_environment("cpu")
    assert (found.git_commit, found.git_clean) == (git("rev-parse", "HEAD"), True)
    Path("file.txt").write_text("two")
    assert describe_environment("cpu").git_clean is False


@pytest.mark.parametrize(
    ("setting", "attributes"),
    [
        ("core.fsmonitor", ""),
        ("filter.mine.clean", "*.txt filter=mine"),
        ("filter.mine.process", "*.txt filter=mine"),
        ("filter.in=valid.clean", "*.txt filter=in=valid"),
        ("hook", ""),
    ],
)
def test_no_program_that_a_repository_names_is_run(
    git: Repository, tmp_path: Path, setting: str, attributes: str
) -> None:
    mark, program = tmp_path / "ran", tmp_path / "program"
    program.write_text(f"#!/bin/sh\ntouch {mark}\n")
    program.chmod(0o755)
    Path(".git/info").mkdir(exist_ok=True)
    Path(".git/info/attributes").write_text(attributes)
    if setting == "hook":
        Path(".git/hooks").mkdir(exist_ok=True)
        program.rename(Path(".git/hooks/post-index-change"))
    else:
        git("config", "include.path", "mine")
        git("config", "--file", ".git/mine", setting, str(program))
    Path("file.txt").write_text("two")
    subprocess.run(["git", "status", "--porcelain"], check=False, capture_output=True)
    assert mark.exists(), "plain git runs it"
    mark.unlink()
    assert describe_environment("cpu").git_clean is False
    assert not mark.exists()
