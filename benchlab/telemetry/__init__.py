"""Telemetry: what the machine and the engine say of themselves while requests run, as `Sample`s on the run's clock.

Doors: `sampler` (runs the sources), `nvml`, `host`, `scrape` (the sources), `policy` (which of them apply), `settle`
(a clean baseline at a stage's edge), `series` and `energy` (what a window of samples says). It knows no request, no
metric of the report and no engine by name: names of foreign metrics are rows of `engine_metrics.toml`.
"""
