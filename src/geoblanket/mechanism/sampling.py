"""Exact draws from integer weights, with the operating system's randomness and no other.

A word is 62 random bits, a number r from 0 to 2^62 − 1; the output is the number of cumulative weights that are at most
r. Of the 2^62 words exactly W_y lead to output y: the draw has the verified distribution, to the last bit. Every draw
takes one word, no more and no less, so that the number of words tells nothing of the output. There is no seed and no
state: a forked process or a restored machine draws anew from its kernel. Where the kernel gives no randomness, nothing
is drawn.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextvars import ContextVar
from typing import Final

import numpy as np

from geoblanket._arrays import Ints
from geoblanket.errors import RandomnessError

WORD_BITS: Final = 62

_CHUNK = 1 << 20  # draws at a time, so that the memory for words stays bounded

_test_words: ContextVar[Callable[[int], Ints] | None] = ContextVar("_test_words", default=None)
"""Where a test puts words of its own, by `tests.predictable` only."""


def draw(weights: Ints) -> int:
    """Draw one output from one row of weights that sum to 2^62."""
    return draw_cumulative(weights.cumsum())


def draw_cumulative(cumulative: Ints) -> int:
    """Draw one output from the cumulative weights of one row.

    All of them are compared, whatever the output: the time does not depend on where the scan would stop.
    """
    return int(np.count_nonzero(cumulative <= random_word()))


def draw_many(weights: Ints, rows: Ints) -> Ints:
    """Draw an output for each of `rows`, row numbers of `weights`; made for throughput, not for constant time."""
    result = np.empty(len(rows), np.int64)
    for start in range(0, len(rows), _CHUNK):
        chunk = rows[start : start + _CHUNK]
        result[start : start + _CHUNK] = outputs_of_words(weights, chunk, random_words(len(chunk)))
    return result


def outputs_of_words(weights: Ints, rows: Ints, words: Ints) -> Ints:
    """Return the output to which each word leads from its row: the number of cumulative weights ≤ the word."""
    # NumPy sorts 16 bits ten times as fast, by their digits.
    order = np.argsort(rows.astype(np.uint16) if len(weights) <= 1 << 16 else rows, kind="stable")
    used, starts = np.unique(rows[order], return_index=True)
    sorted_words = words[order]
    outputs = np.empty(len(rows), np.int64)
    for row, start, end in zip(used, starts, [*starts[1:], len(rows)], strict=True):
        outputs[start:end] = np.searchsorted(np.cumsum(weights[row]), sorted_words[start:end], side="right")
    result = np.empty_like(outputs)
    result[order] = outputs
    return result


def random_words(count: int) -> Ints:
    """Return `count` numbers of 62 random bits from the operating system.

    Raises
    ------
    RandomnessError
        The operating system has no randomness to give, or gives less than was asked for.
    """
    source = _test_words.get()
    if source is not None:
        return source(count)
    words: Ints = (np.frombuffer(_octets(8 * count), np.uint64) >> np.uint64(64 - WORD_BITS)).astype(np.int64)
    return words


def random_word() -> int:
    """Return one number of 62 random bits, in a microsecond."""
    if _test_words.get() is not None:
        return int(random_words(1)[0])
    return int.from_bytes(_octets(8), "little") >> 64 - WORD_BITS


def random_below(limit: int) -> int:
    """Return a whole number below a positive limit of any size, each with the same probability."""
    bits = (limit - 1).bit_length()
    while True:
        number = 0
        for _ in range(-(-bits // WORD_BITS)):
            number = number << WORD_BITS | random_word()
        number >>= -bits % WORD_BITS
        if number < limit:
            return number


def _octets(count: int) -> bytes:
    try:
        octets = os.urandom(count)
    except (OSError, NotImplementedError) as error:
        raise RandomnessError("The operating system gives no randomness. Nothing was drawn.") from error
    if len(octets) != count:
        raise RandomnessError(
            f"The operating system gave {len(octets)} bytes of randomness, not {count}. Nothing was drawn."
        )
    return octets
