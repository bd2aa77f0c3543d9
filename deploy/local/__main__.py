"""The stack without the console: `python -m deploy.local up`, `down` or `status`.

`up` stays in the foreground, prints its progress, restarts parts that die, and stops everything
when one of them dies too often, or on SIGTERM, SIGHUP or Ctrl-C. `tidegauge up --detach` runs it in
a separate session.
"""

import argparse
import json
import os
import signal
import sys
import threading
from types import FrameType

from deploy.local.parts import lasting_parts
from deploy.local.stack import Stack, StackError, StackStoppedError
from deploy.local.state import UMASK
from schemas.validation_errors import DefinitionError
from services.runtime.settings import EXIT_USAGE, ServiceSettings, load_settings

CHECK_PERIOD_S = 0.25


def main(arguments: list[str]) -> int:
    """Carry out one verb; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m deploy.local", description=__doc__)
    parser.add_argument("verb", choices=("up", "down", "status"))
    parser.add_argument("--detached", action="store_true", help="run without a terminal")
    options = parser.parse_args(arguments)
    os.umask(UMASK)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupt)
    settings = load_settings(ServiceSettings)
    stack = Stack(settings, lasting_parts(settings), detached=options.detached)
    try:
        return VERBS[options.verb](stack)
    except DefinitionError as error:
        print(f"tidegauge: {error}", file=sys.stderr)
        return EXIT_USAGE
    except StackError as error:
        print(*error.log_tail, f"tidegauge: {error}", sep="\n", file=sys.stderr)
        return EXIT_USAGE
    except KeyboardInterrupt:
        print("tidegauge: interrupted", file=sys.stderr)
        return 128 + signal.SIGINT


def up(stack: Stack) -> int:
    """Start, watch, stop."""
    try:
        stack.up(_say)
        if stack.attached:
            return 0
        pause = threading.Event()
        while not pause.wait(CHECK_PERIOD_S):
            stack.check()
    except StackStoppedError as end:
        _say(str(end))
    finally:
        stack.close(_say)
    return 0


def down(stack: Stack) -> int:
    """Stop the stack and any leftovers."""
    _say("the stack is down" if stack.down(_say) else "there is no stack")
    return 0


def status(stack: Stack) -> int:
    """Print the status as JSON."""
    print(json.dumps(stack.status().as_dict(), indent=2))
    return 0


VERBS = {"up": up, "down": down, "status": status}


def _say(text: str) -> None:
    print(text, flush=True)


def _interrupt(_signal: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
