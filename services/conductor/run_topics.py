"""Creates the topics of a run and records their end offsets, where all readers of the run start."""

from schemas import catalogue
from schemas.domain import DomainSpec
from schemas.protocol import RunRequest
from services.conductor.settings import ConductorSettings
from services.runtime.kafka import admin_client, assigned_consumer, end_offsets
from services.runtime.topics import ensure_topics


def start_offsets(
    request: RunRequest, domain: DomainSpec, settings: ConductorSettings
) -> dict[str, tuple[int, ...]]:
    """Create the topics of a run, then return the end offset of every partition. domain: of the
    request. Raises KafkaException and KafkaUnavailableError."""
    partitions = request.workload.partitions or settings.input_partitions
    topics = [
        topic for each in request.domains for topic in catalogue.domain_topics(each, partitions)
    ]
    for pipeline in request.pipelines:
        stages = request.stages_of(pipeline)
        topics += catalogue.published_topics(domain, pipeline.name, stages, partitions)
    ensure_topics(admin_client(settings, "conductor"), topics, settings.replication)
    consumer = assigned_consumer(settings, "conductor-offsets")
    try:
        return {topic.name: end_offsets(consumer, topic.name) for topic in topics}
    finally:
        consumer.close()
