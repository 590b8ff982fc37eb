"""Quantities carry units; a bare number where a time is meant is refused and both readings are shown."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchlab import units
from benchlab.clock import ManualClock, SystemClock
from benchlab.errors import BenchlabError, Exit, UsageError, most_severe


@pytest.mark.parametrize(
    ("text", "ns"),
    [
        ("500ms", 500_000_000),
        ("2s", 2_000_000_000),
        ("5m", 300_000_000_000),
        ("1m30s", 90_000_000_000),
        ("1h", 3_600_000_000_000),
        ("1.5s", 1_500_000_000),
        (".5 s", 500_000_000),
        ("250us", 250_000),
        ("10µs", 10_000),
        ("2min", 120_000_000_000),
    ],
)
def test_durations(text: str, ns: int) -> None:
    assert units.parse_duration_ns(text) == ns


def test_a_bare_time_is_refused_with_both_readings() -> None:
    with pytest.raises(UsageError) as caught:
        units.parse_duration_ns("500", flag="--slo ttft")

    assert caught.value.where == "--slo ttft"
    assert "500ms" in caught.value.hint and "500s" in caught.value.hint


@pytest.mark.parametrize("text", ["", "fast", "-1s", "0s", "5 parsecs", "1,5s", "nan s", "1e999s5"])
def test_nonsense_times(text: str) -> None:
    with pytest.raises(UsageError):
        units.parse_duration_ns(text)


def test_zero_only_where_it_is_allowed() -> None:
    assert units.parse_duration_ns("0s", allow_zero=True) == 0


@pytest.mark.parametrize(
    ("text", "rate"), [("12", 12.0), ("12/s", 12.0), ("90/min", 1.5), ("0.25", 0.25), ("36/h", 0.01)]
)
def test_rates(text: str, rate: float) -> None:
    assert units.parse_rate(text) == pytest.approx(rate)


@pytest.mark.parametrize("text", ["0", "-1", "inf", "nan", "", "1e999", "2rps", "four"])
def test_a_rate_that_sends_nothing_or_means_nothing(text: str) -> None:
    with pytest.raises(UsageError):
        units.parse_rate(text)


def test_shares_and_sizes() -> None:
    assert units.parse_share("95%") == pytest.approx(0.95)
    assert units.parse_share("0.95") == pytest.approx(0.95)
    assert units.parse_size("24GiB") == 24 * 2**30
    assert units.parse_size("24GB") == 24 * 10**9
    for wrong in ("101%", "1.5", "-1%", "half"):
        with pytest.raises(UsageError):
            units.parse_share(wrong)
    with pytest.raises(UsageError):
        units.parse_size("24")


@given(st.floats(min_value=1e-6, max_value=1e9))
def test_formatted_numbers_are_near_and_plain(value: float) -> None:
    text = units.format_number(value)

    assert "e" not in text
    assert math.isclose(float(text.replace(",", "")), value, rel_tol=0.006)


@pytest.mark.parametrize("value", [None, math.nan, math.inf])
def test_what_is_not_known_is_a_dash(value: float | None) -> None:
    assert units.format_number(value) == "—"


def test_durations_as_people_say_them() -> None:
    assert units.format_duration(6_500_000_000) == "6.50 s"
    assert units.format_duration(1_200_000) == "1.20 ms"
    assert units.format_duration(552_000_000_000) == "9 min 12 s"


def test_the_precedence_of_exit_codes() -> None:
    order = [130, 143, 2, 3, 1, 7, 4, 6, 99, 5, 0]
    for place, code in enumerate(order):
        for later in order[place:]:
            if {code, later} != {130, 143}:
                assert most_severe([Exit(later), Exit(code)]) == code
    assert most_severe([]) == Exit.OK


def test_an_error_says_what_where_and_what_next() -> None:
    assert str(BenchlabError("broke", where="here", hint="mend it")) == "here: broke\n  try: mend it"
    assert str(BenchlabError("broke")) == "broke"


def test_clocks() -> None:
    clock = ManualClock()
    clock.advance(5)
    assert (clock.monotonic_ns(), clock.wall_ns() - clock.wall_offset_ns) == (5, 5)
    assert SystemClock().monotonic_ns() <= SystemClock().monotonic_ns()
