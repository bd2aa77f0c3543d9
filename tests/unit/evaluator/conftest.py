"""Cells of groups in both forms."""

from collections.abc import Iterator

import pytest

from services.evaluator.columnar import columns


@pytest.fixture(scope="module", params=["dense", "sparse"])
def both_forms_of_groups(request: pytest.FixtureRequest) -> Iterator[None]:
    """The tests of a module once with dense groups only, and once with sparse ones."""
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "sparse":
            patch.setattr(columns, "MAX_DENSE_CELLS", 0)
            patch.setattr(columns, "SPARSE_SHARE", 0)
        yield
