"""The recorded sample, and the code of the domain."""

from schemas.content import Content
from services.definitions.domains import content_of, domain_module
from tests.unit.generator.made import TRAFFIC, a_plan

key_distribution = domain_module(TRAFFIC, "key_distribution")
recording = domain_module(TRAFFIC, "recording")
NDW = a_plan(2).records.own.recording


def traffic_content(**fields):
    """Options of the domain's content. Raises DefinitionError."""
    return content_of(TRAFFIC, Content(**fields))
