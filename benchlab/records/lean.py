"""Keeps pandas out of a process that only uses Arrow.

The one idea: pyarrow tries to import pandas at its first array, which costs half a second and some 25 MB in each
process and serves nothing here. Refused once, it goes on without. It must not know what the arrays hold.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType


class _Refuse:
    """An import finder that says that pandas is not there."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name == "pandas":
            raise ModuleNotFoundError("pandas is kept out of this process", name=name)
        return None


def keep_pandas_out() -> None:
    """For a process of benchlab's own, before its first array; never where benchlab is imported as a library."""
    if "pandas" not in sys.modules:
        sys.meta_path.insert(0, _Refuse())
