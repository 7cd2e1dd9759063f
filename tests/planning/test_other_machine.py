"""Plans for another machine: hours, device-hours and memory, against what was published."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from engine_samples import planner, space

from ablate.cli.studies import plan
from ablate.devices import DEVICES, find_device, known_device, stated_device, utilisation
from ablate.errors import EngineError
from ablate.nn.model import model_cost
from ablate.planning.memory import largest_micro_batch, trial_bytes
from ablate.planning.other_machine import EFFICIENCY, Machine, MachineForecast, find_machine, read_doctor_report
from ablate.planning.plan import Variant
from ablate.planning.planner import make_plan
from ablate.spec.reading import load_space
from ablate.spec.space_fields import ResourcesSpec

SPACES = Path(__file__).parents[2] / "spaces"


def simplify(**training: Any) -> Variant:
    """He and Hofmann's Pre-LN model of 18 layers, as the ready space of their paper has it."""
    values = {f"training.{name}": value for name, value in training.items()}
    spec = load_space(SPACES / "papers" / "simplify.yaml").resolve({}, values)
    cost = model_cost(spec.model, vocabulary=50_000, context=128)
    flops = spec.training.step_flops(cost.flops, cost.parameters, spec.model.width) * spec.training.steps
    return Variant("baseline", {}, spec, "", cost, flops, "", vocabulary=50_000, context=128)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_a_run_of_he_and_hofmann_takes_the_hours_that_they_say(precision: str) -> None:
    """About 10 hours on an A5000 (README of their code, for 40,000 steps in half precision)."""
    device, count = find_device("a5000")
    hours = Machine(device, count).seconds(simplify(precision=precision, steps=40_000)) / 3600
    assert 10 / 2 < hours < 10 * 2


def test_a_step_takes_its_arithmetic_or_its_traffic_whichever_is_longer() -> None:
    variant = simplify()
    fast = Machine(stated_device(1e12), 1, 0.5)
    assert fast.seconds(variant) == pytest.approx(variant.flops / 0.5e12)
    slow_memory = Machine(replace(DEVICES["h100"], bandwidth=2e11), 1, 1.0).seconds(variant)
    assert slow_memory > variant.flops / DEVICES["h100"].fp32
    # Each float32 activation four times, weights, gradients and two moments twice, at 80 % of the bandwidth.
    moved = 4 * 128 * variant.cost.activation_bytes + 2 * 16 * variant.cost.parameters
    assert slow_memory == pytest.approx(43_000 * moved / (0.8 * 2e11))


def test_no_step_is_said_to_be_faster_than_its_device() -> None:
    assert all(0 < share <= 1 for share in EFFICIENCY.values())


def test_recomputation_takes_a_third_more_time() -> None:
    machine = Machine(stated_device(1e12), 1, 0.5)
    again = machine.seconds(simplify(recompute="blocks")) / machine.seconds(simplify())
    assert again == pytest.approx(4 / 3)


def test_memory_says_what_fits_and_which_micro_batch_would() -> None:
    a5000, t4 = (Machine(DEVICES[name], 1) for name in ("a5000", "t4"))
    large = simplify(batch_size=512)
    assert not a5000.fits(large)
    found = a5000.smaller(large)
    assert found is not None
    assert found.micro_batch is not None
    assert a5000.fits(simplify(batch_size=512, micro_batch=found.micro_batch))
    for size in (90, 45, 30, 15, 9, 2, 1):  # divisors of the batch, in just the memory that each needs
        training = large.spec.training.model_copy(update={"batch_size": 90, "micro_batch": size})
        exact = replace(large, spec=large.spec.model_copy(update={"training": training}))
        largest = largest_micro_batch(exact, trial_bytes(exact))
        assert largest is not None
        assert largest.micro_batch == size
    assert trial_bytes(simplify(micro_batch=8)) < 0.95 * 16 * 2**30
    assert t4.fits(simplify(micro_batch=8))


def test_hours_of_a_plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    plan = make_plan(planner(tmp_path))
    elsewhere = MachineForecast(frozenset({plan.trials[0].key}), Machine(stated_device(100.0), 4, 0.5))
    left = [trial.variant.flops / 50 for trial in plan.trials[1:]]
    assert elsewhere.device_seconds(plan) == pytest.approx(sum(left))
    assert elsewhere.total(plan) == pytest.approx(max(sum(left) / 4, *left))
    assert (elsewhere.workers, elsewhere.counts_evaluations) == (4, False)
    many = Machine(stated_device(100.0), 99, 0.5)
    assert MachineForecast(elsewhere.done, many).total(plan) == pytest.approx(max(left))
    assert MachineForecast(frozenset(trial.key for trial in plan.trials), elsewhere.machine).total(plan) == 0
    device = stated_device(100.0)
    training = plan.trials[0].variant.spec.training
    for stated, measured, share, source in (
        (None, {}, "usual shares of the peak", "which is usual"),
        (None, {"fp32": 0.3}, "the share that doctor measured of the peak", "measured by doctor"),
        (0.2, {"fp32": 0.3}, "0.2 of the peak", "as stated"),
    ):
        machine = Machine(device, 1, stated, measured=measured)
        assert MachineForecast(frozenset(), machine).basis == f"{share} of {device.name}"
        assert machine.source(training) == source


