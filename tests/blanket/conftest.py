from __future__ import annotations

from collections.abc import Iterator

import pytest
from threadpoolctl import threadpool_limits


@pytest.fixture(autouse=True, scope="package")
def _one_blas_thread() -> Iterator[None]:
    """Matrices are small here: on a busy machine, threads that wait for each other take ten times as long."""
    with threadpool_limits(1, user_api="blas"):
        yield
