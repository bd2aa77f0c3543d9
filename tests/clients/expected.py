"""What each operation must have found, whichever client carried it out."""

from collections.abc import Callable
from typing import Any, Final

from tests.clients.task import FURTHER_COLUMNS, LIMIT, NUMBER, ROWS, TABLE, TEXT, VIEW

Detail = Any


def found_names(*names: str) -> Callable[[Detail], bool]:
    """Whether all of the names were found."""
    return lambda detail: set(names) <= set(detail)


def said(*words: str) -> Callable[[Detail], bool]:
    """Whether an error has one of the words, is readable, and does not show a stack."""
    return lambda detail: any(word in detail for word in words) and "\ufffd" not in detail


EXPECTED: Final[dict[str, Callable[[Detail], bool]]] = {
    "connect_without_password": lambda detail: detail == 1,
    "connect_as_reader": lambda detail: detail == 1,
    "version": lambda detail: detail.startswith("26."),
    "catalogs": found_names("tidegauge", "system"),
    "schemas": found_names("tidegauge"),
    "tables": found_names(VIEW, TABLE, "runs", "figures"),
    "columns": found_names("run_id", "p99_ms"),
    "keys": found_names("topic", "partition"),
    "functions": found_names("quantileExact", "toStartOfMinute"),
    "types": lambda detail: (
        detail["compared"]
        == ["18446744073709551615", "-9223372036854775808", "0.5", "it's größe", None]
        and detail["further"] == FURTHER_COLUMNS
    ),
    "client_parameters": lambda detail: detail == [str(NUMBER), TEXT],
    "server_parameters": lambda detail: detail == [str(NUMBER), TEXT],
    "limit": lambda detail: LIMIT <= detail < ROWS,  # a server stops after a whole block
    "timeout": said("TIMEOUT_EXCEEDED", "Timeout exceeded", "159"),
    "cancel": bool,
    "stream": lambda detail: detail == [ROWS, ROWS * (ROWS - 1) // 2],
    "wrong_sql": said("nope"),
    "write_refused": said("READONLY", "ACCESS_DENIED", "Only SELECT", "readonly"),
}