@pytest.mark.parametrize(
    ("name", "device", "count"),
    [("h100", "h100", 1), ("H100x8", "h100", 8), ("mi300x", "mi300x", 1), ("mi300xx2", "mi300x", 2)],
)
def test_devices_by_name(name: str, device: str, count: int) -> None:
    assert find_device(name) == (DEVICES[device], count)


@pytest.mark.parametrize(
    ("name", "said"), [("h10", "Did you mean `h100`"), ("abacus", "--flops"), ("h100x0", "not known")]
)
def test_an_unknown_device(name: str, said: str) -> None:
    with pytest.raises(EngineError, match=said):
        find_device(name)


@pytest.mark.parametrize(
    ("description", "name"),
    [
        ("cuda: 1 x NVIDIA H100 80GB HBM3", "h100"),
        ("cuda: 1 x NVIDIA H100 PCIe", "h100-pcie"),
        ("cuda: 8 x NVIDIA A100-SXM4-80GB", "a100-80gb"),
        ("cuda: 8 x NVIDIA A100-SXM4-40GB", "a100"),
        ("cuda: 1 x NVIDIA L40S", "l40s"),
        ("cuda: 1 x NVIDIA L4", "l4"),
        ("cuda: 1 x NVIDIA A10", "a10"),
        ("cuda: 1 x NVIDIA RTX A5000", "a5000"),
        ("cpu: AMD EPYC 9B14, 2 cores", None),
    ],
)
def test_devices_as_their_drivers_name_them(description: str, name: str | None) -> None:
    found = known_device(description)
    assert (None if found is None else found.name) == name


def test_utilisation_is_the_share_of_the_peak() -> None:
    assert utilisation(989e12, 2.0, "cuda: 1 x NVIDIA H100 80GB HBM3", "bf16") == 0.5
    assert utilisation(67e12, 2.0, "cuda: 1 x NVIDIA H100 80GB HBM3", "fp32") == 0.5
    shared = "cuda: 8 x NVIDIA H100 80GB HBM3, 4 for each trial"
    assert utilisation(4 * 67e12, 2.0, shared, "fp32") == 0.5
    assert utilisation(1e12, 2.0, "cpu: x", "fp32") is None
    assert utilisation(0.0, 0.0, "cuda: 1 x NVIDIA H100 80GB HBM3", "fp32") is None


def test_a_trial_on_four_devices_takes_a_quarter_and_half_a_device_twice_the_time() -> None:
    variant, device = simplify(), stated_device(1e12)
    alone = Machine(device, 8, 0.5)
    four, half = (Machine(device, 8, 0.5, each) for each in (4.0, 0.5))
    assert four.seconds(variant) == pytest.approx(alone.seconds(variant) / 4)
    assert half.seconds(variant) == pytest.approx(alone.seconds(variant) * 2)
    assert [each.at_once for each in (alone, four, half)] == [8, 2, 16]
    # Each of four ranks holds all weights, and the activations of a quarter of the batch of 128.
    assert four.needed(variant) == trial_bytes(simplify(batch_size=32))
    with pytest.raises(EngineError, match="too few GPUs for a trial"):
        _ = Machine(device, 3, each=4.0).at_once


