"""Domain-specific stages on Spark: `spark.py` in the domain's folder has a function for each.

    def revenue(rows: DataFrame, stage: StageSpec) -> DataFrame: ...

It receives the decoded records of the stage's inputs, with a watermark and the column `_input`, the
name of a row's input, and returns rows with the columns of the stage's record.
"""

from collections.abc import Callable, Mapping
from pathlib import Path

from pyspark import cloudpickle
from pyspark.sql import DataFrame

from schemas.domain import DomainSpec, StageSpec
from schemas.validation_errors import DefinitionError
from services.definitions.domains import domain_module
from services.definitions.trusted import trusted_domain

MODULE = "spark"
Own = Mapping[str, Callable[[DataFrame, StageSpec], DataFrame]]


def own_functions(domain: DomainSpec, data: Path) -> Own:
    """The stage functions in the folder of this machine that defines the domain, by stage.

    Raises DefinitionError without such a folder or a usable function.
    """
    result = trusted_domain(domain, data)
    path = result.folder / f"{MODULE}.py"
    module = domain_module(result, MODULE)
    if module is None:
        raise DefinitionError(f"{path} does not exist, and implementation is own.")
    # Spark workers cannot import the module, so its functions are pickled by value.
    cloudpickle.register_pickle_by_value(module)
    named = {name: getattr(module, name, None) for name in domain.stage_names}
    functions = {name: each for name, each in named.items() if callable(each)}
    if not functions:
        stages = ", ".join(domain.stage_names)
        raise DefinitionError(f"{path} has no function that is named after a stage: {stages}.")
    for name in functions:
        kind = domain.stage(name).kind
        if kind in ("copy", "decode"):
            raise DefinitionError(f"{path}: a {kind} such as {name} cannot be replaced.")
    return functions
