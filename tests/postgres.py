"""A PostgreSQL server of the tests' own: made in a folder, reached by a socket there, gone when the tests are."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

import pytest
from sqlalchemy import create_engine, make_url, text
from sqlalchemy.pool import NullPool

_SETTINGS = ("fsync=off", "listen_addresses=", "max_connections=60", "shared_buffers=16MB")


def _program(name: str) -> str | None:
    """The newest one below Debian's folder, where it is not on the path, or the one on the path."""
    versions = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"), key=lambda path: float(path.parts[4]))
    return str(versions[-1]) if versions else shutil.which(name)


class Server:
    """A server in a folder of its own, which can crash and start again.

    Args:
        folder: Where its files are and its socket is; short, as the path of a socket has at most 107 characters.
        initdb: The program that makes its files.
        postgres: The program of the server.
    """

    def __init__(self, folder: Path, initdb: str, postgres: str) -> None:
        self.url = f"postgresql+psycopg://ablate@/postgres?host={quote(str(folder))}"
        self._data = folder / "data"
        user = None
        if os.geteuid() == 0:  # which the server refuses to run as
            user = next(name for name in ("postgres", "nobody") if name in {entry.pw_name for entry in pwd.getpwall()})
            shutil.chown(folder, user)
        self._options = {"user": user, "cwd": folder, "stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE}
        settings = [part for setting in _SETTINGS for part in ("-c", setting)]
        self._command = [postgres, "-D", str(self._data), "-k", str(folder), *settings]
        make = [initdb, "--pgdata", str(self._data), "--username", "ablate", "--auth", "trust", "--no-sync"]
        subprocess.run([*make, "-E", "UTF8"], check=True, **self._options)
        self._start()

    def _start(self) -> None:
        self._process = subprocess.Popen(self._command, **self._options)
        assert self._process.stderr is not None
        for line in self._process.stderr:
            if b"ready to accept connections" in line:
                break
        else:
            raise RuntimeError("the server did not start")

    def crash(self) -> None:
        """End at once, as when the machine fails: what was not committed is lost."""
        self._process.send_signal(signal.SIGQUIT)
        self._process.communicate(timeout=300)

    def restart(self) -> None:
        """Crash and start again, which recovers what was committed."""
        self.crash()
        self._start()

    def close(self) -> None:
        """End, whoever is still connected."""
        self._process.send_signal(signal.SIGINT)
        self._process.communicate(timeout=300)


def installed() -> bool:
    """Whether there is a PostgreSQL to run."""
    return None not in (_program("initdb"), _program("postgres"))


@contextmanager
def running() -> Iterator[Server]:
    """A running server. Skips the test where PostgreSQL is not installed."""
    initdb, postgres = _program("initdb"), _program("postgres")
    if initdb is None or postgres is None:
        pytest.skip("PostgreSQL is not installed here: neither below /usr/lib/postgresql nor on the path")
    folder = Path(tempfile.mkdtemp(prefix="ablate-pg-"))
    try:
        made = Server(folder, initdb, postgres)
        try:
            yield made
        finally:
            made.close()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def server() -> Iterator[str]:
    """A running server; gives the URL of its database. Skips the test where PostgreSQL is not installed."""
    with running() as made:
        yield made.url


@contextmanager
def schema(url: str) -> Iterator[str]:
    """A schema of its own in a database; gives the URL that leads there."""
    name = f"test_{uuid.uuid4().hex}"
    engine = create_engine(url, poolclass=NullPool)  # the server may crash meanwhile
    try:
        with engine.begin() as connection:
            connection.execute(text(f"CREATE SCHEMA {name}"))
        inside = make_url(url).update_query_dict({"options": f"-csearch_path={name}"})
        yield inside.render_as_string(hide_password=False)
        with engine.begin() as connection:
            connection.execute(text(f"DROP SCHEMA {name} CASCADE"))
    finally:
        engine.dispose()
