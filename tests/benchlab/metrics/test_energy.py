"""Joules of a window."""

from __future__ import annotations

import pytest

from benchlab.metrics.energy import window_energy
from benchlab.records.sample import Sample

S = 1_000_000_000


def series(metric, points, gpu="GPU-A", labels=""):
    return [Sample(round(t * S), "nvml", gpu, metric, value, metric == "energy_j", labels) for t, value in points]


def test_the_counters_difference_with_straight_lines_to_the_windows_edges():
    energy = window_energy(series("energy_j", [(0, 1000), (2, 1200), (4, 1400), (6, 2000)]), S, 5 * S)

    assert energy.joules == pytest.approx(100 + 200 + 300)
    assert not energy.lower_bound and energy.devices[0].method == "counter"


def test_the_counter_outranks_power():
    samples = series("energy_j", [(0, 0), (10, 500)]) + series("power_w", [(0, 999), (10, 999)])

    assert window_energy(samples, 0, 10 * S).joules == pytest.approx(500)


def test_a_reset_makes_a_lower_bound():
    energy = window_energy(series("energy_j", [(0, 100), (1, 160), (2, 20), (3, 50)]), 0, 3 * S)

    assert energy.joules == pytest.approx(110)
    assert energy.lower_bound and "reset 1 times" in energy.reasons[0]


def test_power_is_integrated_over_the_real_sample_times():
    energy = window_energy(series("power_w", [(0, 100), (1, 300), (1.5, 300), (3, 100)]), 0, 3 * S)

    assert energy.joules == pytest.approx(200 + 150 + 300)
    assert energy.devices[0].method == "power" and not energy.lower_bound


def test_a_hole_in_power_is_not_bridged():
    energy = window_energy(series("power_w", [(0, 100), (1, 100), (6, 100), (7, 100)]), 0, 7 * S)

    assert energy.joules == pytest.approx(200)
    assert energy.lower_bound and "no power reading for 5.0 s" in energy.reasons[0]


def test_a_window_longer_than_the_readings_is_a_lower_bound():
    energy = window_energy(series("power_w", [(1, 100), (2, 100)]), 0, 4 * S)

    assert energy.joules == pytest.approx(100)
    assert len(energy.reasons) == 2


def test_c85_devices_are_summed():
    samples = [s for gpu in "ABCD" for s in series("power_w", [(t, 300) for t in range(11)], f"GPU-{gpu}")]

    assert window_energy(samples, 0, 10 * S).joules == pytest.approx(12_000)
    assert window_energy(samples, 0, 10 * S).joules / 1000 == pytest.approx(12)
    assert window_energy(samples, 0, 10 * S, devices=["GPU-A", "GPU-B"]).joules == pytest.approx(6_000)


def test_c77_no_power_is_no_energy_and_the_sum_is_none():
    missing = [Sample(0, "nvml", "GPU-B", "power_w", None, reason="NVML: Not Supported")]
    energy = window_energy(series("power_w", [(0, 300), (1, 300)]) + missing, 0, S)

    assert energy.joules is None
    assert energy.reasons == ("GPU-B: NVML: Not Supported",)
    assert window_energy([], 0, S).joules is None
    assert window_energy([], 0, S, devices=["GPU-Z"]).joules is None


def test_an_instance_is_not_added_to_its_board():
    board = series("energy_j", [(0, 0), (1, 200)], "GPU-A", 'kind="mig-parent"')
    instance = [Sample(0, "nvml", "MIG-1", "power_w", None, False, 'kind="mig",parent="GPU-A"', "not for MIG")]

    assert window_energy(board + instance, 0, S).joules == pytest.approx(200)
    assert window_energy(instance, 0, S).joules is None
