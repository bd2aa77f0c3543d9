"""What is to be sent, and up to where the bus was looked at: one small file, so that after a kill
nothing is told twice and nothing is left out.

A notice goes in together with the position behind its event. It goes out when the receiver has
taken it; a kill between these two sends it again, with the same id.
"""

from pathlib import Path
from typing import Final

import structlog
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from services.conductor.notices.notice import Notice
from services.runtime.whole_files import write_whole

MOST_WAITING: Final = 500
MOST_BYTES: Final = 16 * 1024 * 1024
log = structlog.get_logger()


class Quiet(BaseModel):
    """Since when no result has come. end: of the topic then; told: whether people know."""

    end: int = -1
    since_ms: int = 0
    told: bool = False


class OutboxFile(BaseModel):
    """What the file holds. next: offset by topic. waiting: notices by name of the webhook, oldest
    first."""

    model_config = ConfigDict(extra="ignore")

    stack_id: str = ""
    next: dict[str, int] = Field(default_factory=dict)
    waiting: dict[str, list[Notice]] = Field(default_factory=dict)
    quiet: Quiet = Quiet()


class Outbox:
    """The file `notices.json` of a data folder. For one thread.

    names: of the webhooks there are; what waits for others is dropped. A file that makes no sense
    counts as empty. Changes are kept by `write`.
    """

    def __init__(self, data: Path, names: tuple[str, ...], stack_id: str) -> None:
        self._path = data / "notices.json"
        found = self._read()
        self.next = found.next
        self.quiet = found.quiet if found.stack_id == stack_id else Quiet()
        self._stack_id = stack_id
        self._waiting = {name: found.waiting.get(name, []) for name in names}

    def add(self, notice: Notice, names: tuple[str, ...]) -> None:
        """Let a notice wait for these webhooks. Of many that wait for one, the oldest goes."""
        for name in names:
            queue = self._waiting[name]
            queue.append(notice)
            if len(queue) > MOST_WAITING:
                log.warning("notice_dropped", webhook=name, title=queue.pop(0).title)

    def first(self, name: str) -> Notice | None:
        """What is to be sent next to a webhook."""
        queue = self._waiting[name]
        return queue[0] if queue else None

    def done(self, name: str) -> None:
        """The first was sent, or is not to be."""
        self._waiting[name].pop(0)

    def write(self) -> None:
        """Keep it all. Raises OSError."""
        kept = OutboxFile(
            stack_id=self._stack_id, next=self.next, waiting=self._waiting, quiet=self.quiet
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
