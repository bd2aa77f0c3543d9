"""A policy of one's own: a function `judge` in a Python file, which `search.policy_file` names.

policy = own_policy(search.policy_file, settings.data)
policy(observation)                       # None, or why the rate is not sustained

Each step is judged in a process of its own, without the conductor's settings and secrets, within
bounds of time and memory. So a function that does not return, or ends its process, ends a search
and not the conductor.
"""

import contextlib
import hashlib
import json
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from pydantic import TypeAdapter

from schemas.observation import StepObservation
from schemas.search import PolicyFile
from schemas.validation_errors import DefinitionError
from services.definitions.trusted import policy_objection
from services.runtime.settings import ROOT

ANSWER_S: Final = 30
MOST_BYTES: Final = 2 << 30  # address space
MOST_CHARACTERS: Final = 500
FUNCTION: Final = "judge"
Policy = Callable[[StepObservation], str | None]
_OBSERVATION: Final = TypeAdapter(StepObservation)


class PolicyError(Exception):
    """A policy of one's own gave no answer; one sentence says why."""


def own_policy(file: PolicyFile, data: Path, within_s: float = ANSWER_S) -> Policy:
    """The policy of a file. within_s: the longest time for an answer. Raises DefinitionError if it
    must not be used, or is not the file that the workload was read with; the policy raises
    PolicyError."""
    objection = policy_objection(file, data)
    try:
        code = b"" if objection else Path(file.path).read_bytes()
    except OSError as error:
        objection = f"{file.path} cannot be read by the conductor: {error.strerror}"
    if objection:
        raise DefinitionError(f"search.policy_file: {objection}.")
    if hashlib.sha256(code).hexdigest() != file.sha256:
        raise DefinitionError(
            f"search.policy_file: {file.path} has changed since the command line read it for this"
            " run."
        )
    return lambda step: _answer(file, code.decode(errors="replace"), step, within_s)


def _answer(file: PolicyFile, code: str, step: StepObservation, within_s: float) -> str | None:
    asked = {"path": file.path, "code": code, "step": _OBSERVATION.dump_python(step, mode="json")}
    with subprocess.Popen(
        [sys.executable, "-m", "services.conductor.search.own_policy", str(round(within_s) + 1)],
        cwd=ROOT,
        env={"PATH": os.environ.get("PATH", os.defpath)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    ) as process:
        try:
            output, _ = process.communicate(json.dumps(asked).encode(), within_s)
        except subprocess.TimeoutExpired:
            raise PolicyError(
                f"The policy {file.name} did not answer within {within_s:g} s."
            ) from None
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    if not output:
        raise PolicyError(f"The policy {file.name} ended its process without an answer.")
    answer = json.loads(output)
    if answer["error"]:
        raise PolicyError(f"The policy {file.name} {answer['error']}.")
    result: str | None = answer["refusal"]
    return result


def main() -> None:
    """Answer one question, from standard input to standard output."""
    answers = os.dup(1)
    os.dup2(2, 1)  # what the function prints is no answer
    seconds = int(sys.argv[1])
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
    resource.setrlimit(resource.RLIMIT_AS, (MOST_BYTES, MOST_BYTES))
    asked = json.load(sys.stdin)
    answer = answer_of(asked["code"], asked["path"], _OBSERVATION.validate_python(asked["step"]))
    os.write(answers, json.dumps(answer).encode())


def answer_of(code: str, path: str, step: StepObservation) -> dict[str, str | None]:
    """What the function says: `refusal`, None if the rate is sustained; or `error`, what it did
    wrong."""
    names: dict[str, Any] = {"__name__": "policy", "__file__": path}
    try:
        exec(compile(code, path, "exec"), names)
        refusal = names[FUNCTION](step)
    except BaseException as error:
        return {"refusal": None, "error": f"raised {_one_line(error)}{_line(error, path)}"}
    if refusal is None:
        return {"refusal": None, "error": None}
    if not isinstance(refusal, str):
        kind = type(refusal).__name__
        return {"refusal": None, "error": f"answered with {kind}, not with None or a sentence"}
    refusal = " ".join(refusal.split())
    if not 0 < len(refusal) <= MOST_CHARACTERS:
        words = f"answered with {len(refusal)} characters, not with 1 to {MOST_CHARACTERS}"
        return {"refusal": None, "error": words}
    return {"refusal": refusal, "error": None}


def _one_line(error: BaseException) -> str:
    text = " ".join(str(error).split())[:MOST_CHARACTERS]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _line(error: BaseException, path: str) -> str:
    """The line of the file that raised it."""
    number, trace = None, error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == path:
            number = trace.tb_lineno
        trace = trace.tb_next
    return f" in line {number}" if number else ""


if __name__ == "__main__":
    main()
