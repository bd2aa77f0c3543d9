"""Formats Java properties files, as read by Kafka and Java engines. Pure."""

from collections.abc import Mapping

_SHORT = {"\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\f": "\\f"}
# Separators of key and value, and comment characters.
_IN_KEYS = frozenset(" :=#!")


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
