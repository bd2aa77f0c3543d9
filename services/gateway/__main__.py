"""The gateway: receives the records of a run over the network and appends them to its input topics.

    python -m services.gateway

Only workloads whose `transport` is not Kafka use it. `prepare` opens the port and `stop` closes it.
The arrival counts (`way_in`) are published once all frames have arrived or none arrive any more.
"""

from confluent_kafka import KafkaException

from schemas.commands import Command, Malformed, Prepare, Stop
from schemas.events import Failed, FramesArrived, Ready
from schemas.protocol import RunPlan
from services.gateway.way_in import WayIn
from services.runtime.events import DeadLetter, Events
from services.runtime.frame_receivers import Refusal, open_receiver
from services.runtime.kafka import KafkaUnavailableError, frame_tag, idempotent_producer
from services.runtime.logs import Log, configure_logs
from services.runtime.serving import serving
from services.runtime.settings import ServiceSettings, load_settings

SERVICE = "gateway"
IDLE_S, BUSY_S = 0.5, 0.1
QUEUE_RECORDS = 32_000


class Gateway:
    """Carries out commands for one run at a time."""

    def __init__(self, settings: ServiceSettings, events: Events, log: Log) -> None:
        self._settings = settings
        self._events = events
        self._log = log
        self._run_id = ""
        self._transport = ""
        self._way_in: WayIn | None = None
        self._is_told = False

    @property
    def wait_s(self) -> float:
        """How long to wait for the next command."""
        return IDLE_S if self._way_in is None else BUSY_S

    def handle_command(self, command: Command | Malformed) -> None:
        """Carry out one command; commands for other services are ignored."""
        is_current = command.run_id == self._run_id
        match command:
            case Prepare() if not is_current:
                self.close()
                try:
                    self._prepare(command.plan)
                except (KafkaException, KafkaUnavailableError, OSError) as error:
                    self._fail(command.run_id, f"the gateway cannot prepare: {error}")
            case Stop() if is_current:
                self.close()

    def _prepare(self, plan: RunPlan) -> None:
        request = plan.request
        if not request.has_gateway:
            return
        transport, settings = request.workload.transport, self._settings
        tag = frame_tag(settings, request.run_id)
        receiver = open_receiver(transport, settings.host, settings.port("gateway_frames"), tag)
        properties = {"linger.ms": 0, "queue.buffering.max.messages": QUEUE_RECORDS}
        producer = idempotent_producer(settings, "gateway", **properties)
        self._run_id, self._transport, self._is_told = request.run_id, transport, False
        self._way_in = WayIn(
            tag,
            request.input_topics,
            receiver,
            producer,
            self._keep_refused,
        )
        self._events.publish(Ready(run_id=request.run_id, transport=transport))
        self._log.info("way_in_opened", run_id=request.run_id, transport=transport)

    def tick(self) -> None:
        """Publish the arrival counts once they are final."""
        if self._way_in is not None and self._way_in.ended.is_set() and not self._is_told:
            self._tell(self._way_in)

    def _tell(self, way_in: WayIn) -> None:
        self._is_told = True
        if way_in.error:
            self._fail(self._run_id, f"the gateway stopped: {way_in.error}")
            return
        self._events.publish(
            FramesArrived(run_id=self._run_id, transport=self._transport, **way_in.figures)
        )

    def _keep_refused(self, refusal: Refusal) -> None:
        reason = f"not a frame of the run: {refusal.reason}"
        frame = DeadLetter(f"gateway:{self._transport}", refusal.data, reason)
        self._events.dead_letter(frame, self._run_id)

    def _fail(self, run_id: str, reason: str) -> None:
        self._log.error("run_failed", run_id=run_id, reason=reason)
        self._events.publish(Failed(run_id=run_id, reason=reason))

    def close(self) -> None:
        """Close the current run's port and publish its arrival counts."""
        way_in, self._way_in = self._way_in, None
        if way_in is None:
            return
        way_in.stop()
        if not self._is_told:
            self._tell(way_in)
        self._run_id = ""


def main() -> None:
    """Serve until told to stop."""
    settings = load_settings(ServiceSettings)
    log = configure_logs(SERVICE, settings.log_level)
    with serving(settings, SERVICE) as service:
        gateway = Gateway(settings, service.events, log)
        service.follow(gateway.handle_command, gateway.tick, lambda: gateway.wait_s)
        gateway.close()


if __name__ == "__main__":
    main()