def test_device_hours_count_every_device_of_a_trial(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    plan = make_plan(planner(tmp_path))
    one, two = (MachineForecast(frozenset(), Machine(stated_device(100.0), 4, 0.5, each)) for each in (1.0, 2.0))
    assert two.workers == 2
    assert two.device_seconds(plan) == pytest.approx(one.device_seconds(plan))
    assert two.total(plan) == pytest.approx(one.total(plan))


def doctor_file(folder: Path, device: str, rate: float) -> Path:
    """What `ablate doctor` writes, as far as it is read."""
    findings = [
        {"name": "machine", "says": f"{device}; 70.0 GiB free; torch 2.13", "values": {"free_gib": 70.0}},
        {"name": "a small trial", "says": "", "values": {"flops_per_second": rate}},
        {"name": "bf16", "says": "", "values": {"difference": 0.0, "speed": 2.0}},
    ]
    file = folder / "doctor.json"
    file.write_text(json.dumps({"device": "cuda", "findings": findings}))
    return file


def test_the_share_that_doctor_measured(tmp_path: Path) -> None:
    examined = read_doctor_report(doctor_file(tmp_path, "cuda: 4 x NVIDIA H100 80GB HBM3", 6.7e12))
    assert (examined.device, examined.count) == (DEVICES["h100"], 4)
    assert examined.shares == pytest.approx({"fp32": 0.1, "bf16": 13.4 / 989})
    machine = Machine(examined.device, examined.count, measured=examined.shares)
    assert machine.seconds(simplify()) == pytest.approx(simplify().flops / 6.7e12)
    measured, usual = (simplify(precision=name).spec.training for name in ("fp32", "tf32"))
    assert (machine.source(measured), machine.source(usual)) == ("measured by doctor", "which is usual")
    assert machine.share(usual) == EFFICIENCY["tf32"]


def test_a_machine_that_is_not_in_the_table_has_the_speed_that_was_measured(tmp_path: Path) -> None:
    examined = read_doctor_report(doctor_file(tmp_path, "cpu: AMD EPYC 9B14, 2 cores", 3e10))
    assert (examined.known, examined.count) == (False, 1)
    machine = Machine(examined.device, 1, measured=examined.shares)
    assert machine.seconds(simplify()) == pytest.approx(simplify().flops / 3e10)
    assert machine.seconds(simplify(precision="bf16")) == pytest.approx(simplify().flops / 6e10)


@pytest.mark.parametrize("text", ["{", "{}", '{"findings": [{"name": "machine"}]}', "[]"])
def test_another_file_than_that_of_doctor_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "other.json").write_text(text)
    with pytest.raises(EngineError, match="was not written by `ablate doctor`"):
        read_doctor_report(tmp_path / "other.json")
    with pytest.raises(EngineError, match="there is no such file"):
        read_doctor_report(tmp_path / "nowhere.json")


def test_however_a_machine_is_named_a_trial_takes_its_devices_as_the_space_says(tmp_path: Path) -> None:
    file = doctor_file(tmp_path, "cuda: 8 x NVIDIA A100-SXM4-40GB", 1.95e12)
    for shard in (False, True):
        resources = ResourcesSpec(gpus=4, shard=shard)
        for named in (("a100x8", None, None, None), (None, None, None, file)):
            machine = find_machine(*named, None, resources)
            assert machine is not None
            assert (machine.count, machine.each, machine.shard) == (8, 4, shard)
        stated = find_machine(None, 1e15, None, None, 2, resources)
        assert stated is not None
        alone = find_machine(None, 1e15, None, None, None, ResourcesSpec(gpus=0.5))
        assert alone is not None
        assert (alone.count, alone.each) == (1, 0.5)
        assert (stated.device.peak("fp32"), stated.count, stated.each, stated.shard) == (1e15, 8, 4, shard)


def test_the_command_counts_the_gpus_of_a_trial(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    planner(tmp_path)  # writes the text
    monkeypatch.setattr("ablate.cli.studies.load_space", lambda *given: space(resources={"gpus": 4}))
    given: dict[str, Any] = {"store": str(tmp_path / "store.db"), "cache": tmp_path / "cache"}
    plan("sample", on="h100x8", json_=True, **given)
    machine = json.loads(capsys.readouterr().out)["machine"]
    assert (machine["count"], machine["devices_of_a_trial"]) == (8, 4)
    plan("sample", on="h100x8", **given)
    assert "On 8 x h100, 4 for each trial" in " ".join(capsys.readouterr().out.split())
    with pytest.raises(EngineError, match="too few GPUs for a trial"):
        plan("sample", on="h100x2", **given)
    file = doctor_file(tmp_path, "cuda: 8 x NVIDIA A100-SXM4-40GB", 1.95e12)
    plan("sample", doctor=file, json_=True, **given)
    machine = json.loads(capsys.readouterr().out)["machine"]
    assert (machine["device"], machine["variants"][0]["efficiency"]) == ("a100", pytest.approx(0.1))
    one = doctor_file(tmp_path, "cuda: 1 x NVIDIA A100-SXM4-40GB", 1.95e12)
    for workers, count in ((None, 4), (1, 4), (3, 12)):
        plan("sample", doctor=one, workers=workers, json_=True, **given)
        assert json.loads(capsys.readouterr().out)["machine"]["count"] == count
    with pytest.raises(EngineError, match="Leave out --efficiency"):
        plan("sample", doctor=file, efficiency=0.3, **given)
    with pytest.raises(EngineError, match="no peak FLOP/s is known"):
        plan("sample", on="h100", doctor=doctor_file(tmp_path, "cpu: AMD EPYC 9B14", 3e10), **given)
