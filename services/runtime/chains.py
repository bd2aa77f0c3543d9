"""A domain whose stages are computed from other stages than it says: `reads` of a pipeline.

A domain may have a window read what a join reads. As one chain, as the papers have it, the window
reads the join: where every record has its partner both publish the same.
"""

from collections.abc import Mapping

from schemas.domain import DomainSpec, StageSpec


def rewired(domain: DomainSpec, reads: Mapping[str, str]) -> DomainSpec:
    """The domain in which each stage named reads the stage that `reads` says.

    Stages that the domain does not have are left out. Raises ValueError where the outputs of a
    stage do not have what the other needs.
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
    """What a stage says when it reads the outputs of another."""
    if not set(spec.keys) <= set(before.keys):
        raise ValueError(f"reads: {spec.name} has keys that {before.name} does not publish")
    aggregates = [
        one.model_dump() | {"of": tuple(_published_as(of, spec, before) for of in one.of)}
        for one in spec.aggregates
    ]
    return {"reads": (before.name,), "aggregates": aggregates}


def _published_as(source: str, spec: StageSpec, before: StageSpec) -> str:
    """The column of the stage before that has what a source of a stage names."""
    column = source.rsplit(".", maxsplit=1)[-1]
    if column in before.keys:
        return column
    for one in before.aggregates:
        if one.function == "first" and one.of == (source,):
            return one.column
    raise ValueError(f"reads: {spec.name} needs {source}, which {before.name} does not publish")
