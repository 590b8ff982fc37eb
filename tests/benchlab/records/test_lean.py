"""A process of benchlab's own works with Arrow and never brings pandas in."""

import subprocess
import sys

import pytest

_ARROW = "import sys, pyarrow as pa; pa.array([1, None, 3]); pa.table({'a': ['x']}); print('pandas' in sys.modules)"


@pytest.mark.parametrize("first", ["", "from benchlab.records.lean import keep_pandas_out; keep_pandas_out(); "])
def test_arrow_goes_on_without_pandas(first: str) -> None:
    done = subprocess.run([sys.executable, "-c", first + _ARROW], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    if first:
        assert done.stdout.strip() == "False"


def test_a_process_that_has_pandas_keeps_it() -> None:
    code = (
        "import sys, types; sys.modules['pandas'] = types.ModuleType('pandas'); before = list(sys.meta_path); "
        "from benchlab.records.lean import keep_pandas_out; keep_pandas_out(); assert sys.meta_path == before"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
