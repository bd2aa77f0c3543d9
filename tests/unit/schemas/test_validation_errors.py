"""What people read about a wrong value: the field as in their file, and what is allowed."""

from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError
from pydantic_settings import BaseSettings

from schemas.validation_errors import allowed, first_mistake

ROOT = Path(__file__).parents[3]


def _even(value: int) -> int:
    if value % 2:
        raise ValueError("must be even")
    return value


class Part(BaseModel):
    size: int = Field(1, ge=1)


class Whole(BaseModel):
    model_config = ConfigDict(extra="forbid")

    parts: tuple[Part, ...] = Field((), max_length=2)
    warm_up_s: int | Literal["auto"] | None = None
    even: Annotated[int, AfterValidator(_even)] | Literal[""] = ""
    address: str = Field("", pattern=r"^(https?://[^\s/]+)?$")
    odd: str = Field("", pattern=r"^(?:x|yy)*$")
    named: dict[str, int] = Field(default_factory=dict)
    flag: bool = False
    name: str = Field("a", min_length=1, max_length=3)
    colour: Literal["red", "blue"] = "red"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"parts": [{"size": 0}]}, "parts.0.size: It must be at least 1"),
        ({"parts": [7]}, "parts.0: It must be a table"),
        ({"parts": "x"}, "parts: It must be a list"),
        ({"parts": [{}, {}, {}]}, "parts: It must have at most 2 entries"),
        ({"warm_up_s": "soon"}, "warm_up_s: It must be a whole number or 'auto'"),
        ({"even": 3}, "even: must be even"),
        ({"even": "x"}, "even: It must be a whole number"),
        ({"address": "ftp://x"}, "address: It must be an address: https://host[:port]"),
        ({"odd": "z"}, "odd: It has a form that is not allowed here"),
        ({"named": {"a.b": "x"}}, "named.a.b: It must be a whole number"),
        ({"named": []}, "named: It must be a table"),
        ({"flag": "maybe"}, "flag: It must be true or false"),
        ({"name": 5}, "name: It must be text"),
        ({"name": ""}, "name: It must have at least 1 character"),
        ({"colour": "green"}, "colour: It must be 'red' or 'blue'"),
        ({"color": "red"}, "color: There is no such field"),
    ],
)
def test_a_mistake_is_said_with_the_field_of_the_file_and_what_is_allowed(given, said):
    with pytest.raises(ValidationError) as raised:
        Whole.model_validate(given)

    assert first_mistake(raised.value).startswith(said)


def _patterns(schema: Any) -> set[str]:
    if isinstance(schema, dict):
        found = {schema["pattern"]} if isinstance(schema.get("pattern"), str) else set()
        return found.union(*map(_patterns, schema.values()))
    return set().union(*map(_patterns, schema)) if isinstance(schema, list) else set()


def _models() -> list[type[BaseModel]]:
    files = [*ROOT.glob("schemas/*.py"), *ROOT.glob("services/*/settings.py")]
    files += [ROOT / "services/runtime/webhooks.py", ROOT / "services/runtime/settings.py"]
    names = {".".join(one.relative_to(ROOT).with_suffix("").parts) for one in files}
    found = [one for name in names for one in vars(import_module(name)).values()]
    classes = {one for one in found if isinstance(one, type) and issubclass(one, BaseModel)}
    return [one for one in classes if one not in (BaseModel, BaseSettings)]


def test_every_form_that_a_file_or_a_setting_must_have_has_words():
    patterns = set().union(*(_patterns(one.model_json_schema()) for one in _models()))

    assert len(patterns) > 15
    assert [one for one in sorted(patterns) if not allowed(one)] == []
