"""CUDA_VISIBLE_DEVICES and --gpu against made-up lists of devices."""

from __future__ import annotations

import pytest

from benchlab.errors import UsageError
from benchlab.telemetry.devices import Device, named_devices, visible_devices
from benchlab.telemetry.nvml import throttle_names

GPUS = [Device(n, f"GPU-{letter}{letter}-1", f"bus{n}", "H") for n, letter in enumerate("abcd")]
BOARD = Device(0, "GPU-aa", kind="mig-parent", name="H")
MIG = [BOARD, Device(0, "MIG-x1", kind="mig", parent="GPU-aa", gpu_instance=3, compute_instance=0)]


def uuids(selection):
    return [device.uuid for device in selection.devices]


@pytest.mark.parametrize(
    ("variable", "expected"),
    [
        (None, "abcd"),
        ("", ""),
        ("  ", ""),
        ("-1", ""),
        ("3,1", "db"),
        ("0,-1,2", "a"),
        (" 2 , 0 ", "ca"),
        ("1,9,2", "b"),
        ("NoDevFiles", ""),
        ("GPU-c", "c"),
        ("gpu-CC", "c"),
        ("GPU-d,0", "da"),
        ("GPU-", ""),
        ("1,1,0", "ba"),
        ("1,,0", "b"),
    ],
)
def test_the_variable_as_cuda_reads_it(variable, expected):
    assert uuids(visible_devices(GPUS, variable)) == [f"GPU-{letter}{letter}-1" for letter in expected]


def test_what_was_odd_is_noted():
    assert "there is no GPU 9" in visible_devices(GPUS, "1,9,2").notes[0]
    assert "fits 4 devices" in visible_devices(GPUS, "GPU-").notes[0]
    assert "second time" in visible_devices(GPUS, "1,1").notes[0]
    assert visible_devices(GPUS, "1,0").notes == ()


def test_indexes_among_unlike_gpus_are_uncertain_unless_in_bus_order():
    mixed = [Device(0, "GPU-a", name="slow"), Device(1, "GPU-b", name="fast")]

    assert "CUDA_DEVICE_ORDER" in visible_devices(mixed, "0").notes[0]
    assert visible_devices(mixed, "0", order="PCI_BUS_ID").notes == ()
    assert visible_devices(mixed, "GPU-a").notes == ()


def test_a_mig_board_by_index_is_its_first_instance_for_cuda_and_everything_for_the_user():
    assert uuids(visible_devices(MIG, "0")) == ["MIG-x1"]
    assert uuids(visible_devices(MIG, "MIG-GPU-aa/3/0")) == ["MIG-x1"]
    assert uuids(visible_devices(MIG, "MIG-GPU-aa/4/0")) == []
    assert uuids(visible_devices([BOARD], "0")) == []
    assert uuids(named_devices(MIG, "0")) == ["GPU-aa", "MIG-x1"]


def test_a_name_that_fits_nothing_is_refused():
    with pytest.raises(UsageError, match="there is no GPU 5"):
        named_devices(GPUS, "0,5")


def test_throttle_reasons_by_name():
    assert throttle_names(0x44) == ["sw_power_cap", "hw_thermal_slowdown"]
    assert throttle_names(0) == []
