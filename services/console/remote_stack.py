"""A stack that this machine does not run: containers or a cluster, named by TIDEGAUGE_STORE_URL.

The console then starts and stops nothing; it asks Kafka and the store as it does otherwise.
"""

from collections.abc import Callable

from deploy.local.parts import Part, stack_parts
from deploy.local.stack import Stack, StackError, StackStatus
from services.runtime.answers import answer_to
from services.runtime.clickhouse import store_url
from services.runtime.settings import EXIT_USAGE, ServiceSettings

READY_TIMEOUT_S = 5.0


def open_stack(
    settings: ServiceSettings, parts: Callable[[ServiceSettings], tuple[Part, ...]] = stack_parts
) -> "Stack | RemoteStack":
    """The stack of this machine, or the one elsewhere where the settings name its store.

    parts: those of a stack that is started, by the settings.
    """
    if settings.store_url:
        return RemoteStack(settings)
    return Stack(settings, parts(settings))


def public_address(settings: ServiceSettings) -> str:
    """Where people find the store, which may be another address than the services use."""
    return settings.public_url or str(store_url(settings))


class RemoteStack:
    """Answers like `Stack` for services that somebody else runs."""

    attached = True

    def __init__(self, settings: ServiceSettings) -> None:
        self.settings = settings

    def up(
        self, on_progress: Callable[[str], None], _once_leading: Callable[[], None] | None = None
    ) -> None:
        """Look whether the store is ready, once. Raises StackError."""
        if not self._is_ready():
            raise StackError(
                f"the store at {self.settings.store_url} is not ready; TIDEGAUGE_STORE_URL says"
                " that the services run elsewhere, so look there",
                exit_code=EXIT_USAGE,
            )
        on_progress(f"using the services of {self.settings.store_url}")

    def up_detached(self, _on_progress: Callable[[str], None]) -> None:
        """Never possible from here. Raises StackError."""
        raise self._not_ours()

    def down(self, _on_progress: Callable[[str], None]) -> bool:
        """Never possible from here. Raises StackError."""
        raise self._not_ours()

    def close(self, _on_progress: Callable[[str], None]) -> None:
        """Nothing was started."""

    def check(self) -> None:
        """Who runs the services watches them; the run itself notices what is missing."""

    def status(self) -> StackStatus:
        """Whether the store is ready; the parts are known to whoever runs them."""
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
            exit_code=EXIT_USAGE,
        )
