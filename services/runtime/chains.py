"""A domain whose stages read other stages than it declares: `reads` of a pipeline.

A domain may let a window read the input of a join. In a chain, as in the papers, the window reads
the output of the join. Both publish the same if every record has its partner.
"""

from collections.abc import Mapping

from schemas.domain import DomainSpec, StageSpec


def rewired(domain: DomainSpec, reads: Mapping[str, str]) -> DomainSpec:
    """The domain in which each stage named in `reads` reads the given stage.

    Stages unknown to the domain are skipped. Raises ValueError if the outputs of a stage lack what
    the reading stage needs.
    """
    fields = domain.model_dump()
    for spec, said in zip(domain.stages, fields["stages"], strict=True):
        if spec.name in reads:
            name = reads[spec.name]
            if name not in domain.stage_names:
                raise ValueError(f"reads: {domain.name} has no stage {name!r} for {spec.name}")
            said.update(_reading(spec, domain.stage(name)))
    return DomainSpec.model_validate(fields)


def _reading(spec: StageSpec, before: StageSpec) -> dict[str, object]:
    """The changed fields of a stage that reads the outputs of another."""
    if not set(spec.keys) <= set(before.keys):
        raise ValueError(f"reads: {spec.name} has keys that {before.name} does not publish")
    aggregates = [
        one.model_dump() | {"of": tuple(_published_as(of, spec, before) for of in one.of)}
        for one in spec.aggregates
    ]
    return {"reads": (before.name,), "aggregates": aggregates}


def _published_as(source: str, spec: StageSpec, before: StageSpec) -> str:
    """The column in which the stage before publishes a source of this stage."""
    column = source.rsplit(".", maxsplit=1)[-1]
    if column in before.keys:
        return column
    for one in before.aggregates:
        if one.function == "first" and one.of == (source,):
            return one.column
    raise ValueError(f"reads: {spec.name} needs {source}, which {before.name} does not publish")
