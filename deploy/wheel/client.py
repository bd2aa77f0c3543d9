"""Results of runs in Python, as Arrow or pandas.

    import tidegauge

    with tidegauge.connect() as results:
        results.sql("SELECT stage, p99_ms FROM figures WHERE run_id = {run:String}", run=run_id)

Imports no other module of Tidegauge, so that importing it does not add its folders to the path.
"""

import json
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
import weakref
from collections.abc import Iterator
from contextlib import suppress
from http.client import HTTPException
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Any, Final, NoReturn

STORE_PORT: Final = 2  # offset from the base port: services/runtime/ports.py
BASE_PORT: Final = 17_070
MOST_BASE_PORT: Final = 65_000
PORT_ATTEMPTS: Final = 20
TIMEOUT_S: Final = 60.0
START_TIMEOUT_S: Final = 30.0
STOP_TIMEOUT_S: Final = 10.0
# Variables that a store started here gets: those of the system, and Tidegauge's settings except
# the secrets of other parts.
SYSTEM_VARIABLES: Final = frozenset(
    {"HOME", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "PATH", "TMPDIR", "TZ", "VIRTUAL_ENV"}
)
OWN_VARIABLES: Final = "TIDEGAUGE_"
NOT_OF_THE_STORE: Final = frozenset({"TIDEGAUGE_KAFKA_PROPERTIES", "TIDEGAUGE_WEBHOOKS"})
RUNS: Final = "SELECT * FROM tidegauge.runs WHERE step_of = '' ORDER BY requested_at"
FIGURES: Final = (
    "SELECT * FROM tidegauge.figures WHERE step_of = '' ORDER BY requested_at, pipeline, position"
)
LATENCIES: Final = (
    "SELECT pipeline, stage, phase, second, latency_ms, sum(r.count) AS count"
    " FROM tidegauge.results_latency AS r"
    " WHERE run_id = {run_id:String} AND definition = {definition:String}"
    " GROUP BY pipeline, stage, phase, second, latency_ms"
    " ORDER BY pipeline, stage, second, latency_ms"
)
CHANGES: Final = "SELECT * FROM tidegauge.change_points ORDER BY time"


class ConnectError(RuntimeError):
    """The results are unavailable, or a query was refused; the text gives the reason."""


class Rows:
    """The result of a query. Supports Arrow's C stream interface: `polars.DataFrame(rows)`,
    `duckdb.from_arrow(rows)`.

    arrow: the table.
    """

    def __init__(self, arrow: Any) -> None:
        self.arrow = arrow

    def pandas(self) -> Any:
        """A DataFrame."""
        return self.arrow.to_pandas()

    def __len__(self) -> int:
        return int(self.arrow.num_rows)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self.arrow.to_pylist())

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self.arrow.__arrow_c_stream__(requested_schema)

    def __repr__(self) -> str:
        return repr(self.pandas())

    def _repr_html_(self) -> str:
        return str(self.pandas()._repr_html_())


