"""Files: replaced as a whole, so that after a kill one is either the old or the new; TOML, which
people may have written with any editor; Java properties, as read by Kafka and Java engines.
"""

import codecs
import os
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

_OTHER_ENCODINGS: Final = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_SHORT = {"\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\f": "\\f"}
# Separators of key and value, and comment characters.
_IN_KEYS = frozenset(" :=#!")


def write_whole(path: Path, text: str) -> None:
    """Replace a text file; see write_parts."""
    write_parts(path, [text.encode()])


def write_parts(path: Path, parts: Iterable[bytes | memoryview]) -> None:
    """Replace a file with the concatenated bytes, readable by its owner only. Creates its folder if
    missing. Raises OSError."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    new = path.with_name(f"{path.name}.new")
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        for part in parts:
            file.write(part)
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)


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


def properties_text(values: Mapping[str, object]) -> str:
    """One line per setting, in ASCII, escaped so that Java reads back the same keys and values."""
    lines = (f"{_key(name)}={_value(str(value))}\n" for name, value in values.items())
    return "".join(lines)


def _key(text: str) -> str:
    return "".join(f"\\{each}" if each in _IN_KEYS else _escaped(each) for each in text)


def _value(text: str) -> str:
    # Java strips leading blanks of a value.
    blanks = len(text) - len(text.lstrip(" "))
    return "\\ " * blanks + "".join(map(_escaped, text[blanks:]))


def _escaped(character: str) -> str:
    if character in _SHORT:
        return _SHORT[character]
    if " " <= character <= "~":
        return character
    units = character.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))
