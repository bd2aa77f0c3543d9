"""The table of clients in docs/sql.md."""

from collections.abc import Mapping, Set
from typing import Final

from services.runtime.settings import ROOT
from tests.clients.clients import CLIENTS, OPERATIONS, Client

PAGE: Final = ROOT / "docs" / "sql.md"
MARK: Final = "clients"


def table(outcomes: Mapping[Client, Set[str]]) -> str:
    """Markdown: a row for each client tried, with the operations that failed or that it lacks.

    outcomes: the operations that each of them carried out.
    """
    lines = ["| client | version | operations | not |", "|---|---|---:|---|"]
    for client in (client for client in CLIENTS if client in outcomes):
        done = outcomes[client]
        left = [
            client.reason(name) or f"**{OPERATIONS[name]}**"
            for name in OPERATIONS
            if name not in done
        ]
        cells = (client.name, client.version, f"{len(done)} of {len(OPERATIONS)}", "; ".join(left))
        lines.append(f"| {' | '.join(cells)} |".replace("  ", " "))
    return "\n".join(lines)
