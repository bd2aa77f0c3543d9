"""Webhooks for notifications, from the settings of this machine only.

    TIDEGAUGE_WEBHOOKS='{"team": {"shape": "slack", "url_file": "/etc/tidegauge/slack"}}'

Put addresses that are secret, such as those of Slack and Teams, into a file.
"""

from pathlib import Path
from typing import Annotated, Final, Literal, Self
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, model_validator

from schemas.suite import NoticeKind
from services.runtime.hosts import LOOPBACK
from services.runtime.secret_files import SecretFileError, given_secret
from services.runtime.settings import ServiceSettings

WebhookName = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]{0,62}$")]
MOST_WEBHOOKS: Final = 16


class Webhook(BaseModel):
    """One receiver.

    url, url_file: its address, or the file that contains it; https, or http on this machine.
    allow_http: also http elsewhere, for a receiver without TLS on a network of one's own; whoever
    is on the way reads messages and token. shape: format of the message. on: events to send; all
    if empty. token_file: a secret sent as
    `Authorization: Bearer …`.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    shape: Literal["json", "slack", "teams"] = "json"
    url: str = ""
    url_file: Path | None = None
    token_file: Path | None = None
    on: tuple[NoticeKind, ...] = ()
    allow_http: bool = False

    @model_validator(mode="after")
    def _one_address(self) -> Self:
        if bool(self.url) == bool(self.url_file):
            raise ValueError("needs either url or url_file")
        if self.url:
            check_address(self.url, self.allow_http)
        return self

    def address(self) -> str:
        """The address. Raises SecretFileError if its file cannot be used."""
        if self.url_file is None:
            return self.url
        result = given_secret(self.url_file)
        try:
            check_address(result, self.allow_http)
        except ValueError as error:
            raise SecretFileError(f"the address in {self.url_file} {error}") from error
        return result

    def token(self) -> str:
        """The bearer token, or an empty string. Raises SecretFileError."""
        return given_secret(self.token_file) if self.token_file else ""


def check_address(url: str, allow_http: bool = False) -> None:
    """Raise ValueError for an address that is not allowed. The text does not repeat the address."""
    if not url.isascii() or not url.isprintable() or " " in url:
        raise ValueError("must contain only printable ASCII")
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        host, port = "", 0
    if not host or "@" in parts.netloc or port == 0:
        raise ValueError("must be https://host[:port]/path, without a user")
    is_http = parts.scheme == "http" and (allow_http or host in LOOPBACK)
    if parts.scheme != "https" and not is_http:
        raise ValueError(
            "must be https://…; http:// is allowed for this machine only, or without encryption"
            " elsewhere with allow_http = true in this webhook"
        )


class WebhookSettings(ServiceSettings):
    """Receivers of notifications, and retries.

    no_results_minutes: minutes without a result before a notification; 0 disables it.
    webhook_timeout_s: of one attempt. webhook_retry_s: delay of the first retry, doubled up to
    webhook_most_retry_s. webhook_give_up_s: after which a message is dropped.
    """

    webhooks: dict[WebhookName, Webhook] = Field({}, max_length=MOST_WEBHOOKS)
    no_results_minutes: float = Field(0, ge=0, le=100_000)
    webhook_timeout_s: float = Field(5, gt=0, le=60)
    webhook_retry_s: float = Field(2, gt=0, le=3600)
    webhook_most_retry_s: float = Field(300, gt=0, le=86_400)
    webhook_give_up_s: float = Field(86_400, gt=0, le=2_592_000)
