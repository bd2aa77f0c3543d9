"""The PYTHONPATH of a Python engine."""

import sys

from services.runtime.settings import ROOT

sys.path.insert(0, str(ROOT / "engines" / "python"))
