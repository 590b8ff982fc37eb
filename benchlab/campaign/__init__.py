"""Whole runs: an endpoint or an engine, a workload, stages, judgement. The one room that sees both legs."""
