"""The verb `evaluate`: has a run that is over evaluated again, in a process of the evaluator's."""

import os
import subprocess
import sys

from services.runtime.settings import ROOT, ServiceSettings


def evaluate_again(settings: ServiceSettings, run_id: str) -> int:
    """Print what comes out beside what was published; returns the exit code: 0 equal, 1 different,
    2 the run cannot be evaluated any more. The stack must be up."""
    variables = {"TIDEGAUGE_DATA": str(settings.data.absolute()), "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        [sys.executable, "-m", "services.evaluator.reevaluation", run_id],
        env=os.environ | variables,
        check=False,
    ).returncode
