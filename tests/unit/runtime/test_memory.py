"""Memory usage of a process."""

import subprocess
import sys

import pytest

pytestmark = pytest.mark.unit

SCRIPT = """
import sys
from services.runtime.memory import leave_out_pandas
leave_out_pandas()
import pyarrow as pa
assert pa.array([1, 2]).to_pylist() == [1, 2]
assert "pandas" not in sys.modules
import pandas
"""


def test_arrow_does_without_pandas_and_others_still_find_it() -> None:
    subprocess.run([sys.executable, "-c", SCRIPT], check=True)
