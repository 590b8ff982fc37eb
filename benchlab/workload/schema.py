"""The published JSON Schema of an item, generated from the type, so that page and code cannot differ."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec

from benchlab.shipped import shipped_workloads
from benchlab.workload.item import WorkloadItem

SCHEMA_FILE = "item.schema.json"
_ASKS = ("messages", "prompt", "input_tokens")


def item_schema() -> str:
    """The JSON Schema (2020-12) of one line, as text with a final newline."""
    schema = msgspec.json.schema(WorkloadItem)
    item = schema["$defs"]["WorkloadItem"]
    # "Exactly one of" is the reader's rule beyond the type; a field that is there with null counts as absent to it.
    item["oneOf"] = [{"required": [name], "properties": {name: {"not": {"type": "null"}}}} for name in _ASKS]
    document = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "benchlab workload item (one line of a JSON Lines file)",
        **schema,
    }
    return json.dumps(document, indent=1, sort_keys=True) + "\n"


def published_schema() -> Path:
    """Where the schema lies for readers that are not Python."""
    return shipped_workloads() / SCHEMA_FILE
