"""Predictable draws, for tests only.

They need three things at once, none of which happens by accident: this module and its context manager, a running pytest
test, and an environment variable that says so. The context manager refuses without them, and so does every draw inside
it. Outside the `with` block, and in other threads and processes, draws are random as ever.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Final

import numpy as np

from geoblanket._arrays import Ints
from geoblanket.errors import RandomnessError
from geoblanket.mechanism import sampling

__all__ = ["MARKER", "MARKER_VALUE", "predictable_words"]


MARKER: Final = "GEOBLANKET_PREDICTABLE_DRAWS"
MARKER_VALUE: Final = "in this test, draws are not private"


@contextmanager
def predictable_words(words: Ints) -> Iterator[None]:
    """Draw from `words`, in their order, instead of from the operating system; running out of them is an error."""
    _refuse_outside_tests()
    remaining = iter(words.tolist())

    def source(count: int) -> Ints:
        _refuse_outside_tests()
        taken = list(islice(remaining, count))
        if len(taken) < count:
            raise RandomnessError("There are no more words for this test.")
        return np.array(taken, dtype=np.int64)

    token = sampling._test_words.set(source)
    try:
        yield
    finally:
        sampling._test_words.reset(token)


def _refuse_outside_tests() -> None:
    if os.environ.get(MARKER) != MARKER_VALUE or "PYTEST_CURRENT_TEST" not in os.environ:
        raise RandomnessError("Predictable draws are for tests of geoblanket only.")
