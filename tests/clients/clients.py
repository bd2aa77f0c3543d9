"""The clients of the matrix, and the operations that each of them carries out.

Each folder has one program, which reads a task (tests/clients/task.py) and prints a line of JSON
for each operation: `{"operation": …, "ok": …, "detail": …}`. A program may be several clients: its
argument says which.
"""

from dataclasses import dataclass
from typing import Final

OPERATIONS: Final = {
    "connect_without_password": "no password",
    "connect_as_reader": "`reader`",
    "version": "version",
    "catalogs": "catalogs",
    "schemas": "schemas",
    "tables": "tables",
    "columns": "columns",
    "keys": "keys",
    "functions": "functions",
    "views": "every view",
    "types": "types",
    "client_parameters": "client's parameters",
    "server_parameters": "server's parameters",
    "limit": "limit",
    "timeout": "timeout",
    "cancel": "cancel",
    "stream": "a million rows",
    "wrong_sql": "error",
    "write_refused": "write refused",
}


@dataclass(frozen=True)
class Client:
    """A client. folder: where its program is; toolchain: what builds and runs it; variant: the
    program's argument. lacks: operations that the client has not, each with the reason."""

    name: str
    version: str
    folder: str
    toolchain: str
    variant: str = ""
    lacks: tuple[tuple[str, str], ...] = ()

    def reason(self, operation: str) -> str:
        """Why the client does not carry out an operation; empty if it does."""
        return dict(self.lacks).get(operation, "")


def _jdbc(version: str) -> tuple[Client, ...]:
    return (
        Client(f"JDBC {version}, V1", version, "java", "java", f"{version} v1"),
        Client(f"JDBC {version}, V2", version, "java", "java", f"{version} v2"),
    )


_NODE_LACKS: Final = (("client_parameters", "it leaves parameters to the server"),)
_GO: Final = "2.51.0"
_CONNECT: Final = "1.12.0"
CLIENTS: Final = (
    *_jdbc("0.8.6"),
    *_jdbc("0.9.8"),
    *_jdbc("0.10.0"),
    Client("ODBC's requests", "1.5.4", "http", "python", "odbc"),
    *(
        Client(f"clickhouse-go, {method}", _GO, "go", "go", method)
        for method in ("none", "gzip", "lz4", "zstd")
    ),
    Client("Grafana's plugin", f"clickhouse-go {_GO}", "go", "go", "grafana"),
    Client("@clickhouse/client", "1.23.1", "node", "node", lacks=_NODE_LACKS),
    Client("clickhouse-connect", _CONNECT, "connect", "python", "rows"),
    Client("clickhouse-connect, pandas", _CONNECT, "connect", "python", "pandas"),
    Client("clickhouse-connect, Arrow", _CONNECT, "connect", "python", "arrow"),
    Client("SQLAlchemy, as Superset", _CONNECT, "connect", "python", "sqlalchemy"),
    Client("clickhouse-sqlalchemy", "0.3.2", "clickhouse_sqlalchemy", "python"),
    Client("aiochclient", "2.7.0", "aiochclient", "python"),
    Client("ibis", "12.0.0", "ibis", "python"),
    Client("Rust `clickhouse`", "0.15.3", "rust", "cargo"),
    Client("curl", "", "http", "curl", "curl"),
)
