"""A domain's own stages on Spark: `spark.py` in its folder, one function per stage, by its name.

    def revenue(rows: DataFrame, stage: StageSpec) -> DataFrame: ...

It gets the decoded records of the stage's inputs, with a watermark and with `_input`, which names
the input of a row, and gives rows with the columns of the stage's record.
"""

from collections.abc import Callable, Mapping
from pathlib import Path

from pyspark import cloudpickle
from pyspark.sql import DataFrame

from schemas.domain import DomainSpec, StageSpec
from schemas.validation_errors import DefinitionError
from services.runtime.domains import domain_module
from services.runtime.trusted import trusted_domain

MODULE = "spark"
Own = Mapping[str, Callable[[DataFrame, StageSpec], DataFrame]]


def own_functions(domain: DomainSpec, data: Path) -> Own:
    """The functions of the folder of this machine that defines the domain, by stage.

    Raises DefinitionError where there is no such folder or no function that can be used.
    """
    found = trusted_domain(domain, data)
    path = found.folder / f"{MODULE}.py"
    module = domain_module(found, MODULE)
    if module is None:
        raise DefinitionError(f"{path} does not exist, and implementation is own.")
    # Workers of Spark cannot import it: what they call of it travels by value.
    cloudpickle.register_pickle_by_value(module)
    named = {name: getattr(module, name, None) for name in domain.stage_names}
    functions = {name: one for name, one in named.items() if callable(one)}
    if not functions:
        stages = ", ".join(domain.stage_names)
        raise DefinitionError(f"{path} has no function that is named after a stage: {stages}.")
    for name in functions:
        kind = domain.stage(name).kind
        if kind in ("copy", "decode"):
            raise DefinitionError(f"{path}: a {kind} such as {name} cannot be replaced.")
    return functions
