"""Base classes of all contract models, parsing of stage names, and which settings must not be
published.
"""

import json
import re
from collections.abc import Sequence
from functools import cache
from typing import Annotated, Any, ClassVar, Self

from pydantic import BaseModel, ConfigDict, StringConstraints, TypeAdapter

# Name of a stage or an input of a domain; part of a topic's name.
Stage = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_]{0,31}$")]

_NAME = r"^[a-z0-9][a-z0-9-]{0,62}$"
Name = Annotated[str, StringConstraints(pattern=_NAME)]
_OBJECT: TypeAdapter[dict[str, Any]] = TypeAdapter(dict[str, Any])
_SECRET = (
    r"(?:passw|passphrase|secret|token|credential|jaas|fs\.azure\.sas"
    r"|(?:access|account|api|encryption|private|shared)[._-]?key"
    r"|ssl\.key\.pem|ssl\.keystore\.key)"
)
# Classes and locations that provide secrets: `fs.s3a.aws.credentials.provider`.
_PROVIDER = re.compile(r"\bprovider(?:\.(?:path|type|mapping))?$", re.IGNORECASE)
_IN_NAME = re.compile(_SECRET, re.IGNORECASE)
# `-Dssl.keyPassword=x` and `{"password": "x"}` within a value, `//user:password@host`, and PEM.
_IN_VALUE = re.compile(
    rf"""{_SECRET}[\w.-]*(?:["']?\s*=|["']\s*:)|//[^/@\s]*:[^/@\s]+@|-BEGIN [A-Z ]*PRIVATE KEY-""",
    re.IGNORECASE,
)


class Model(BaseModel):
    """Base of all contract models: immutable, no unknown fields, no numbers that JSON lacks, and
    errors that do not repeat the input, which may be a secret."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        allow_inf_nan=False,
        hide_input_in_errors=True,
        defer_build=True,
    )


class Message(Model):
    """Base of the commands and events of the bus. HEAD: names of fields of its Avro record. The
    other fields are its content, a JSON object in that record. WHOLE: the only field of content,
    if its value is the whole object. IS_TOLERANT: unknown fields of a read message are ignored."""

    HEAD: ClassVar[tuple[str, ...]] = ()
    WHOLE: ClassVar[str] = ""
    IS_TOLERANT: ClassVar[bool] = False

    def content(self) -> str:
        """The content as JSON text. Fields that were not given are left out."""
        if self.WHOLE:
            return _adapter(type(self)).dump_json(getattr(self, self.WHOLE)).decode()
        head = set(self.HEAD)
        return json.dumps(
            self.model_dump(mode="json", by_alias=True, exclude=head, exclude_unset=True)
        )

    @classmethod
    def parse(cls, head: dict[str, Any], content: str) -> Self:
        """The message with these fields of its record. Raises ValidationError, with places in the
        content."""
        if cls.WHOLE:
            return cls(**head, **{cls.WHOLE: _adapter(cls).validate_json(content)})
        given = _OBJECT.validate_json(content)
        if cls.IS_TOLERANT and cls.model_config["extra"] == "forbid":
            names = {field.alias or name for name, field in cls.model_fields.items()}
            given = {name: given[name] for name in names & given.keys()}
        return cls.model_validate_json(json.dumps(given | head), strict=True)


@cache
def _adapter(kind: type[Message]) -> TypeAdapter[Any]:
    """Of the value of WHOLE."""
    return TypeAdapter(kind.__annotations__[kind.WHOLE])


def parse_stages(text: str, stages: Sequence[Stage]) -> tuple[Stage, ...]:
    """Stages from `0-4`, `2`, `0,3` or names; in order. stages: all stages.

    Raises ValueError with the allowed values.
    """
    chosen: set[int] = set()
    for part in (piece.strip() for piece in text.split(",")):
        span = re.fullmatch(r"([0-9]{1,2})-([0-9]{1,2})", part)
        if span and int(span[1]) <= int(span[2]) < len(stages):
            chosen.update(range(int(span[1]), int(span[2]) + 1))
        elif re.fullmatch(r"[0-9]{1,2}", part) and int(part) < len(stages):
            chosen.add(int(part))
        elif part in stages:
            chosen.add(stages.index(part))
        else:
            raise ValueError(
                f"stages must be like 0-{len(stages) - 1}, 0 or names ({', '.join(stages)}), "
                f"not {text!r}"
            )
    return tuple(stages[number] for number in sorted(chosen))


def looks_secret(name: str, value: str) -> bool:
    """Whether a setting looks like a secret. Any name that mentions secrets does, except names of
    their providers."""
    is_named = _IN_NAME.search(name) and not _PROVIDER.search(name)
    return bool(is_named or _IN_VALUE.search(value))
