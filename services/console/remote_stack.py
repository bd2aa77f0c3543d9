"""A stack that runs elsewhere: containers or a cluster, selected by TIDEGAUGE_STORE_URL.

The console starts and stops nothing there; Kafka and the store are used as usual.
"""

from collections.abc import Callable

from deploy.local.parts import Part, stack_parts
from deploy.local.stack import Stack, StackError, StackStatus
from services.runtime.answers import answer_to
from services.runtime.clickhouse import store_url
from services.runtime.settings import ServiceSettings

READY_TIMEOUT_S = 5.0


def open_stack(
    settings: ServiceSettings, parts: Callable[[ServiceSettings], tuple[Part, ...]] = stack_parts
) -> "Stack | RemoteStack":
    """The stack of this machine, or the remote one if the settings name its store.

    parts: of a stack to start, by the settings.
    """
    if settings.store_url:
        return RemoteStack(settings)
    return Stack(settings, parts(settings))


def public_address(settings: ServiceSettings) -> str:
    """Public address of the store, which may differ from the one that services use."""
    return settings.public_url or str(store_url(settings))


class RemoteStack:
    """The interface of `Stack` for services that are managed elsewhere."""

    attached = True

    def __init__(self, settings: ServiceSettings) -> None:
        self.settings = settings

    def up(
        self, on_progress: Callable[[str], None], _once_leading: Callable[[], None] | None = None
    ) -> None:
        """Check once whether the store is ready. Raises StackError."""
        if not self._is_ready():
            raise StackError(
                f"the store at {self.settings.store_url} is not ready; TIDEGAUGE_STORE_URL says"
                " that the services run elsewhere; see the log of the store there",
            )
        on_progress(f"using the services of {self.settings.store_url}")

    def up_detached(self, _on_progress: Callable[[str], None]) -> None:
        """Not supported for a remote stack. Raises StackError."""
        raise self._not_ours()

    def down(self, _on_progress: Callable[[str], None]) -> bool:
        """Not supported for a remote stack. Raises StackError."""
        raise self._not_ours()

    def close(self, _on_progress: Callable[[str], None]) -> None:
        """Do nothing: nothing was started."""

    def check(self) -> None:
        """Do nothing: remote services are supervised elsewhere, and the run notices missing
        ones."""

    def status(self) -> StackStatus:
        """Whether the store is ready; the other parts are not known here."""
        url = public_address(self.settings)
        return StackStatus(
            self._is_ready(), self.settings.open_bootstrap, url, f"{url}/dashboards/", services=()
        )

    def _is_ready(self) -> bool:
        address = f"{self.settings.store_url}/health/ready"
        try:
            answer_to(address, READY_TIMEOUT_S)
        except OSError:
            return False
        return True

    def _not_ours(self) -> StackError:
        return StackError(
            "the services run elsewhere (TIDEGAUGE_STORE_URL), so start and stop them there",
        )
