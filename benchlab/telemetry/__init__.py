"""Telemetry: what the machine and the engine say of themselves while requests run, as `Sample`s on the run's clock.

Doors: `sources` (which apply, from the flags), `sampler` (runs them), `settle` (a clean baseline at a stage's edge),
`series` and `energy` (what a window of samples says). Behind them `nvml`, `host`, `scrape`, `policy`.
It knows no request, no metric of the report and no engine by name: foreign names are rows of `engine_metrics.toml`.
"""
