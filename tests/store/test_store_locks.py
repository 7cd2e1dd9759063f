"""Locks between writers; file systems whose locks do not work, or not between machines, as NFS can be mounted."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import postgres
import pytest
from sqlalchemy import make_url, text
from store_samples import begin, planned, sql

from ablate.errors import StoreError
from ablate.store import open_store
from ablate.store.failures import shared_file_system
from ablate.tables.description import read_description
from ablate.tables.judging import judge_files, keep

NO_LOCKS = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#define INSTEAD_OF(name) \\
    int name(int file, int command, ...) { \\
        static int (*real)(int, int, ...); \\
        va_list rest; \\
        va_start(rest, command); \\
        void *argument = va_arg(rest, void *); \\
        va_end(rest); \\
        if (command == F_SETLK || command == F_SETLKW || command == F_GETLK) { errno = ENOLCK; return -1; } \\
        if (!real) real = dlsym(RTLD_NEXT, #name); \\
        return real(file, command, argument); \\
    }
INSTEAD_OF(fcntl)
INSTEAD_OF(fcntl64)
"""
"""What NFS answers whose server keeps no locks; loaded before the library of C."""
OPEN = """
import sys
from ablate.errors import StoreError
from ablate.store import open_store
for create in (True, False):
    try:
        open_store(sys.argv[1], create=create)
    except StoreError as error:
        print(error)
"""
MOUNTS = """\
22 27 0:21 / /proc rw,relatime - proc proc rw
27 1 254:0 / / rw,relatime - ext4 /dev/vda rw
30 27 0:50 / /home rw,relatime shared:3 - nfs4 server:/home rw,vers=4.2,local_lock=none
31 30 254:1 / /home/of\\040mine rw - xfs /dev/vdb rw
32 27 0:51 / /far rw - fuse.sshfs me@there:/ rw
33 27 0:52 / /mine rw - fuse.ntfs /dev/vdc rw
"""


@pytest.mark.skipif(sys.platform != "linux" or shutil.which("cc") is None, reason="needs a compiler of C, and Linux")
def test_a_file_system_without_locks_is_refused_at_once(tmp_path: Path) -> None:
    """SQLite itself says after half a minute that another program keeps the database locked."""
    source, library = tmp_path / "no_locks.c", tmp_path / "no_locks.so"
    source.write_text(NO_LOCKS)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
    with open_store(tmp_path / "store.db") as store:
        begin(store)
    done = subprocess.run(
        [sys.executable, "-c", OPEN, str(tmp_path / "store.db")],
        env={**os.environ, "LD_PRELOAD": str(library)},
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    told = done.stdout.splitlines()
    assert len(told) == 2
    assert all("the file system of the store has no working locks" in line and "postgresql://" in line for line in told)


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/home/me/store.db", "nfs4"),
        ("/homely/store.db", None),
        ("/home/of mine/store.db", None),
        ("/far/a/b.db", "fuse.sshfs"),
        ("/mine/b.db", None),
        ("/store.db", None),
    ],
)
def test_network_file_systems_are_known_by_their_mount(tmp_path: Path, path: str, kind: str | None) -> None:
    (tmp_path / "mountinfo").write_bytes(MOUNTS.encode() + b"34 27 0:54 / /\xff rw - ext4 /dev/vdd rw\n")
    assert shared_file_system(Path(path), tmp_path / "mountinfo") == kind
    assert shared_file_system(Path(path), tmp_path / "nothing") is None


def test_a_store_on_a_network_file_system_says_so_and_shares_no_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_store(tmp_path / "here.db") as store:
        assert store.warning == ""
    monkeypatch.setattr("ablate.store.database.shared_file_system", lambda _: "nfs4")
    with open_store(tmp_path / "far.db") as store:
        begin(store)
        assert "network file system (nfs4)" in store.warning
    modes = {}
    for name in ("here", "far"):
        with sql(str(tmp_path / f"{name}.db")) as connection:
            modes[name] = connection.execute(text("PRAGMA journal_mode")).scalar()
    assert modes == {"here": "wal", "far": "delete"}


def test_what_plans_or_removes_trials_waits_for_others_that_do(postgres_server: str, tmp_path: Path) -> None:
    """Else a trial is removed with its only study while another study finds it and plans to reuse it."""
    with open_store(tmp_path / "other.db") as other:
        begin(other, study="moved")
        other.export_study("moved", tmp_path / "moved.zip")
    (tmp_path / "runs.csv").write_text("variant,seed,loss\na,0,2.5\nb,0,2.5\n")
    (tmp_path / "asked.yaml").write_text(
        "table: {files: runs.csv}\nmetric: loss\nbaseline: a\nmargin: 0.1\ndirection: lower\n"
    )
    judged = judge_files(read_description(tmp_path / "asked.yaml"), tmp_path, "runs.csv")
    with postgres.schema(postgres_server) as location:
        options = make_url(location).query["options"]
        hasty = make_url(location).update_query_dict({"options": f"{options} -clock_timeout=100"})
        with open_store(location) as store:
            begin(store)
        with open_store(hasty.render_as_string(hide_password=False)) as store, sql(location) as driver:
            driver.execute(text("LOCK TABLE study_trials IN ROW EXCLUSIVE MODE"))  # as a writer does
            for change in (
                lambda: begin(store, study="second"),
                lambda: store.plan_trials("s", [planned("baseline", 7)]),
                lambda: store.delete_study("s"),
                lambda: store.import_study(tmp_path / "moved.zip"),
                lambda: keep(judged, store, "judged"),
            ):
                with pytest.raises(StoreError, match="lock timeout"):
                    change()
