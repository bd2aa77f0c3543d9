"""The embedded engine without its first wall: runs every query with the admin's rights.

`python -m tests.security.unjudged_engine walled|open` reads {"folder", "held", "queries"} from
standard input and writes {"stands", "answers"}: the result or error of each query. held: a file
opened before the wall is raised and kept open; `{fd}` is its descriptor.
"""

import json
import os
import sys
import time
from pathlib import Path

from services.store.engine import EngineError, Query
from services.store.engines.wall import NOT_RAISED, raise_wall
from services.store.settings import StoreSettings


def main() -> None:
    asked = json.load(sys.stdin)
    held = os.open(asked["held"], os.O_RDONLY)
    settings = StoreSettings(data=Path(asked["folder"]), offline=True, query_max_seconds=5)
    wall = raise_wall(settings) if sys.argv[1] == "walled" else NOT_RAISED

    from services.store.engines.chdb_engine import ChdbEngine
    from services.store.policy.query_policy import Statement

    class LetsAllPass:
        def settings(self, query, _bounds):
            return dict(query.settings)

        def statement(self, query, _engine_reads):
            return Statement(query.text, query.parameters, query.output_format)

    engine = ChdbEngine(settings, LetsAllPass())
    engine.execute(["CREATE DATABASE IF NOT EXISTS tidegauge"])
    answers = []
    for text in asked["queries"]:
        query = Query(text.replace("{fd}", str(held)), may_write=True)
        begun_s = time.monotonic()
        try:
            answers.append(engine.answer(query).data.decode(errors="replace"))
        except EngineError as error:
            answers.append(f"error: {error}")
        print(f"{time.monotonic() - begun_s:5.1f} s  {query.text}", file=sys.stderr, flush=True)
    print(json.dumps({"stands": wall.stands, "answers": answers}), flush=True)
    os._exit(0)  # the remains of an attack could block an orderly exit


if __name__ == "__main__":
    main()
