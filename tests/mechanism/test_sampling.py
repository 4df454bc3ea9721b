from __future__ import annotations

import errno
import os
import random
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import NoReturn

import numpy as np
import pytest
from scipy.stats import chi2

from geoblanket._arrays import Ints
from geoblanket.errors import RandomnessError
from geoblanket.mechanism import sampling
from geoblanket.mechanism.sampling import draw, draw_many, outputs_of_words, random_below, random_words
from tests import predictable

Draw = Callable[[Ints, Ints], Ints]

SMALL = 2**16
ALL_WORDS = np.arange(SMALL)


@pytest.fixture
def allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(predictable.MARKER, predictable.MARKER_VALUE)


def small_weights(rng: np.random.Generator) -> Ints:
    """A row that sums to 2^16: zeros, ones, all in one output, or anything between."""
    outputs = int(rng.integers(1, 40))
    shares = rng.dirichlet(np.full(outputs, 10.0 ** rng.uniform(-2, 1)))
    weights = np.floor(shares * SMALL).astype(np.int64)
    weights[rng.integers(outputs)] += SMALL - weights.sum()
    return weights


def search(weights: Ints, words: Ints) -> Ints:
    return outputs_of_words(weights[None], np.zeros(len(words), np.int64), words)


def counts(sampler: Draw, weights: Ints) -> Ints:
    return np.bincount(sampler(weights, ALL_WORDS), minlength=len(weights))


def test_all_words_of_many_rows_give_each_output_exactly_its_weight() -> None:
    rng = np.random.default_rng(1)
    for _ in range(1_000):
        weights = small_weights(rng)
        assert np.array_equal(counts(search, weights), weights)


@pytest.mark.usefixtures("allowed")
def test_single_draws_give_each_output_exactly_its_weight() -> None:
    weights = np.array([0, 1, 30_000, 0, 2, 35_533, 0])
    with predictable.predictable_words(ALL_WORDS):
        drawn = [draw(weights) for _ in range(SMALL)]
    assert np.array_equal(np.bincount(drawn, minlength=7), weights)


@pytest.mark.usefixtures("allowed")
def test_single_and_vectorised_draws_agree_word_by_word() -> None:
    rng = np.random.default_rng(2)
    weights = rng.multinomial(2**62, rng.dirichlet(np.ones(50), 4))
    words, rows = rng.integers(0, 2**62, 2_000), rng.integers(0, 4, 2_000)
    words[:100] = np.cumsum(weights, axis=1)[:, :25].ravel() - np.repeat([0, 1], 50)  # on both sides of a border
    with predictable.predictable_words(words):
        one_by_one = [draw(weights[row]) for row in rows]
    with predictable.predictable_words(words):
        together = draw_many(weights, rows)
    assert together.tolist() == one_by_one


@pytest.mark.parametrize(
    "faulty",
    [
        lambda weights, words: np.searchsorted(np.cumsum(weights), words, side="left").clip(max=len(weights) - 1),
        lambda weights, words: np.searchsorted(np.cumsum(weights), words + 1, side="right").clip(max=len(weights) - 1),
        lambda weights, words: np.searchsorted(np.cumsum(weights / SMALL), np.round(words / SMALL, 4)),
    ],
    ids=["border on the wrong side", "words off by one", "rounded to decimals"],
)
def test_planted_faults_are_seen_by_the_exhaustive_test(faulty: Draw) -> None:
    rng = np.random.default_rng(3)
    rows = [small_weights(rng) for _ in range(20)]
    assert any(not np.array_equal(counts(faulty, weights), weights) for weights in rows)


def p_value(drawn: Ints, weights: Ints) -> float:
    expected = weights / 2**62 * len(drawn)
    statistic = ((np.bincount(drawn, minlength=len(weights)) - expected) ** 2 / expected).sum()
    return float(chi2.sf(statistic, len(weights) - 1))


def even_weights(outputs: int = 20) -> Ints:
    shares = np.linspace(1, 3, outputs)
    weights: Ints = np.floor(shares / shares.sum() * 2**62).astype(np.int64)
    weights[0] += 2**62 - weights.sum()
    return weights


def tilted(weights: Ints) -> Ints:
    """One per cent more for the first half of the outputs, what is left for the others."""
    half = len(weights) // 2
    result: Ints = weights.copy()
    extra = weights[:half] // 100
    result[:half] += extra
    result[half:] -= extra
    return result


@pytest.mark.parametrize("draws", [4_000_000, pytest.param(10_000_000, marks=pytest.mark.slow)])
def test_draws_follow_the_weights_and_a_tilt_of_one_per_cent_is_rejected(draws: int) -> None:
    weights = even_weights()
    drawn = draw_many(weights[None], np.zeros(draws, np.int64))
    assert p_value(drawn, weights) > 1e-6
    faulty = draw_many(tilted(weights)[None], np.zeros(draws, np.int64))
    assert p_value(faulty, weights) < 1e-6


def test_every_bit_of_a_word_is_used() -> None:
    words = random_words(100_000)
    assert words.min() >= 0
    ones = ((words[:, None] >> np.arange(62)) & 1).mean(axis=0)
    assert np.abs(ones - 0.5).max() < 0.01
    assert words.max() < 2**62


