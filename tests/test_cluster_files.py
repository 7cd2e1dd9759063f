"""The files for clusters in the documentation are valid, as far as this can be tested without a cluster."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from ruamel.yaml import YAML
from typer.testing import CliRunner

from ablate.cli.app import app

ROOT = Path(__file__).parent.parent
CLUSTER = ROOT / "cluster"
README = (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def config() -> dict[str, Any]:
    loaded: dict[str, Any] = YAML(typ="safe").load(CLUSTER / "ray-cluster.yaml")
    return loaded


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_ray_accepts_the_cluster(config: dict[str, Any]) -> None:
    import ray
    from ray.autoscaler._private import util

    schema = json.loads((Path(ray.__file__).parent / "autoscaler" / "ray-schema.json").read_text())
    jsonschema.validate(config, schema)
    prepared = util.prepare_config(config)
    util.validate_config(prepared)
    assert set(prepared["available_node_types"]) == {"head", "cpu", "gpu"}


def test_there_is_a_machine_that_a_trial_fits_on_from_the_start(config: dict[str, Any]) -> None:
    workers = {name: kind for name, kind in config["available_node_types"].items() if name != config["head_node_type"]}
    assert any(kind["min_workers"] > 0 for kind in workers.values())
    assert sum(kind["max_workers"] for kind in workers.values()) <= config["max_workers"]


@pytest.fixture(scope="module")
def on_kubernetes() -> list[dict[str, Any]]:
    return list(YAML(typ="safe").load_all(CLUSTER / "kuberay.yaml"))


def test_kubernetes_starts_gpus_only_when_they_are_needed_and_keeps_the_store(
    on_kubernetes: list[dict[str, Any]],
) -> None:
    claim, job = on_kubernetes
    assert (job["apiVersion"], job["kind"]) == ("ray.io/v1", "RayJob")
    cluster = job["spec"]["rayClusterSpec"]
    assert cluster["enableInTreeAutoscaling"]
    groups = {group["groupName"]: group for group in cluster["workerGroupSpecs"]}
    assert {name: group["minReplicas"] for name, group in groups.items()} == {"cpu": 1, "gpu": 0}
    assert all(group["minReplicas"] <= group["replicas"] <= group["maxReplicas"] for group in groups.values())
    (container,) = groups["gpu"]["template"]["spec"]["containers"]
    assert container["resources"]["limits"]["nvidia.com/gpu"] == "1"
    head = cluster["headGroupSpec"]["template"]["spec"]
    (volume,) = head["volumes"]
    assert volume["persistentVolumeClaim"]["claimName"] == claim["metadata"]["name"]
    (mount,) = head["containers"][0]["volumeMounts"]
    for option in ("--store", "--cache"):
        assert re.search(rf"{option} {mount['mountPath']}/", job["spec"]["entrypoint"])
    assert "--checkpoint-dir s3://" in job["spec"]["entrypoint"]


def forbids_other_keys(schema: Any) -> Any:
    """A schema of Kubernetes with its rule that an object has no other keys than those that are named."""
    if isinstance(schema, list):
        return [forbids_other_keys(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    closed = {key: forbids_other_keys(value) for key, value in schema.items()}
    if isinstance(schema.get("properties"), dict) and schema.get("type") == "object":
        closed.setdefault("additionalProperties", False)
    if schema.get("x-kubernetes-int-or-string"):
        closed.pop("pattern", None)
    return closed


@pytest.mark.skipif(
    "KUBERAY_CRD" not in os.environ, reason="KUBERAY_CRD names no copy of KubeRay's ray.io_rayjobs.yaml"
)
def test_kuberay_accepts_the_job(on_kubernetes: list[dict[str, Any]]) -> None:
    definition = YAML(typ="safe").load(Path(os.environ["KUBERAY_CRD"]))
    (schema,) = (one["schema"]["openAPIV3Schema"] for one in definition["spec"]["versions"] if one["name"] == "v1")
    closed = forbids_other_keys(schema)
    closed["properties"]["metadata"] = {"type": "object"}
    validator = jsonschema.Draft202012Validator(closed)
    assert list(map(str, validator.iter_errors(on_kubernetes[1]))) == []
    on_kubernetes[1]["spec"]["rayClusterSpec"]["headGroupSpec"]["rayStartParam"] = {}
    assert not validator.is_valid(on_kubernetes[1]), "a key that is not in the schema was accepted"


def test_the_slurm_script_is_a_script() -> None:
    assert subprocess.run(["bash", "-n", CLUSTER / "slurm.sh"], check=False).returncode == 0


def test_the_slurm_script_does_what_it_says(tmp_path: Path) -> None:
    """With stand-ins for Slurm and Ray that note how they are called."""
    log = tmp_path / "log"
    for name, does in {
        "scontrol": 'echo "n1\nn2\nn3"',
        "srun": f'while [[ "$1" == --* ]]; do shift; done; echo "$@" >> {log}; exec "$@"',
        "ray": ":",
        "ablate": f'echo "ends $?" >> {log}',
    }.items():
        (tmp_path / name).write_text(f"#!/usr/bin/env bash\n{does}\n")
        (tmp_path / name).chmod(0o755)
    environment = {
        "PATH": f"{tmp_path}:/usr/bin:/bin",
        "SLURM_JOB_NODELIST": "n[1-3]",
        "SLURM_JOB_NUM_NODES": "3",
        "SLURM_CPUS_PER_TASK": "8",
    }
    command = ["bash", CLUSTER / "slurm.sh", "space.yaml", "--store", "s.db"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    said = log.read_text().splitlines()
    assert any(line.startswith("ray start --head --port=6379 --num-cpus 8 --num-gpus 0") for line in said)
    assert any(line.startswith("ray start --address=n1:6379") for line in said)
    assert "ablate study space.yaml --store s.db --engine ray --address n1:6379" in said
    assert "ends 0" in said


@pytest.mark.parametrize("text", [README, *(path.read_text(encoding="utf-8") for path in CLUSTER.iterdir())])
def test_every_option_of_a_study_that_is_named_exists(text: str) -> None:
    options = CliRunner().invoke(app, ["study", "--help"], env={"COLUMNS": "200", "NO_COLOR": "1"}).output
    for line in re.findall(r"ablate study [^\n`]*", text):
        for option in re.findall(r"--[a-z-]+", line):
            assert option in options, line