class Results:
    """The results of one data folder. Use it in `with`, or close it, if it started a store."""

    def __init__(
        self,
        url: str,
        user: str = "",
        password: str = "",
        store: "_Store | None" = None,
        *,
        is_own: bool = False,
    ) -> None:
        """is_own: the store is that of a local stack."""
        self._url = url
        self._is_own = is_own
        self._headers = {"X-ClickHouse-User": user, "X-ClickHouse-Key": password} if user else {}
        self._store = store

    def runs(self) -> Rows:
        """The view `runs`: a row per run, oldest first, without steps of searches."""
        return self.sql(RUNS)

    def figures(self) -> Rows:
        """The view `figures`: a row per run, pipeline and stage, with every setting and figure."""
        return self.sql(FIGURES)

    def latencies(self, run_id: str, definition: str = "latest") -> Rows:
        """Every latency of a run: the count of each value, milliseconds, in each second."""
        return self.sql(LATENCIES, run_id=run_id, definition=definition)

    def changes(self) -> Rows:
        """The view `change_points`: published change points, oldest first."""
        return self.sql(CHANGES)

    def sql(self, query: str, **parameters: object) -> Rows:
        """The result of any query. Parameters fill `{name:Type}` placeholders. Raises
        ConnectError."""
        try:
            import pyarrow as pa  # the command line also imports this package, and needs none
        except ModuleNotFoundError as error:
            raise ConnectError("Results need pyarrow: pip install 'tidegauge[run]'") from error

        fields = {f"param_{name}": str(value) for name, value in parameters.items()}
        fields |= {"default_format": "ArrowStream", "database": "tidegauge"}
        address = f"{self._url}/?{urllib.parse.urlencode(fields)}"
        request = urllib.request.Request(address, query.encode(), self._headers, method="POST")
        if self._is_own and _is_of_another_user(urllib.parse.urlsplit(self._url).port or 0):
            raise ConnectError(f"The port of {self._url} belongs to another user's process.")
        try:
            data = _answer_to(request, TIMEOUT_S)
        except _RefusedError as error:
            raise ConnectError(str(error)) from error
        except OSError as error:
            raise ConnectError(f"{self._url} does not answer: {error}") from error
        try:
            return Rows(pa.ipc.open_stream(data).read_all())
        except pa.ArrowInvalid as error:
            raise ConnectError("the answer is no table; leave FORMAT out of the query") from error

    def close(self) -> None:
        """Stop the store that was started for it, unless another connection uses it too."""
        self._store = None

    def __enter__(self) -> "Results":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def connect(
    url: str = "",
    *,
    data: str | Path | None = None,
    user: str = "reader",
    password: str | None = None,
) -> Results:
    """The results of this machine, or of a store elsewhere.

    url: address of a store; else TIDEGAUGE_STORE_URL, else the running stack of the data folder,
    else a store that is started for the lifetime of this process or the connection. data: the
    folder with the results; else TIDEGAUGE_DATA, else `.tidegauge`. password: of `user`; else that
    in the data folder, if it exists, but never for another `url`. Raises ConnectError.
    """
    root = _root()
    default = Path.cwd() if (root / "client.py").is_file() else root
    folder = Path(data or os.environ.get("TIDEGAUGE_DATA") or default / ".tidegauge").absolute()
    known = os.environ.get("TIDEGAUGE_STORE_URL") or _stack_of(folder)
    address, store = url or known, None
    if not address:
        store = _store_of(root, folder)
        address = known = store.address
    secret = folder / "secrets" / f"clickhouse-{user}"
    try:
        if password is None and address == known:
            password = secret.read_text().strip()
    except OSError:
        pass
    if password is None:
        return Results(address, store=store)  # without a login, for stores that need none
    is_own = address == known and not os.environ.get("TIDEGAUGE_STORE_URL")
    return Results(address, user, password, store, is_own=is_own)


def _root() -> Path:
    """The folder that contains `services`: this one in a package, else the checkout."""
    here = Path(__file__).resolve().parent
    return here if (here / "services").is_dir() else here.parents[1]


def _stack_of(folder: Path) -> str:
    """The address of the store of a folder's running stack (deploy/local/state.py), or an empty
    string."""
    try:
        state = json.loads((folder / "stack.json").read_text())
        stores = [each for each in state["services"] if each["name"] == "store"]
        if any(_is_alive(each["pid"], each["birth"]) for each in (state["owner"], *stores)):
            return f"http://{state['host']}:{state['base_port'] + STORE_PORT}"
    except (OSError, ValueError, KeyError, TypeError):
        pass
    return ""


def _is_alive(pid: int, birth: str) -> bool:
    """As in deploy/local/processes.py; without /proc, a reused pid counts as alive."""
    try:
        os.kill(pid, 0)
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        status = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except FileNotFoundError:
        return sys.platform != "linux"
    except OSError:
        return False
    return f"{boot}/{status[19].decode()}" == birth


def _is_of_another_user(port: int) -> bool:
    """As in services/runtime/clickhouse.py."""
    for name in ("tcp", "tcp6"):
        with suppress(OSError):
            for line in Path("/proc/net", name).read_text().splitlines()[1:]:
                fields = line.split()
                listens = fields[3] == "0A" and int(fields[1].rpartition(":")[2], 16) == port
                if listens and int(fields[7]) not in (0, os.geteuid()):
                    return True
    return False


def _is_ready(address: str) -> bool:
    try:
        _answer_to(f"{address}/health/ready", 1)
    except OSError:
        return False
    return True


