"""A domain to start with: a copy of `domain_template/` under another name."""

import re
from pathlib import Path

from schemas.validation_errors import DefinitionError
from services.definitions.domains import load_domain

TEMPLATE = Path(__file__).with_name("domain_template")
_NAME = re.compile(r"[a-z][a-z0-9_]{0,30}")


def new_domain(name: str, folder: Path | None) -> Path:
    """Write a domain that can be run immediately; returns its folder. Raises DefinitionError,
    OSError."""
    if not _NAME.fullmatch(name):
        raise DefinitionError(f"{name!r} is not a valid domain name: use a-z, 0-9 and _.")
    target = (folder or Path.cwd()).resolve() / name
    if target.exists():
        raise DefinitionError(f"{target} exists already.")
    for source in sorted(TEMPLATE.rglob("*.*")):
        place = target / source.relative_to(TEMPLATE)
        if source.suffix == ".avsc":
            place = place.with_name(f"{name}_{source.name}")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(source.read_text().replace("NAME", name))
    load_domain(str(target))
    return target
