"""What all contract models share, and the names of the stages."""

import re
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, StringConstraints

Stage = Literal["ingest", "parse", "join", "tumbling", "sliding"]
STAGES: tuple[Stage, ...] = ("ingest", "parse", "join", "tumbling", "sliding")

_NAME = r"^[a-z0-9][a-z0-9-]{0,62}$"
Name = Annotated[str, StringConstraints(pattern=_NAME)]


class Model(BaseModel):
    """Base of all contract models: immutable, no unknown fields, no number that JSON lacks, and no
    mistake that repeats what was given, which may be a secret."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", allow_inf_nan=False, hide_input_in_errors=True
    )


def parse_stages(text: str) -> tuple[Stage, ...]:
    """Stages from `0-4`, `2`, `0,3` or names; in order. Raises ValueError with what is allowed."""
    chosen: set[int] = set()
    for part in (piece.strip() for piece in text.split(",")):
        span = re.fullmatch(r"([0-4])-([0-4])", part)
        if span and int(span[1]) <= int(span[2]):
            chosen.update(range(int(span[1]), int(span[2]) + 1))
        elif re.fullmatch(r"[0-4]", part):
            chosen.add(int(part))
        elif part in STAGES:
            chosen.add(STAGES.index(part))
        else:
            raise ValueError(f"stages must be like 0-4, 2 or join,tumbling, not {text!r}")
    return tuple(STAGES[number] for number in sorted(chosen))
