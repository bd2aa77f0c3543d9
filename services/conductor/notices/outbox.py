"""Unsent notifications and the read position on the bus in one small file, so that nothing is lost
or sent twice after a kill.

A notification is added together with the position after its event. It is removed after the receiver
has accepted it; a kill between the two sends it again with the same id.
"""

from pathlib import Path
from typing import Final

import structlog
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from services.conductor.notices.notice import Notice
from services.conductor.notices.watches import Told
from services.runtime.whole_files import write_whole

MOST_WAITING: Final = 500
MOST_BYTES: Final = 16 * 1024 * 1024
log = structlog.get_logger()


class Quiet(BaseModel):
    """Start of a time without results. end: next offset of the topic; told: whether it was
    reported."""

    end: int = -1
    since_ms: int = 0
    told: bool = False


class OutboxFile(BaseModel):
    """Content of the file. next: offset by topic. waiting: notifications by webhook, oldest
    first. told: of `Told`. watches: times without results of each. watched_runs: the watch of each
    of its runs."""

    model_config = ConfigDict(extra="ignore")

    stack_id: str = ""
    next: dict[str, int] = Field(default_factory=dict)
    waiting: dict[str, list[Notice]] = Field(default_factory=dict)
    quiet: Quiet = Quiet()
    told: list[str] = Field(default_factory=list)
    watches: dict[str, Quiet] = Field(default_factory=dict)
    watched_runs: dict[str, str] = Field(default_factory=dict)


class Outbox:
    """The file `notices.json` of a data folder. For one thread.

    names: of the configured webhooks; notifications for others are dropped. An invalid file counts
    as empty. Changes are saved by `write`.
    """

    def __init__(self, data: Path, names: tuple[str, ...], stack_id: str) -> None:
        self._path = data / "notices.json"
        found = self._read()
        self.next = found.next
        self.told = Told(found.told)
        is_of_stack = found.stack_id == stack_id
        self.quiet = found.quiet if is_of_stack else Quiet()
        self.watches = found.watches if is_of_stack else {}
        self.watched_runs = found.watched_runs if is_of_stack else {}
        self._stack_id = stack_id
        self._waiting = {name: found.waiting.get(name, []) for name in names}

    def add(self, notice: Notice, names: tuple[str, ...]) -> None:
        """Queue a notification for these webhooks; evicts the oldest from a full queue."""
        for name in names:
            queue = self._waiting[name]
            queue.append(notice)
            if len(queue) > MOST_WAITING:
                log.warning("notice_dropped", webhook=name, title=queue.pop(0).title)

    def first(self, name: str) -> Notice | None:
        """The next notification for a webhook."""
        queue = self._waiting[name]
        return queue[0] if queue else None

    def done(self, name: str) -> None:
        """Remove the first: it was sent or is dropped."""
        self._waiting[name].pop(0)

    def write(self) -> None:
        """Save all changes. Raises OSError."""
        kept = OutboxFile(
            stack_id=self._stack_id,
            next=self.next,
            waiting=self._waiting,
            quiet=self.quiet,
            told=self.told.saved(),
            watches=self.watches,
            watched_runs=self.watched_runs,
        )
        write_whole(self._path, kept.model_dump_json())

    def _read(self) -> OutboxFile:
        try:
            with self._path.open("rb") as file:
                return OutboxFile.model_validate_json(file.read(MOST_BYTES))
        except FileNotFoundError:
            return OutboxFile()
        except ValidationError:
            aside = self._path.with_suffix(".unreadable")
            self._path.replace(aside)
            log.warning("notices_set_aside", path=str(aside))
            return OutboxFile()
