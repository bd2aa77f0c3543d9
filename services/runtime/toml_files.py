"""Reads TOML, which people may have written with any editor."""

import codecs
import tomllib
from pathlib import Path
from typing import Any, Final

_OTHER_ENCODINGS: Final = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


def read_toml(path: Path) -> dict[str, Any]:
    """The content of a file. Raises OSError, and ValueError as `parse_toml`."""
    return parse_toml(path.read_bytes())


def parse_toml(data: bytes) -> dict[str, Any]:
    """Parse TOML in UTF-8, with or without a byte order mark. Raises ValueError with a clause, also
    for errors that Python's parser raises otherwise."""
    if data.startswith(_OTHER_ENCODINGS):
        raise ValueError("it is in UTF-16; save it as UTF-8")
    try:
        return tomllib.loads(data.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ValueError(f"line {line} is not in UTF-8; save it as UTF-8") from None
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
