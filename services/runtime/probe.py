"""Readiness probe of a service on this machine: `python -m services.runtime.probe SERVICE`.

For container health checks, as the images have no curl. Exit code 0 if `/health/ready` returns 200
within 3 s, else 1 with one line; 2 for an unknown service or an invalid base port.

It runs every few seconds on the cores being measured, so it reads its two settings from the
environment and imports little.
"""

import os
import socket
import sys

from services.runtime.ports import DEFAULT_BASE_PORT, PORT_OFFSETS

TIMEOUT_S = 3.0
ANY_ADDRESS = ("", "0.0.0.0", "::")
LOOPBACK = "127.0.0.1"
EXIT_NOT_READY, EXIT_USAGE = 1, 2
READY = b" 200 "


def main(arguments: list[str]) -> int:
    """Probe one service; returns the exit code."""
    given = os.environ.get("TIDEGAUGE_BASE_PORT", str(DEFAULT_BASE_PORT))
    if len(arguments) != 1 or arguments[0] not in PORT_OFFSETS or not given.isdecimal():
        print(f"usage: python -m services.runtime.probe {'|'.join(PORT_OFFSETS)}", file=sys.stderr)
        return EXIT_USAGE
    host = os.environ.get("TIDEGAUGE_HOST", LOOPBACK)
    # The probe runs inside the service's container.
    host, port = LOOPBACK if host in ANY_ADDRESS else host, int(given) + PORT_OFFSETS[arguments[0]]
    try:
        answer = first_line(host, port)
    except OSError as error:
        answer = str(error).encode()
    if READY in answer:
        return 0
    text = answer.decode(errors="replace").strip()
    print(f"tidegauge: http://{host}:{port}/health/ready: {text}", file=sys.stderr)
    return EXIT_NOT_READY


def first_line(host: str, port: int) -> bytes:
    """The first line of the response to `GET /health/ready`. Raises OSError."""
    with socket.create_connection((host, port), TIMEOUT_S) as connection:
        lines = ("GET /health/ready HTTP/1.1", f"Host: {LOOPBACK}:{port}", "Connection: close")
        connection.sendall("\r\n".join((*lines, "", "")).encode())
        with connection.makefile("rb") as answer:
            return answer.readline(200)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
