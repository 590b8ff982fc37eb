"""What a name after -d means."""

from __future__ import annotations

import pytest

from benchlab.errors import UsageError
from benchlab.workload.find import recipe_in


def test_a_recipe_by_name_where_no_file_is_meant() -> None:
    assert recipe_in("matrix-text") == "matrix-text"
    assert recipe_in("recipe:azure-conv:50") == "azure-conv:50"
    assert recipe_in("azure-conv") is None  # ships, and the shipped file wins
    assert recipe_in("some.jsonl") is None
    for wrong in ("recipe:azure-conv:x", "recipe:azure-conv:0", "recipe:nothing"):
        with pytest.raises(UsageError):
            recipe_in(wrong)
