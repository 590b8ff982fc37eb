"""The importers by name, and which of them a file is for, by the keys that it holds.

The one idea: a file is told by its keys, never by its name; where none fits or several do, that is an error and the
user says which. It must not know what stands under the keys.
"""

from __future__ import annotations

from pathlib import Path

from benchlab.errors import UsageError
from benchlab.records.import_aiperf import AIPERF
from benchlab.records.import_base import Imported, Importer
from benchlab.records.import_evalscope import EVALSCOPE
from benchlab.records.import_genai_bench import GENAI_BENCH
from benchlab.records.import_guidellm import GUIDELLM
from benchlab.records.import_inference_perf import INFERENCE_PERF
from benchlab.records.import_read import fault, read_document
from benchlab.records.import_sglang import SGLANG
from benchlab.records.import_vllm import VLLM

IMPORTERS: tuple[Importer, ...] = (VLLM, SGLANG, GUIDELLM, AIPERF, INFERENCE_PERF, GENAI_BENCH, EVALSCOPE)
BY_TOOL = {importer.tool: importer for importer in IMPORTERS}
"""Every tool whose results are read."""


def read_result(path: Path, tool: str | None = None) -> Imported:
    """A foreign result file as records. tool: whose it is; None: told by its keys.

    Raises UsageError naming file, place and the next step, whatever stands in the file.
    """
    if tool is not None and tool not in BY_TOOL:
        raise UsageError(f"'{tool}' is no tool here", where="--from", hint=f"one of {', '.join(BY_TOOL)}")
    document = read_document(path)
    asked = IMPORTERS if tool is None else (BY_TOOL[tool],)
    fits = [importer for importer in asked if importer.recognises(document)]
    if len(fits) > 1:
        names = " and ".join(importer.tool for importer in fits)
        raise fault(path, "", f"has the keys of results of {names}", f"say whose it is: --from {fits[0].tool}")
    if fits:
        return fits[0].read(path, document)
    for importer in asked:
        if importer.summary(document):
            what = f"is a summary of {importer.tool} without single requests, and nothing can be judged from averages"
            raise fault(path, "", what, f"import {importer.file}")
    if tool is None:
        raise fault(path, "", "is no result that is known here", f"say whose it is with --from: {', '.join(BY_TOOL)}")
    raise fault(path, "", f"does not have the keys of a result of {tool}", f"import {BY_TOOL[tool].file}")