def test_each_draw_takes_one_word(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    original = os.urandom

    def counting(size: int) -> bytes:
        asked.append(size)
        return original(size)

    monkeypatch.setattr(os, "urandom", counting)
    weights = np.array([[2**62 - 1, 1], [0, 2**62]])
    for row in (0, 1):
        draw(weights[row])
    draw_many(weights, np.zeros(1_000, np.int64))
    assert asked == [8, 8, 8_000]


def test_one_word_is_made_of_the_same_bits_as_many(monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(64):
        octets = (1 << number).to_bytes(8, "little")
        with monkeypatch.context() as patch:
            patch.setattr(os, "urandom", lambda _, octets=octets: octets)
            assert sampling.random_word() == random_words(1)[0]


def test_large_requests_are_drawn_in_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampling, "_CHUNK", 7)
    weights = np.array([[0, 2**62, 0], [2**62, 0, 0], [0, 0, 2**62]])
    rows = np.array([2, 0, 1] * 10)
    assert draw_many(weights, rows).tolist() == [2, 1, 0] * 10
    assert draw_many(weights, rows[:0]).tolist() == []


def fails(_: int) -> NoReturn:
    raise OSError(errno.ENOSYS, "no randomness")


def is_missing(_: int) -> NoReturn:
    raise NotImplementedError


@pytest.mark.parametrize(
    "urandom",
    [fails, is_missing, lambda size: bytes(size - 1), lambda _: b""],
    ids=["fails", "missing", "short", "empty"],
)
def test_without_randomness_nothing_is_drawn(monkeypatch: pytest.MonkeyPatch, urandom: Callable[[int], bytes]) -> None:
    monkeypatch.setattr(os, "urandom", urandom)
    weights = even_weights()
    with pytest.raises(RandomnessError, match="Nothing was drawn"):
        draw(weights)
    with pytest.raises(RandomnessError, match="Nothing was drawn"):
        draw_many(weights[None], np.zeros(5, np.int64))


SCRIPT = """
import random, numpy as np
from geoblanket.mechanism.sampling import draw_many
random.seed(0); np.random.seed(0)
print(draw_many(np.full((1, 64), 2**56), np.zeros(40, np.int64)).tolist())
"""


def test_seeds_of_any_kind_have_no_effect(monkeypatch: pytest.MonkeyPatch) -> None:
    weights = np.full((1, 64), 2**56)
    rows = np.zeros(40, np.int64)
    seen: set[object] = set()
    for _ in range(5):
        random.seed(0)
        np.random.seed(0)  # noqa: NPY002 - the global seed is what is tested
        seen.add(tuple(draw_many(weights, rows)))
    monkeypatch.setattr(random, "random", lambda: 0.0)
    monkeypatch.setattr(random, "getrandbits", lambda _: 0)
    seen.add(tuple(draw_many(weights, rows)))
    for _ in range(2):
        environment = os.environ | {"PYTHONHASHSEED": "0"}
        seen.add(
            subprocess.run([sys.executable, "-c", SCRIPT], env=environment, capture_output=True, check=True).stdout
        )
    assert len(seen) == 8


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_process_draws_anew() -> None:
    weights = np.full((1, 64), 2**56)
    rows = np.zeros(40, np.int64)
    draw_many(weights, rows)
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writer, draw_many(weights, rows).tobytes())
        os._exit(0)
    os.waitpid(child, 0)
    in_child = np.frombuffer(os.read(reader, 8 * 40), np.int64)
    os.close(reader)
    os.close(writer)
    assert len(in_child) == 40
    assert not np.array_equal(in_child, draw_many(weights, rows))


def test_predictable_words_are_refused_without_the_marker() -> None:
    with pytest.raises(RandomnessError, match="for tests"), predictable.predictable_words(ALL_WORDS):
        pass


@pytest.mark.usefixtures("allowed")
def test_predictable_words_are_refused_outside_of_pytest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYTEST_CURRENT_TEST")
    with pytest.raises(RandomnessError, match="for tests"), predictable.predictable_words(ALL_WORDS):
        pass
    # pytest removes it again after the test, and wants to find it.
    monkeypatch.setenv("PYTEST_CURRENT_TEST", "restored")


@pytest.mark.usefixtures("allowed")
def test_predictable_words_end_with_the_marker_the_block_and_the_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    zeros = np.zeros(100, np.int64)
    elsewhere: list[Ints] = []
    with predictable.predictable_words(zeros):
        assert not random_words(3).any()
        thread = threading.Thread(target=lambda: elsewhere.append(random_words(3)))
        thread.start()
        thread.join()
        monkeypatch.delenv(predictable.MARKER)
        with pytest.raises(RandomnessError, match="for tests"):
            random_words(1)
    assert elsewhere[0].any()
    assert random_words(3).any()


@pytest.mark.usefixtures("allowed")
def test_predictable_words_run_out() -> None:
    with predictable.predictable_words(ALL_WORDS[:3]), pytest.raises(RandomnessError, match="no more words"):
        random_words(4)


@pytest.mark.usefixtures("allowed")
def test_numbers_below_a_limit_come_from_whole_words_and_are_drawn_again_above_it() -> None:
    """Of 62 bits the highest are taken; a larger limit takes as many words as it has bits for."""
    top = sampling.WORD_BITS
    with predictable.predictable_words(np.array([7 << top - 3, 4 << top - 3, 2 << top - 3])):
        assert random_below(6) == 4  # 7 is above the limit
        assert random_below(8) == 2
    with predictable.predictable_words(np.array([5, 9 << top - 10])):
        assert random_below(2**72) == 5 << 10 | 9
    assert random_below(1) == 0  # without a word


def test_numbers_below_a_limit_are_even() -> None:
    """A χ² test at one in a million."""
    counts = np.bincount([random_below(5) for _ in range(20_000)], minlength=5)
    assert ((counts - 4_000) ** 2 / 4_000).sum() < chi2.isf(1e-6, 4)
    assert all(0 <= random_below(2**100 + 1) <= 2**100 for _ in range(100))
