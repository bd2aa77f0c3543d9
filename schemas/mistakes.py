"""What is wrong with data from outside, for a person."""

from pydantic import ValidationError


def first_mistake(error: ValidationError, whole: str = "", within: str = "") -> str:
    """The first of what is wrong, without a full stop: the field and what was allowed.

    whole: the name of what was checked, where it is wrong as a whole; within: the field that it is
    the value of, which then comes first.
    """
    first = error.errors()[0]
    above = (within,) if within else ()
    field = ".".join(str(part) for part in (*above, *first["loc"])) or whole
    return f"{field}: {first['msg']}" if field else first["msg"]
