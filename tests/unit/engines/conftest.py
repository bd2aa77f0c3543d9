"""What is on PYTHONPATH where an engine in Python runs."""

import sys

from services.runtime.settings import ROOT

sys.path.insert(0, str(ROOT / "engines" / "python"))