class _RefusedError(OSError):
    """The server returned an error; the text is its message."""


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Makes a redirect an error: its target would get the password."""

    def redirect_request(self, *_arguments: Any, **_fields: Any) -> NoReturn:
        raise _RefusedError("The server redirects to another address; give that one")


def _answer_to(request: urllib.request.Request | str, timeout_s: float) -> bytes:
    """The response body; bypasses any proxy to this machine, as in services/runtime/clickhouse.py.
    Raises OSError."""
    url = request if isinstance(request, str) else request.full_url
    is_here = _is_here(urllib.parse.urlsplit(url).hostname or "")
    handlers = [_NoRedirects(), *([urllib.request.ProxyHandler({})] if is_here else [])]
    try:
        try:
            with urllib.request.build_opener(*handlers).open(request, timeout=timeout_s) as answer:
                body: bytes = answer.read()
                return body
        except urllib.error.HTTPError as error:
            raise _RefusedError(error.read().decode(errors="replace").strip()) from error
    except HTTPException as error:
        raise OSError(f"its answer is incomplete: {error!r}") from error


def _is_here(host: str) -> bool:
    """As in services/runtime/hosts.py."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        socket.inet_pton(family, host)
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.bind((host, 0))
    except OSError:
        return host == "localhost"
    return True


class _Store:
    """A store without Kafka over the results of a folder, started here. It ends with its last
    connection. Raises ConnectError."""

    def __init__(self, root: Path, folder: Path) -> None:
        if not (folder / "clickhouse").is_dir():
            raise ConnectError(f"There are no results in {folder}; start with: ./tidegauge run")
        if find_spec("chdb") is None:
            raise ConnectError("A store needs chdb: pip install 'tidegauge[run]'")
        host, base_port = os.environ.get("TIDEGAUGE_HOST") or "127.0.0.1", _free_base_port()
        self.address = f"http://{host}:{base_port + STORE_PORT}"
        log = folder / "logs" / "store-python.log"
        self._process = _start(root, folder, base_port, log)
        self._end = weakref.finalize(self, _end, self._process)
        deadline_s = time.monotonic() + START_TIMEOUT_S
        while not _is_ready(self.address):
            if not self.is_running or time.monotonic() > deadline_s:
                self._end()
                raise ConnectError(f"The store does not start; see {log}")
            time.sleep(0.05)

    @property
    def is_running(self) -> bool:
        """Whether its process is running."""
        return self._process.poll() is None


_STORES: "weakref.WeakValueDictionary[Path, _Store]" = weakref.WeakValueDictionary()


def _store_of(root: Path, folder: Path) -> _Store:
    """The store of this process for a folder, which only one process can open."""
    result = _STORES.get(folder)
    if result is None or not result.is_running:
        _STORES[folder] = result = _Store(root, folder)
    return result


def _free_base_port() -> int:
    """TIDEGAUGE_BASE_PORT, or another one if its store's port is taken, such as by another
    stack."""
    host = os.environ.get("TIDEGAUGE_HOST") or "127.0.0.1"
    port = int(os.environ.get("TIDEGAUGE_BASE_PORT") or BASE_PORT) + STORE_PORT
    for asked in (port, *[0] * PORT_ATTEMPTS):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((host, asked))
            except OSError:
                continue
            base_port = int(probe.getsockname()[1]) - STORE_PORT
        if base_port <= MOST_BASE_PORT:
            return base_port
    raise ConnectError(f"There is no free port on {host}")


def _start(root: Path, folder: Path, base_port: int, log: Path) -> "subprocess.Popen[bytes]":
    settings = {
        "TIDEGAUGE_OFFLINE": "true",
        "TIDEGAUGE_DATA": str(folder),
        "TIDEGAUGE_BASE_PORT": str(base_port),
        "PYTHONPATH": str(root),
    }
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as output:
        return subprocess.Popen(
            [sys.executable, "-m", "services.store"],
            env={name: value for name, value in os.environ.items() if _may_know(name)} | settings,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        )


def _may_know(variable: str) -> bool:
    """Whether the store gets a variable."""
    if variable.startswith(OWN_VARIABLES):
        return variable not in NOT_OF_THE_STORE
    return variable in SYSTEM_VARIABLES


def _end(process: "subprocess.Popen[bytes]") -> None:
    process.terminate()
    try:
        process.wait(STOP_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
