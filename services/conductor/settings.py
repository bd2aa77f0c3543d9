"""Settings of the conductor."""

from pydantic import Field

from services.runtime.webhooks import WebhookSettings


class ConductorSettings(WebhookSettings):
    """What runs, how long each step of a run may take, seconds, and who is told of what.

    suite: name or file of the suite to run from the start, for ever; none if empty. stack_id: names
    one start of the whole stack (set by the local deployment).
    prepare_timeout_s: for each two pipelines: where cores are few they start one after the other.
    restart_timeout_s: how long a run waits, once all else is done, for what a pipeline that was
    killed and started again still has to publish.
    start_lead_s: from the `start` command to the first record, so that all have read it.
    """

    suite: str = ""
    stack_id: str = ""
    prepare_timeout_s: float = Field(120, gt=0)
    start_lead_s: float = Field(1.0, ge=0.5)
    load_timeout_s: float = Field(60, gt=0)
    drain_timeout_s: float = Field(20, gt=0)
    restart_timeout_s: float = Field(60, ge=0)
    stop_timeout_s: float = Field(30, gt=0)
