"""Standard output of an engine program: bytes → lines of the contract, all bounded. Pure."""

from dataclasses import dataclass, field

from pydantic import ValidationError

from schemas.engine import LINE, Line, UndecodableLine
from schemas.validation_errors import first_mistake
from services.runtime.events import DeadLetter

MAX_LINE_BYTES = 256 * 1024
# Limit of lines outside the contract that go to the log.
MAX_LOGGED_LINES = 1_000
MAX_LOGGED_CHARACTERS = 2_000


@dataclass
class Lines:
    """Lines of one program. Lines outside the contract go to its log: the first MAX_LOGGED_LINES,
    each truncated."""

    _rest: bytearray = field(default_factory=bytearray)
    _skips: bool = False
    _logged: int = 0

    def feed(self, data: bytes) -> tuple[list[Line], list[str]]:
        """The contract lines completed by `data`, and the text to log."""
        found: list[Line] = []
        logged: list[str] = []
        *whole, rest = data.split(b"\n")
        for part in whole:
            self._take(part)
            line = None if self._skips else _parsed(bytes(self._rest))
            if line is not None and not isinstance(line, str):
                found.append(line)
            elif line != "":
                logged += self._to_log(
                    f"a line of more than {MAX_LINE_BYTES} bytes is left out"
                    if line is None
                    else line
                )
            self._rest.clear()
            self._skips = False
        self._take(rest)
        return found, logged

    def _take(self, part: bytes) -> None:
        if len(self._rest) + len(part) > MAX_LINE_BYTES:
            self._skips = True
            self._rest.clear()
        elif not self._skips:
            self._rest += part

    def _to_log(self, text: str) -> list[str]:
        self._logged += 1
        if self._logged == MAX_LOGGED_LINES + 1:
            return ["further lines of standard output are left out"]
        return [text[:MAX_LOGGED_CHARACTERS]] if self._logged <= MAX_LOGGED_LINES else []


def _parsed(raw: bytes) -> Line | str:
    """The parsed line; or the text to log, with the reason if it resembled a contract line."""
    text = raw.decode(errors="replace").strip()
    if not text.startswith("{"):
        return text
    try:
        return LINE.validate_json(raw)
    except ValidationError as error:
        return f"not a line of the contract ({first_mistake(error)}): {text}"
    except (ValueError, RecursionError) as error:
        return f"not a line of the contract ({error}): {text}"


def dead_letter(line: UndecodableLine, pipeline: str) -> DeadLetter:
    """A record that a program could not decode, with the reason as a sentence."""
    said = len(line.value or b"")
    cut = f"; its value of {line.bytes} bytes was truncated to {said}" if line.bytes > said else ""
    reason = f"{pipeline}: the value cannot be decoded{cut}"
    return DeadLetter(line.topic, line.value, reason, line.partition, line.offset)
