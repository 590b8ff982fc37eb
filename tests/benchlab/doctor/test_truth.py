"""The truth's log: what is written is read again, and a damaged file is told as one."""

from __future__ import annotations

import io
from array import array
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchlab.doctor.truth import Written, read, write
from benchlab.errors import UsageError

TIMES = st.lists(st.integers(0, 2**62), max_size=20)
ENTRIES = st.lists(
    st.builds(
        lambda name, received, times: Written(name, received, array("q", times), array("q", [t + 1 for t in times])),
        st.text("abcdefs0123456789-", min_size=1, max_size=64),
        st.integers(0, 2**62),
        TIMES,
    ),
    max_size=5,
    unique_by=lambda entry: entry.request_id,
)


@given(ENTRIES)
def test_what_is_written_is_read_again(tmp_path_factory: pytest.TempPathFactory, entries: list[Written]) -> None:
    file = tmp_path_factory.getbasetemp() / "truth.bin"
    out = io.BytesIO()
    write(out, entries)
    file.write_bytes(out.getvalue())

    assert read(file) == {entry.request_id: entry for entry in entries}


def test_a_file_that_is_none_or_cut_short_is_told(tmp_path: Path) -> None:
    out = io.BytesIO()
    write(out, [Written("a", 1, array("q", [2, 3]), array("q", [4, 5]))])
    whole = out.getvalue()
    for data in (b"nonsense", whole[:-1], whole[:20], whole + b"x"):
        file = tmp_path / "damaged"
        file.write_bytes(data)
        with pytest.raises(UsageError, match="no log"):
            read(file)
    with pytest.raises(UsageError, match="cannot be read"):
        read(tmp_path / "missing")
