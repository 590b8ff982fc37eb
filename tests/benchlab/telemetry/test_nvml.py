"""NVML through the real nvidia-ml-py, against a library that answers from a file."""

from __future__ import annotations

import pytest

READ = """
import json
from dataclasses import asdict
from benchlab.telemetry.nvml import open_nvml
source = open_nvml({named!r})
clock = iter(range(0, 10**9, 1000))
passes = [[asdict(s) for s in source.read(lambda: next(clock))] for _ in range({passes})]
print(json.dumps(dict(passes=passes, notes=source.notes, facts=source.facts(),
                      devices=[d.uuid for d in source.devices])))
source.close()
"""

FULL = (
    "name=FakeGPU bus=0000:{n}1:00.0 util={util} memutil=10 used=1000 reserved=24 total=4096 power=300500 limit=700000"
    " energy=5000 temp=41 sm=1500 mem=2600 throttle=5 pcie=7 mig=0\n"
)
FOUR = "".join(
    f"uuid=GPU-{letter} " + FULL.format(n=n, util=util)
    for n, (letter, util) in enumerate(zip("ABCD", (5, 15, 60, 85), strict=True))
)


def read(with_nvml, devices, named=None, passes=1, **environ):
    return with_nvml(devices, READ.format(named=named, passes=passes), **environ)


def values(samples, uuid):
    return {s["metric"]: s["value"] for s in samples if s["entity"] == uuid}


def test_every_field_in_its_unit(with_nvml):
    answer = read(with_nvml, "uuid=GPU-A " + FULL.format(n=0, util=55))

    assert values(answer["passes"][0], "GPU-A") == {
        "utilization_share": pytest.approx(0.55),
        "memory_utilization_share": pytest.approx(0.10),
        "memory_used_bytes": 1000,
        "memory_reserved_bytes": 24,
        "memory_total_bytes": 4096,
        "power_w": pytest.approx(300.5),
        "power_limit_w": pytest.approx(700),
        "energy_j": pytest.approx(5),
        "temperature_c": 41,
        "sm_clock_mhz": 1500,
        "memory_clock_mhz": 2600,
        "throttle_reasons": 5,
        "pcie_tx_bytes_per_s": 7000,
        "pcie_rx_bytes_per_s": 7000,
    }
    assert {s["metric"] for s in answer["passes"][0] if s["counter"]} == {"energy_j"}
    assert answer["notes"] == []


def test_facts_for_the_manifest(with_nvml):
    facts = read(with_nvml, "uuid=GPU-A " + FULL.format(n=0, util=55))["facts"]

    assert (facts["driver"], facts["cuda"]) == ("575.51.03", "12.9")
    assert facts["devices"][0] == {
        "name": "FakeGPU", "uuid": "GPU-A", "bus_id": "0000:01:00.0", "index": 0, "kind": "gpu", "mig_mode": False,
        "parent": None, "gpu_instance": None, "compute_instance": None, "memory_total_bytes": 4096,
        "power_limit_w": 700.0, "max_sm_clock_mhz": 1500,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("variable", "expected"),
    [
        ("3,1", [("GPU-D", 0.85), ("GPU-B", 0.15)]),
        ("GPU-D", [("GPU-D", 0.85)]),
        ("", []),
    ],
)
def test_c76_only_visible_devices_in_cudas_order(with_nvml, variable, expected):
    answer = read(with_nvml, FOUR, CUDA_VISIBLE_DEVICES=variable)

    seen = [(s["entity"], pytest.approx(s["value"])) for s in answer["passes"][0] if s["metric"] == "utilization_share"]
    assert seen == expected
    assert all(f'index="{"ABCD".index(s["entity"][-1])}"' in s["labels"] for s in answer["passes"][0])
    assert all('bus_id="0000:' in s["labels"] for s in answer["passes"][0])
    if not expected:
        assert "no device of 4 is chosen" in answer["notes"][0]


def test_devices_named_by_the_user_outrank_the_environment(with_nvml):
    answer = read(with_nvml, FOUR, named="0,2", CUDA_VISIBLE_DEVICES="3")

    assert answer["devices"] == ["GPU-A", "GPU-C"]


def test_c77_a_missing_field_is_null_with_its_reason_once(with_nvml):
    answer = read(with_nvml, "uuid=GPU-A name=Old bus=b util=55 used=1000 total=4096\n", passes=3)

    first, second, third = answer["passes"]
    assert values(first, "GPU-A")["utilization_share"] == pytest.approx(0.55)
    power = next(s for s in first if s["metric"] == "power_w")
    assert power["value"] is None and power["reason"] == "NVML: Not Supported"
    assert next(s for s in first if s["metric"] == "energy_j")["value"] is None
    for later in (second, third):
        assert {s["metric"] for s in later} == {
            "utilization_share", "memory_utilization_share",
            "memory_used_bytes", "memory_reserved_bytes", "memory_total_bytes",
        }  # fmt: skip


