"""Cores and memory within control groups of version 1 and 2, as the files of several container runtimes show them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ablate import machine
from ablate.machine import available_cores, available_memory, core_limit, memory_left

GIB = 2**30
V2 = "30 23 0:26 / /sys/fs/cgroup rw shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"
V1 = (
    "33 32 0:29 {root} /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n"
    "34 32 0:30 {root} /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
)
TMPFS = "29 23 0:25 / /sys/fs/cgroup ro,nosuid - tmpfs tmpfs ro,mode=755\n"


def system(root: Path, mounts: str, memberships: str, files: dict[str, str]) -> Path:
    for name, text in {"proc/self/mountinfo": mounts, "proc/self/cgroup": memberships, **files}.items():
        file = root / name.lstrip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return root


@pytest.mark.parametrize(
    ("mounts", "memberships", "files", "cores"),
    [
        pytest.param(V2, "0::/\n", {"sys/fs/cgroup/cpu.max": "150000 100000\n"}, 1.5, id="container, version 2"),
        pytest.param(V2, "0::/\n", {"sys/fs/cgroup/cpu.max": "max 100000\n"}, None, id="no limit"),
        pytest.param(
            V2,
            "0::/system.slice/job.service\n",
            {
                "sys/fs/cgroup/system.slice/cpu.max": "200000 100000\n",
                "sys/fs/cgroup/system.slice/job.service/cpu.max": "max 100000\n",
            },
            2.0,
            id="the limit of a group above",
        ),
        pytest.param(
            V2,
            "0::/user.slice/a.scope\n",
            {
                "sys/fs/cgroup/user.slice/cpu.max": "800000 100000\n",
                "sys/fs/cgroup/user.slice/a.scope/cpu.max": "300000 100000\n",
            },
            3.0,
            id="the smaller of two",
        ),
        pytest.param(
            TMPFS + V1.format(root="/docker/0f"),
            "4:cpu,cpuacct:/docker/0f\n3:memory:/docker/0f\n",
            {
                "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us": "100000\n",
                "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us": "100000\n",
            },
            1.0,
            id="container, version 1: the mount shows its own group",
        ),
        pytest.param(
            TMPFS + V1.format(root="/"),
            "4:cpu,cpuacct:/kubepods/pod1/c\n",
            {
                "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us": "-1\n",
                "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us": "100000\n",
                "sys/fs/cgroup/cpu,cpuacct/kubepods/pod1/cpu.cfs_quota_us": "250000\n",
                "sys/fs/cgroup/cpu,cpuacct/kubepods/pod1/cpu.cfs_period_us": "100000\n",
                "sys/fs/cgroup/cpu,cpuacct/kubepods/pod1/c/cpu.cfs_quota_us": "-1\n",
            },
            2.5,
            id="nested, version 1",
        ),
        pytest.param(
            TMPFS + V1.format(root="/") + V2.replace("/sys/fs/cgroup", "/sys/fs/cgroup/unified"),
            "4:cpu,cpuacct:/a\n0::/a\n",
            {
                "sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_quota_us": "50000\n",
                "sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_period_us": "100000\n",
            },
            0.5,
            id="both versions mounted",
        ),
        pytest.param("", "", {}, None, id="no control groups"),
        pytest.param(V2, "0::/\n", {"sys/fs/cgroup/cpu.max": "nonsense"}, None, id="unreadable"),
    ],
)
def test_processor_time_is_that_of_the_tightest_group(
    tmp_path: Path, mounts: str, memberships: str, files: dict[str, str], cores: float | None
) -> None:
    assert core_limit(system(tmp_path, mounts, memberships, files)) == cores


def test_memory_is_what_the_tightest_group_has_left(tmp_path: Path) -> None:
    files = {
        "sys/fs/cgroup/memory.max": f"{8 * GIB}\n",
        "sys/fs/cgroup/memory.current": f"{5 * GIB}\n",
        "sys/fs/cgroup/memory.stat": f"anon {3 * GIB}\ninactive_file {2 * GIB}\n",
        "sys/fs/cgroup/job/memory.max": "max\n",
    }
    assert memory_left(system(tmp_path / "two", V2, "0::/job\n", files)) == 5 * GIB
    (tmp_path / "two/sys/fs/cgroup/job/memory.high").write_text(f"{GIB}\n")
    assert memory_left(tmp_path / "two") == GIB, "above this the kernel slows the group down until it crawls"
    group = "sys/fs/cgroup/memory"
    files = {
        f"{group}/memory.limit_in_bytes": "9223372036854771712\n",
        f"{group}/memory.usage_in_bytes": f"{20 * GIB}\n",
        f"{group}/slurm/memory.limit_in_bytes": f"{4 * GIB}\n",
        f"{group}/slurm/memory.usage_in_bytes": f"{GIB}\n",
        f"{group}/slurm/memory.stat": f"inactive_file 0\ntotal_inactive_file {GIB // 2}\n",
    }
    one = system(tmp_path / "one", TMPFS + V1.format(root="/"), "3:memory:/slurm\n", files)
    assert memory_left(one) == 4 * GIB - GIB // 2
    (one / group / "slurm/memory.usage_in_bytes").write_text(f"{9 * GIB}\n")
    assert memory_left(one) == 0, "a group may be above its limit for a moment"


@pytest.mark.parametrize(("limit", "cores"), [(None, 64), (0.5, 1), (2.9, 2), (100.0, 64)])
def test_a_fraction_of_a_core_is_one_core(monkeypatch: pytest.MonkeyPatch, limit: float | None, cores: int) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(64)), raising=False)
    monkeypatch.setattr(machine, "core_limit", lambda: limit)
    assert available_cores() == cores


def test_the_memory_of_the_machine_counts_if_it_is_less(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "memory_left", lambda: 7)
    assert available_memory() == 7
    monkeypatch.setattr(machine, "memory_left", lambda: 2**60)
    assert available_memory() < 2**60


def test_only_one_module_asks_for_the_memory_of_the_machine() -> None:
    """Elsewhere the limit of a container would be forgotten."""
    package = Path(machine.__file__).parent
    asking = [file.name for file in package.rglob("*.py") if "virtual_memory" in file.read_text(encoding="utf-8")]
    assert asking == ["machine.py"]
