"""What is still believed of a measurement: one set of limits for everyday runs, a stricter one for publishing.

The one idea: limits on the client's lateness scale with what is measured: 10 ms matter to a TTFT of 50 ms and not to
one of 5 s. It must not know how a value is found.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """`*_fail` makes the measurement INVALID, the other a warning; shares are 0..1.

    lag_*: of dispatch lag, of the event loop's lag and of the stamp error bound (the last only warns): the larger of
    so many ms and of a share of the stage's median TTFT. headroom: a client's own ceiling over the load it was given,
    which must be above. gaps_fail: holes in telemetry fail instead of warning. window_s, failed_share: what a claim
    asks of each stage it rests on. claims_count: what a claim lacks warns of the whole measurement too.
    """

    missed_share: float = 0.02
    missed_share_fail: float = 0.05
    lag_ms: float = 5.0
    lag_ttft_share: float = 0.01
    lag_ms_fail: float = 50.0
    lag_ttft_share_fail: float = 0.05
    headroom: float = 1.25
    headroom_fail: float = 1.05
    cpu_share: float = 0.80
    cpu_share_fail: float = 0.95
    merged_share: float = 0.05
    length_band: float = 0.10
    cached_share: float = 0.01
    telemetry_gap_s: float = 2.0
    client_fault_share: float = 0.001
    cut_turns_share: float = 0.01
    held_share: float = 0.01
    held_share_fail: float = 0.10
    token_count_share: float = 0.02
    gaps_fail: bool = False
    name: str = "ci"
    window_s: float = 60.0
    failed_share: float = 0.01
    claims_count: bool = False

    def lag(self, ttft_ms: float | None) -> tuple[float, float]:
        """(limit, limit of failure) of a lateness in ms, for a stage with this median TTFT."""
        middle = ttft_ms or 0.0
        return max(self.lag_ms, self.lag_ttft_share * middle), max(self.lag_ms_fail, self.lag_ttft_share_fail * middle)


CI = Limits()
PUBLISH = Limits(
    missed_share=0.01,
    lag_ms=2.0,
    headroom=1.67,
    cpu_share=0.60,
    merged_share=0.02,
    cached_share=0.0,
    held_share=0.0,
    token_count_share=0.005,
    gaps_fail=True,
    name="publish",
    window_s=600.0,
    failed_share=0.001,
    claims_count=True,
)

PRESETS = {limits.name: limits for limits in (CI, PUBLISH)}
"""By the name that `--preset` takes."""
