"""A small test double of a service, and checks of a stack of such services."""

import threading
import time
from collections.abc import Callable

from deploy.local.stack import Stack
from deploy.local.state import StateFile
from services.runtime.settings import ServiceSettings

DEADLINE_S = 120

# Ready at once or, if started before its dependencies, once it is told. /crash makes it exit with
# code 3. It has a child that ignores SIGTERM and, like Spark's Python workers, leads its own
# process group.
DOUBLE = """
import http.server, os, signal, subprocess, sys
STUBBORN = (
    "import os, signal; os.setpgid(0, 0); signal.signal(signal.SIGTERM, signal.SIG_IGN);"
    "print('stubborn', flush=True); signal.pause()"
)
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        if self.path == "/crash":
            print("the sea came in", flush=True)
            os._exit(3)
        self.send_response(200 if sys.argv[2] == "ready" else 503)
        self.end_headers()
    def log_message(self, *_):
        pass
if os.environ.get("TIDEGAUGE_WAITS"):
    print("told", os.read(0, 9), flush=True)
if sys.argv[2] == "ends":
    sys.exit("there is no water")
child = subprocess.Popen([sys.executable, "-c", STUBBORN], stdout=subprocess.PIPE)
child.stdout.readline()
print("listening", flush=True)
http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""


def stack_id(settings: ServiceSettings) -> str:
    found = StateFile(settings.data).read()
    assert found is not None
    return found.stack_id


def pid_of(stack: Stack, name: str) -> int:
    return next(s.pid for s in stack.status().services if s.name == name)


def eventually(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, f"in vain: {what}"
        threading.Event().wait(0.05)
