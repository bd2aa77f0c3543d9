"""Reports with only the parts that a test is about."""

from types import NoneType, UnionType
from typing import Any, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel

from schemas.report import Report

M = TypeVar("M", bound=BaseModel)


def report_of(content: dict[str, Any] | Report) -> Report:
    """The report of some of its JSON, without validation. What is absent cannot be read, unless it
    has a default."""
    return content if isinstance(content, Report) else part_of(Report, content)


def part_of(model: type[M], content: dict[str, Any]) -> M:
    """The same for a part of a report."""
    fields = model.model_fields
    values = {
        name: _value(fields[name].annotation, value) if name in fields else value
        for name, value in content.items()
    }
    return model.model_construct(set(values), **values)


def _value(kind: Any, value: Any) -> Any:
    if isinstance(kind, type) and issubclass(kind, BaseModel) and isinstance(value, dict):
        return part_of(kind, value)
    inner = get_args(kind)
    if get_origin(kind) in (Union, UnionType):
        (first, *_) = (one for one in inner if one is not NoneType)
        return None if value is None else _value(first, value)
    if get_origin(kind) is list and isinstance(value, list | tuple):
        return [_value(inner[0], one) for one in value]
    if isinstance(value, dict) and len(inner) == 2:
        return {key: _value(inner[1], one) for key, one in value.items()}
    return value
