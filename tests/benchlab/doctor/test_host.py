"""Facts of a host: read from made files, silent where there are none, with a word where something is amiss."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchlab.doctor import host
from benchlab.doctor.host import Fact, Timers


@pytest.fixture
def made(tmp_path: Path) -> Path:
    files = {
        "proc/stat": "cpu  10 0 10 70 0 0 0 10 0 0\n",
        "proc/cpuinfo": "model name\t: Made CPU\nflags\t\t: fpu hypervisor sse\ncpu MHz\t\t: 2600.0\n",
        "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor": "powersave\n",
        "sys/devices/system/cpu/cpu0/cpufreq/scaling_cur_freq": "1400000\n",
        "sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq": "3600000\n",
        "sys/devices/system/clocksource/clocksource0/current_clocksource": "hpet\n",
        "sys/class/dmi/id/product_name": "Made VM\n",
        "sys/fs/cgroup/cpu.max": "50000 100000\n",
    }
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


def facts(folder: Path) -> dict[str, Fact]:
    return {fact.name: fact for fact in host.facts(folder / "proc", folder / "sys")}


def test_a_host_that_tells_everything(made: Path) -> None:
    found = facts(made)

    assert found["cpu_governor"].value == "powersave" and "performance" in found["cpu_governor"].note
    assert found["cpu_frequency"].value == "1.40 of 3.60 GHz"
    assert found["clock_source"].value == "hpet" and found["clock_source"].note
    assert "quota 0.5" in (found["cores"].value or "") and "quota" in found["cores"].note
    assert (found["virtualisation"].value or "").startswith("virtual machine (Made VM)")


def test_a_host_that_tells_nothing(tmp_path: Path) -> None:
    found = facts(tmp_path)

    for name in ("cpu_governor", "cpu_frequency", "clock_source", "cpu_stolen"):
        assert found[name] == Fact(name, None)
    assert found["cores"].value


def test_this_host() -> None:
    found = {fact.name: fact for fact in host.facts()}

    assert len(found) == 13
    assert found["httptools"].value != "not installed"
    assert all(fact.value is None or fact.value.strip() for fact in found.values())


def test_stolen_time(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    later = "cpu  20 0 20 130 0 0 0 30 0 0\n"
    monkeypatch.setattr(host.time, "sleep", lambda _: (made / "proc/stat").write_text(later))

    found = facts(made)["cpu_stolen"]
    assert found.value == "20.0%" and "hypervisor" in found.note


def test_timers_are_measured_on_the_loop_that_the_workers_use() -> None:
    timers = host.measure_timers()

    assert timers.loop in ("uvloop", "asyncio")
    assert 0 <= timers.wake_p50 <= timers.wake_p99 and timers.sleep_p50 <= timers.sleep_p99
    assert timers.lag_p50 is not None and timers.lag_max is not None and timers.lag_p50 <= timers.lag_max


def test_words_on_timers() -> None:
    good = Timers("uvloop", 0.05, 0.2, 0.5, 1.0, 0.1, 0.4, 0.4)
    bad = Timers("uvloop", 0.05, 3.2, 0.5, 1.0, 0.1, 30.0, 31.0)

    assert host.timer_notes(good) == []
    assert ["3.20 ms late" in host.timer_notes(bad)[0], "30.0 ms late" in host.timer_notes(bad)[1]] == [True, True]