def test_a_passing_failure_is_a_hole_each_time_and_asked_again(with_nvml):
    answer = read(with_nvml, "uuid=GPU-A name=Old bus=b temp=40 lost=temp\n", passes=2)

    for samples in answer["passes"]:
        hole = next(s for s in samples if s["metric"] == "temperature_c")
        assert (hole["value"], hole["reason"]) == (None, "NVML: GPU is lost")


def test_an_energy_counter_that_resets_is_passed_on_as_it_is(with_nvml):
    answer = read(with_nvml, "uuid=GPU-A name=G bus=b energy=100000,160000,20000,50000\n", passes=4)

    assert [values(p, "GPU-A")["energy_j"] for p in answer["passes"]] == pytest.approx([100, 160, 20, 50])


def test_c79_c85_energy_of_a_window_through_the_bindings(with_nvml):
    source = """
import json
from dataclasses import asdict
from benchlab.metrics.energy import window_energy
from benchlab.telemetry.nvml import open_nvml
source = open_nvml()
samples = [s for t in range(4) for s in source.read(lambda: t * 10**9)]
energy = window_energy(samples, 0, 3 * 10**9)
print(json.dumps(dict(joules=energy.joules, lower=energy.lower_bound, reasons=energy.reasons,
                      methods=[d.method for d in energy.devices])))
"""
    devices = (
        "uuid=GPU-A name=G bus=b energy=100000,160000,20000,50000\n"  # resets
        "uuid=GPU-B name=G bus=b power=300000\n"  # has no counter
    )
    answer = with_nvml(devices, source)

    assert answer["joules"] == pytest.approx(110 + 900)
    assert answer["methods"] == ["counter", "power"]
    assert answer["lower"] and answer["reasons"] == ["GPU-A: the energy counter was reset 1 times"]


def test_an_old_driver_without_reserved_memory_and_with_the_old_throttle_call(with_nvml):
    answer = read(
        with_nvml, "oldthrottle=1\nuuid=GPU-A name=G bus=b used=1000 total=4096 memv2=0 throttle=64\n", passes=2
    )

    first, second = answer["passes"]
    assert values(first, "GPU-A")["memory_used_bytes"] == 1000
    assert values(first, "GPU-A")["memory_reserved_bytes"] is None
    assert values(first, "GPU-A")["throttle_reasons"] == 64
    assert "memory_reserved_bytes" not in values(second, "GPU-A")  # its reason was said


MIG = (
    "uuid=GPU-A name=Board bus=b1 util=0 used=100 total=4096 power=200000 energy=1000 mig=1\n"
    "uuid=MIG-11 name=Board-1g parent=GPU-A gi=1 ci=0 used=50 total=1024\n"
    "uuid=MIG-22 name=Board-2g parent=GPU-A gi=2 ci=0 used=60 total=2048\n"
    "uuid=GPU-B name=Board bus=b2 util=50 used=100 total=4096 power=250000 mig=0\n"
)


def test_mig_boards_and_instances_are_told_apart(with_nvml):
    answer = read(with_nvml, MIG)

    assert answer["devices"] == ["GPU-A", "MIG-11", "MIG-22", "GPU-B"]
    assert [d["kind"] for d in answer["facts"]["devices"]] == ["mig-parent", "mig", "mig", "gpu"]
    samples = answer["passes"][0]
    assert values(samples, "MIG-22")["memory_used_bytes"] == 60
    power = next(s for s in samples if s["entity"] == "MIG-11" and s["metric"] == "power_w")
    assert power["value"] is None and "its board GPU-A" in power["reason"]
    assert 'kind="mig-parent"' in next(s for s in samples if s["entity"] == "GPU-A")["labels"]
    assert 'parent="GPU-A"' in next(s for s in samples if s["entity"] == "MIG-11")["labels"]


@pytest.mark.parametrize(
    ("variable", "expected"), [("MIG-22", ["MIG-22"]), ("MIG-GPU-A/1/0", ["MIG-11"]), ("0", ["MIG-11"])]
)
def test_mig_instances_named_in_every_form(with_nvml, variable, expected):
    assert read(with_nvml, MIG, CUDA_VISIBLE_DEVICES=variable)["devices"] == expected


def test_a_driver_that_is_not_loaded_is_one_note_and_no_error(with_nvml):
    answer = read(with_nvml, "init=9\n", passes=2)

    assert answer["passes"] == [[], []]
    assert answer["notes"] == ["no GPU telemetry: no NVIDIA driver here (Driver Not Loaded)"]


def test_no_library_at_all_is_one_note_and_no_error(with_nvml, tmp_path):
    answer = read(with_nvml, "", LD_LIBRARY_PATH=str(tmp_path))

    if answer["devices"]:
        pytest.skip("this host has a real NVIDIA driver")
    assert len(answer["notes"]) == 1 and answer["notes"][0].startswith("no GPU telemetry: ")


def test_a_named_device_that_is_not_there_is_refused_with_those_that_are(with_nvml):
    source = """
import json
from benchlab.errors import UsageError
from benchlab.telemetry.nvml import open_nvml
try:
    open_nvml("7")
except UsageError as error:
    print(json.dumps(str(error)))
"""
    message = with_nvml(FOUR, source)

    assert "there is no GPU 7" in message and "0 (GPU-A)" in message and "--gpu 7" in message
