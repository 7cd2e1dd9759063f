"""A network partition of a Ray cluster: head and node in network namespaces of their own, and a link that is cut."""

from __future__ import annotations

import copy
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cli_runs import ABLATE, Workplace, wait_for

RAY = Path(sysconfig.get_path("scripts")) / "ray"
IN_NAMESPACES = ["unshare", "--user", "--map-root-user", "--net", "--pid", "--fork", "--kill-child", "--mount-proc"]
"""Namespaces that no rights are needed for; all processes in them end with the first one."""
_SECONDS = 420

LINK = """
set -e
ip link set lo up
unshare --net sleep 1000 &
other=$!
while [ "$(readlink /proc/$other/ns/net)" = "$(readlink /proc/self/ns/net)" ]; do sleep 0.05; done
ip link add v0 type veth peer name v1 netns $other
ip address add 10.99.0.1/24 dev v0
ip link set v0 up
there="nsenter --net=/proc/$other/ns/net"
$there ip link set lo up
$there ip address add 10.99.0.2/24 dev v1
$there ip link set v1 up
"""
"""Two namespaces and the link between them."""
STUDY = """
export RAY_AUTH_MODE=disabled
export RAY_raylet_start_wait_time_s=120
export RAY_health_check_initial_delay_ms=1000 RAY_health_check_period_ms=1000
export RAY_health_check_timeout_ms=2000 RAY_health_check_failure_threshold=4
options="--num-cpus=1 --num-gpus=0 --object-store-memory=80000000"
{ray} start --head --node-ip-address=10.99.0.1 --port=6379 --include-dashboard=false $options \
    --temp-dir={temporary} > head.out 2>&1
$there {ray} start --address=10.99.0.1:6379 --node-ip-address=10.99.0.2 $options > node.out 2>&1
{ablate} study {space} --engine ray --address 10.99.0.1:6379 --pack 1 > study.out 2>&1 &
study=$!
until [ "$(grep -cE '^ *[0-9]+/[0-9]+ ' study.out)" -ge 2 ]; do kill -0 $study; sleep 0.1; done
{python} -c "import sqlite3; sqlite3.connect('studies/ablate.db').backup(sqlite3.connect('before.db'))"
ip link set v0 down
until grep -q 'its node died' study.out; do kill -0 $study; sleep 0.1; done
ip link set v0 up
wait $study
"""
"""A study whose node is cut off once some trials have finished, and comes back when it has been given up."""

pytestmark = [
    pytest.mark.ray,
    pytest.mark.timeout(900),
    pytest.mark.skipif(sys.platform != "linux", reason="network namespaces are of Linux"),
    pytest.mark.skipif(not os.environ.get("CI"), reason="starts a Ray cluster for one test; set CI to run it"),
]


@pytest.fixture
def short() -> Iterator[Path]:
    """A folder with a short path: the path of a Unix socket has at most 107 bytes."""
    with tempfile.TemporaryDirectory(prefix="r", dir="/tmp", ignore_cleanup_errors=True) as folder:
        yield Path(folder)


def _finished(place: Workplace, store: Path) -> dict[str, tuple[Any, ...]]:
    """The trials of another store that have finished."""
    other = copy.copy(place)
    other.store = store
    return other.trials("finished")


def test_a_node_that_is_cut_off_and_comes_back_costs_no_trial_and_trains_none_twice(
    tmp_path: Path, cache: Path, short: Path
) -> None:
    pytest.importorskip("ray")
    if missing := [name for name in ("unshare", "nsenter", "ip") if shutil.which(name) is None]:
        pytest.skip(f"no network can be made here without {', '.join(missing)}")
    possible = subprocess.run([*IN_NAMESPACES, "sh", "-c", LINK], capture_output=True, text=True, check=False)
    if possible.returncode:
        pytest.skip(f"no network can be made here: {possible.stderr.strip()}")
    place = Workplace(tmp_path, cache)
    space = place.space(steps=300, seeds=2)
    script = LINK + STUDY.format(ray=RAY, ablate=ABLATE, space=space, temporary=short, python=sys.executable)
    (tmp_path / "script").write_text(script)
    with subprocess.Popen(
        [*IN_NAMESPACES, "sh", "script"],
        cwd=tmp_path,
        env=place.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        process_group=0,
    ) as process:
        ended = wait_for(process, _SECONDS)
    told = {name: (tmp_path / f"{name}.out") for name in ("head", "node", "study")}
    outputs = "\n".join(path.read_text() for path in told.values() if path.exists())
    assert ended.code == 0, ended.err + outputs
    assert "its node died; trained again" in outputs
    assert "Traceback" not in outputs
    after = place.trials("finished")
    assert len(after) == 6
    before = _finished(place, tmp_path / "before.db")
    assert len(before) >= 2
    assert all(after[key] == trial for key, trial in before.items()), "nothing that had finished is trained again"
    alone = place.call("study", space, "--store", "alone.db", "--pack", "1")
    assert alone.code == 0, alone.err
    expected = _finished(place, tmp_path / "alone.db")
    assert {key: curve for key, (_, _, _, *curve) in after.items()} == {
        key: curve for key, (_, _, _, *curve) in expected.items()
    }
