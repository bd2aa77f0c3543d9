"""The traffic domain, which most tests use."""

from schemas import catalogue
from schemas.catalogue import Topic
from schemas.codec import SCHEMA_DIR, RecordSchemas, load_schema
from services.definitions.domains import DOMAINS_DIR, load_domain

TRAFFIC = load_domain("traffic").spec
CODEC = TRAFFIC.codec
FLOW, SPEED = INPUTS = TRAFFIC.topics
STAGES = TRAFFIC.stage_names
# Every released schema of the bus and of all domains, and their names.
_SCHEMAS = [
    load_schema(path)
    for path in sorted((*SCHEMA_DIR.glob("*.avsc"), *DOMAINS_DIR.glob("*/*.avsc")))
]
RELEASED = RecordSchemas(_SCHEMAS)
RELEASED_NAMES = tuple(sorted({one.name for one in _SCHEMAS}))


def input_topics(partitions: int = 1) -> tuple[Topic, ...]:
    """The two input topics."""
    return catalogue.domain_topics(TRAFFIC, partitions)


def output_topics(
    pipeline: str, stages: tuple[str, ...] = STAGES, partitions: int = 1
) -> tuple[Topic, ...]:
    """The output topics of a pipeline."""
    return catalogue.published_topics(TRAFFIC, pipeline, stages, partitions)
