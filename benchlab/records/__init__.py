"""The waist: what happened, as integers, before anybody judges it.

Collecting writes records, judging reads them, and neither knows the other. Doors: `event` (words), `record` (one
request), `recorder` (folds a stream of events into a record), `spool` and `store` (files), `manifest`, `sample`.
"""
