"""Looks into the files that a run would read, before anything starts."""

import json
import os
import subprocess
import sys
from collections.abc import Callable

from schemas.protocol import RunRequest
from schemas.validation_errors import DefinitionError
from services.definitions.domains import DOMAINS_DIR, Domain
from services.runtime.settings import ServiceSettings


def look_into_files(
    request: RunRequest, domain: Domain, settings: ServiceSettings, say: Callable[[str], None]
) -> None:
    """Read the files of a request in a process of the generator, as a run would, and say how many
    rows it would leave out. Raises DefinitionError if it could not use them."""
    content = request.workload.content
    is_own = bool(domain.recording) and domain.folder.parent != DOMAINS_DIR.resolve()
    if not content.path and not is_own:
        return
    given = {"request": json.loads(request.model_dump_json()), "domain": domain.place}
    done = subprocess.run(
        [sys.executable, "-m", "services.generator.look"],
        env=os.environ | settings.child_variables,
        input=json.dumps(given),
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    if done.returncode:
        raise DefinitionError("The files of the run could not be looked into.")
    told = json.loads(done.stdout.splitlines()[-1])
    if told["refused"]:
        raise DefinitionError(f"{told['refused']}.")
    if told["bad_rows"]:
        say(f"rows left out, as dead letters: {told['bad_rows']}; the first is {told['first']}")
