"""Settings of the evaluator."""

from pydantic import Field

from services.runtime.settings import ServiceSettings


class EvaluatorSettings(ServiceSettings):
    """poll_s: how long a read waits for records; batch_records: most records of one read;
    publish_s: how often results are published and time-dependent verdicts given."""

    poll_s: float = Field(0.2, gt=0, le=5)
    batch_records: int = Field(20_000, ge=1, le=1_000_000)
    publish_s: float = Field(1.0, gt=0, le=60)
