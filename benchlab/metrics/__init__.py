"""From records to believable numbers: the judging leg's first room.

Doors: `columns` (the requests as arrays), `table` (the one table of metrics), `request` and `run` (the formulas),
`window`, `quantiles`, `trend`, `condition` (how a stage did), `validity` (whether to believe it), `summary`.
It knows records and nothing of how they were collected; no clock is read and no chance drawn here.
"""
