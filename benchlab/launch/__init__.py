"""Launchers: an engine started as a process of its own, waited for, watched, and ended with all it started.

Doors: `base` (`load_launch_file`, `Engine`). An engine is a TOML file in this folder, or the user's own. The room
knows how to start a server and whether it answers; it knows nothing of load, metrics or reports.
"""
