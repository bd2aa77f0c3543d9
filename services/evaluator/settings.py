"""Settings of the evaluator."""

from pydantic import Field, model_validator

from services.runtime.settings import ServiceSettings


class EvaluatorSettings(ServiceSettings):
    """poll_s: maximum time a read waits for records. batch_records: maximum records of one read.
    publish_s: interval of publishing results and of time-dependent verdicts.
    evaluator_instance_index, evaluator_instance_count: which shard of the partitions this instance
    reads, if there are several. evaluator_web_port: 0 for the port of the stack.
    """

    poll_s: float = Field(1.0, gt=0, le=5)
    batch_records: int = Field(20_000, ge=1, le=1_000_000)
    publish_s: float = Field(1.0, gt=0, le=60)
    evaluator_instance_index: int = Field(0, ge=0)
    evaluator_instance_count: int = Field(1, ge=1, le=1024)
    evaluator_web_port: int = Field(0, ge=0, le=65_535)

    @model_validator(mode="after")
    def _one_of_them(self) -> "EvaluatorSettings":
        if self.evaluator_instance_index >= self.evaluator_instance_count:
            raise ValueError("evaluator_instance_index must be below evaluator_instance_count")
        return self

    @property
    def name(self) -> str:
        """Name in events. One of several instances has a name of its own, which tells its events
        apart from those of the others."""
        several = self.evaluator_instance_count > 1
        return f"evaluator-{self.evaluator_instance_index}" if several else "evaluator"

    @property
    def web_port(self) -> int:
        """Port of health and metrics endpoints."""
        return self.evaluator_web_port or self.port("evaluator")
