"""Options that choose an engine and the resources of a job, and the messages for wrong ones."""

from __future__ import annotations

from typing import Any

import pytest

from ablate import extras
from ablate.cli.cluster_options import refuse_without_cluster, with_options
from ablate.errors import EngineError, MissingPackageError
from ablate.execution.choose import EngineOptions, make_engine
from ablate.spec.resources import ResourcesSpec


def test_options_override_the_space() -> None:
    space = ResourcesSpec(cpus=2, gpus=0.5, custom={"disk": 1, "net": 2}, labels={"zone": "a"})
    assert with_options(space, None, None) == space
    given = with_options(space, ["disk=3"], ["arch=x"], cpus=4.0, storage="s3://b", checkpoint_every=100)
    assert given == ResourcesSpec(
        cpus=4,
        gpus=0.5,
        custom={"disk": 3, "net": 2},
        labels={"zone": "a", "arch": "x"},
        storage="s3://b",
        checkpoint_every=100,
    )


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"custom": ["disk"]}, "--resource: .*expected NAME=AMOUNT; got 'disk'"),
        ({"custom": ["disk=much"]}, "--resource: "),
        ({"labels": ["=a"]}, "--label: .*KEY=VALUE"),
        ({"cpus": -1.0}, "--cpus: "),
        ({"gpus": 1.5}, "--gpus: .*whole GPUs"),
        ({"checkpoint_every": "soon"}, "--checkpoint-every: .*`10 min`"),
        ({"checkpoint_every": "0 min"}, "--checkpoint-every: "),
    ],
)
def test_impossible_values_are_reported_with_their_option(options: dict[str, Any], said: str) -> None:
    custom, labels = options.pop("custom", None), options.pop("labels", None)
    with pytest.raises(EngineError, match=said):
        with_options(ResourcesSpec(), custom, labels, **options)


@pytest.mark.parametrize(
    ("given", "option"),
    [
        ({"address": "auto"}, "--address"),
        ({"custom": ["disk=1"]}, "--resource"),
        ({"labels": ["zone=a"]}, "--label"),
    ],
)
def test_options_for_clusters_need_a_cluster(given: dict[str, Any], option: str) -> None:
    with pytest.raises(EngineError, match=f"^{option}: the local engine .* needs `--engine ray`"):
        refuse_without_cluster("local", **given)
    refuse_without_cluster("ray", **given)
    refuse_without_cluster("local", address=None, custom=[])


def test_an_unknown_engine(tmp_path: Any) -> None:
    with pytest.raises(EngineError, match=r"--engine: there is no such engine; expected local or ray; got 'slurm'"):
        make_engine("slurm", EngineOptions(tmp_path))


def test_without_ray_the_option_says_how_to_install_it(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    found = extras.find_spec
    monkeypatch.setattr(extras, "find_spec", lambda name: None if name == "ray" else found(name))
    with pytest.raises(MissingPackageError, match=r"not installed.*pip install 'ablate-blocks\[ray\]'"):
        make_engine("ray", EngineOptions(tmp_path))


def test_checkpoints_on_a_cluster_without_storage(tmp_path: Any) -> None:
    pytest.importorskip("ray")
    with pytest.raises(EngineError, match="--storage: checkpoints need storage that outlives the machine"):
        make_engine("ray", EngineOptions(tmp_path, resources=ResourcesSpec(checkpoint_every=5)))


def test_an_unreachable_cluster(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:

    def init(**options: Any) -> None:
        raise ConnectionError("Could not find any running Ray instance.\nMore.")

    monkeypatch.setattr("ray.init", init)
    with pytest.raises(
        EngineError, match=r"--address auto: .*got Could not find.* instance\. Start .*ray start --head"
    ):
        make_engine("ray", EngineOptions(tmp_path, address="auto"))
    with pytest.raises(EngineError, match="has to run on a machine of the cluster"):
        make_engine("ray", EngineOptions(tmp_path, address="ray://head:10001"))
    with pytest.raises(EngineError, match=r"--address 127.0.0.1:1: .*got .*refused"):
        make_engine("ray", EngineOptions(tmp_path, address="127.0.0.1:1"))
    with pytest.raises(EngineError, match=r"--address somewhere: .*got invalid literal"):
        make_engine("ray", EngineOptions(tmp_path, address="somewhere"))
