"""Settings of the conductor."""

from pydantic import Field

from services.runtime.webhooks import WebhookSettings


class ConductorSettings(WebhookSettings):
    """Suite, timeouts in seconds for the steps of a run, and notifications.

    suite: name or file of a suite to run from the start, without end; none if empty. stack_id:
    identifies one start of the whole stack (set by the local deployment).
    prepare_timeout_s: per pipeline; they start one after the other if cores are few.
    restart_timeout_s: how long a run waits at its end for the remaining output of a pipeline that
    was killed and restarted.
    start_lead_s: from the `start` command to the first record, so that all services have read it.
    """

    suite: str = ""
    stack_id: str = ""
    prepare_timeout_s: float = Field(120, gt=0)
    start_lead_s: float = Field(1.0, ge=0.5)
    load_timeout_s: float = Field(60, gt=0)
    drain_timeout_s: float = Field(20, gt=0)
    restart_timeout_s: float = Field(60, ge=0)
    stop_timeout_s: float = Field(30, gt=0)
