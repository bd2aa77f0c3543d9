"""Ask a service on this machine whether it is ready: `python -m services.runtime.probe SERVICE`.

For health checks of containers, which have no curl. Exit code 0 when `/health/ready` answers 200
within 3 s, else 1 with one line, 2 for a service that does not exist.
"""

import sys
import urllib.error
import urllib.request

from services.runtime.settings import EXIT_USAGE, PORT_OFFSETS, ServiceSettings, load_settings

TIMEOUT_S = 3.0
ANY_ADDRESS = ("0.0.0.0", "::")
EXIT_NOT_READY = 1


def main(arguments: list[str]) -> int:
    """Probe one service; returns the exit code."""
    if len(arguments) != 1 or arguments[0] not in PORT_OFFSETS:
        print(f"usage: python -m services.runtime.probe {'|'.join(PORT_OFFSETS)}", file=sys.stderr)
        return EXIT_USAGE
    url = ready_url(load_settings(ServiceSettings), arguments[0])
    try:
        with urllib.request.urlopen(url, timeout=TIMEOUT_S):
            return 0
    except (urllib.error.URLError, OSError) as error:
        print(f"tidegauge: {url}: {error}", file=sys.stderr)
        return EXIT_NOT_READY


def ready_url(settings: ServiceSettings, service: str) -> str:
    """Where the service says whether it is ready, from inside its own container."""
    host = "127.0.0.1" if settings.host in ANY_ADDRESS else settings.host
    return f"http://{host}:{settings.port(service)}/health/ready"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
