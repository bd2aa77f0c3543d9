"""Looks into the files of a run before anything starts: `python -m services.generator.look`, which
`run` starts.

Reads a line of JSON from standard input: `request` (schemas/protocol.py) and `domain`, its name or
folder. Prints one: `refused`, why its records cannot be made, else empty; `bad_rows`, how many rows
are left out, and `first`, the line and the reason of the first, in a folder with its file.
"""

import json
import sys
from pathlib import Path

from schemas.protocol import RunRequest
from services.definitions.domains import load_domain
from services.generator.dataset_plan import dataset_plan
from services.generator.domain_records import new_records


def main() -> None:
    """Answer on standard output."""
    given = json.load(sys.stdin)
    print(json.dumps(looked(RunRequest.model_validate(given["request"]), given["domain"])))


def looked(request: RunRequest, place: str) -> dict[str, object]:
    """The answer, see above. place: of the domain."""
    try:
        domain = load_domain(place)
        records = new_records(domain, request)
        dataset_plan(request, domain.spec, records)
    except ValueError as error:
        return {"refused": str(error).rstrip("."), "bad_rows": 0, "first": ""}
    first = ""
    if bad := records.bad_rows:
        path = request.workload.content.path
        place = f"{Path(bad[0].topic).name}, " if path and Path(path).is_dir() else ""
        first = f"{place}line {bad[0].offset}: {bad[0].reason}"
    return {"refused": "", "bad_rows": len(bad), "first": first}


if __name__ == "__main__":
    main()
