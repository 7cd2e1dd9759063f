"""A PostgreSQL server of the tests' own: made in a folder, reached by a socket there, gone when the tests are."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

import pytest
from sqlalchemy import create_engine, make_url, text

_SETTINGS = ("fsync=off", "listen_addresses=", "max_connections=60", "shared_buffers=16MB")


def _program(name: str) -> str | None:
    """The newest one below Debian's folder, where it is not on the path, or the one on the path."""
    versions = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"), key=lambda path: float(path.parts[4]))
    return str(versions[-1]) if versions else shutil.which(name)


@contextmanager
def server() -> Iterator[str]:
    """A running server; gives the URL of its database. Skips the test where PostgreSQL is not installed."""
    initdb, postgres = _program("initdb"), _program("postgres")
    if initdb is None or postgres is None:
        pytest.skip("PostgreSQL is not installed here: neither below /usr/lib/postgresql nor on the path")
    user = None
    folder = Path(tempfile.mkdtemp(prefix="ablate-pg-"))  # short: the path of a socket has at most 107 characters
    if os.geteuid() == 0:  # which the server refuses to run as
        user = next(name for name in ("postgres", "nobody") if name in {entry.pw_name for entry in pwd.getpwall()})
        shutil.chown(folder, user)
    data = folder / "data"
    options = {"user": user, "cwd": folder, "stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE}
    try:
        command = [initdb, "--pgdata", str(data), "--username", "ablate", "--auth", "trust", "--no-sync", "-E", "UTF8"]
        subprocess.run(command, check=True, **options)
        settings = [part for setting in _SETTINGS for part in ("-c", setting)]
        process = subprocess.Popen([postgres, "-D", str(data), "-k", str(folder), *settings], **options)
        try:
            assert process.stderr is not None
            for line in process.stderr:
                if b"ready to accept connections" in line:
                    break
            else:
                raise RuntimeError("the server did not start")
            yield f"postgresql+psycopg://ablate@/postgres?host={quote(str(folder))}"
        finally:
            process.terminate()
            process.communicate(timeout=30)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def schema(url: str) -> Iterator[str]:
    """A schema of its own in a database; gives the URL that leads there."""
    name = f"test_{uuid.uuid4().hex}"
    engine = create_engine(url)
    try:
        with engine.begin() as connection:
            connection.execute(text(f"CREATE SCHEMA {name}"))
        inside = make_url(url).update_query_dict({"options": f"-csearch_path={name}"})
        yield inside.render_as_string(hide_password=False)
        with engine.begin() as connection:
            connection.execute(text(f"DROP SCHEMA {name} CASCADE"))
    finally:
        engine.dispose()
