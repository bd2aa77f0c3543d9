"""The verb `evaluate`: evaluates a finished run again, in an evaluator process."""

import os
import subprocess
import sys

from services.runtime.settings import ServiceSettings


def evaluate_again(settings: ServiceSettings, run_id: str) -> int:
    """Print the results beside the published ones. Returns the exit code: 0 equal, 1 different, 2
    if the run can no longer be evaluated. The stack must be running."""
    return subprocess.run(
        [sys.executable, "-m", "services.evaluator.reevaluation", run_id],
        env=os.environ | settings.child_variables,
        check=False,
    ).returncode
