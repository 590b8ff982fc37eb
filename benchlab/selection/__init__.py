"""From summaries to decisions: limits, the pick of a capacity, gates, comparison.

Doors: `slo` (what the user asks for), `judge` (a run's whole summary), `pick`, `gate`, `compare`. It sees summaries and
metrics, never how anything was collected, and decides nothing that a summary cannot show.
"""
