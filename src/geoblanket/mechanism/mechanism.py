"""A mechanism: integer weights that were verified, with their guarantee in words."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from geoblanket._arguments import checked
from geoblanket._arrays import Floats, Ints
from geoblanket._display import card, counted, short_repr
from geoblanket.errors import MechanismError, MismatchError, ParameterError
from geoblanket.mechanism import sampling
from geoblanket.mechanism.problem import INFINITE_ETA_MM, Problem
from geoblanket.mechanism.verifier import DENOMINATOR, Certificate, verify

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MOST_DRAWN: Final = 1_000_000  # probabilities in a notebook's picture
_MM_PER_KM: Final = 10**6


@dataclass(frozen=True, eq=False, init=False, repr=False)
class Mechanism:
    """Rows of probabilities over outputs that keep their promise, proven in exact arithmetic.

    Only the verifier makes one: use `Mechanism.verified` or `Mechanism.from_probabilities`; `Mechanism.known` is for a
    device that verified the same bytes before. A mechanism is immutable, and unpickling verifies it again.

    Examples
    --------
    With the `problem` in the example of `Problem`, repair and verify a table that is not private at all:

    >>> import numpy as np
    >>> from geoblanket import Mechanism
    >>> mechanism = Mechanism.from_probabilities(np.eye(3), problem)
    >>> mechanism.certificate.epsilon_effective <= 1.0
    True
    >>> mechanism.sample(0) in {0, 1, 2}  # an exact draw, with the operating system's randomness
    True
    """

    weights: Ints
    """int64, shape (S, K): probabilities are weights / 2^62."""
    epsilon_micro: int
    """ε in millionths per kilometre."""
    eta_mm: int
    """η in millimetres: what is promised holds for rows at most this far apart."""
    unit: str
    """What ε is per: the kilometre, or what stands for it in another domain."""
    _proof: tuple[Ints, Certificate] | None
    """Row distances and certificate; None if the mechanism was opened for release only."""

    def __init__(self) -> None:
        raise TypeError("A Mechanism is made by Mechanism.verified or Mechanism.from_probabilities.")

    @classmethod
    @checked
    def verified(
        cls, weights: Ints, *, distance_mm: Ints, epsilon_micro: int, eta_mm: int, unit: str = "km"
    ) -> Mechanism:
        """Verify integer weights exactly and return them as a mechanism; see `verify` for the parameters and errors."""
        weights, distance_mm = _frozen(weights), _frozen(distance_mm)
        certificate = verify(weights, distance_mm=distance_mm, epsilon_micro=epsilon_micro, eta_mm=eta_mm, unit=unit)
        return cls._of(
            weights=weights, epsilon_micro=epsilon_micro, eta_mm=eta_mm, unit=unit, _proof=(distance_mm, certificate)
        )

    @classmethod
    @checked
    def known(cls, weights: Ints, *, epsilon_micro: int, eta_mm: int) -> Mechanism:
        """Return weights that the same software verified before, on this device, without doing it again.

        The mechanism can be drawn from. It has neither distances nor a certificate, and so it cannot be pickled.
        """
        # A copy, so that the memory of the file, most of which are distances, is free again.
        weights = np.frombuffer(weights.tobytes(), np.int64).reshape(weights.shape)
        return cls._of(weights=weights, epsilon_micro=epsilon_micro, eta_mm=eta_mm, unit="km", _proof=None)

    @classmethod
    def _of(cls, **values: Any) -> Mechanism:
        mechanism = object.__new__(cls)
        for name, value in values.items():
            object.__setattr__(mechanism, name, value)
        return mechanism

    @classmethod
    @checked
    def from_probabilities(cls, probabilities: npt.ArrayLike, problem: Problem) -> Mechanism:
        """Repair a table of numbers, shape (S, K), to a mechanism of `problem`, and verify it."""
        from geoblanket.mechanism.repairer import repair  # devices never need it, and start sooner without

        return cls.from_weights(repair(probabilities, problem).weights, problem)

    @classmethod
    @checked
    def from_weights(cls, weights: Ints, promise: Problem | Mechanism) -> Mechanism:
        """Verify integer weights, shape (S, K), with the distances, ε and η of a problem or another mechanism."""
        return cls.verified(weights, **_promise(promise))

    @property
    def distance_mm(self) -> Ints:
        """Row distances in millimetres, int64, shape (S, S)."""
        return self._proven()[0]

    @property
    def certificate(self) -> Certificate:
        """What the verifier found."""
        return self._proven()[1]

    def _proven(self) -> tuple[Ints, Certificate]:
        if self._proof is None:
            raise MechanismError(
                "A mechanism that was opened for release has neither distances nor a certificate. Read the bundle with "
                "`load_bundle` to see what is promised."
            )
        return self._proof

    @property
    def row_count(self) -> int:
        """S, the number of rows."""
        return len(self.weights)

    @property
    def output_count(self) -> int:
        """K, the number of outputs."""
        return int(self.weights.shape[1])

    @property
    def epsilon(self) -> float:
        """ε per kilometre."""
        return self.epsilon_micro / _MM_PER_KM

    @property
    def eta_km(self) -> float:
        """η in kilometres."""
        return np.inf if self.eta_mm == INFINITE_ETA_MM else self.eta_mm / _MM_PER_KM

    @property
    def probabilities(self) -> Floats:
        """The weights as floats, shape (S, K): for figures; draws use the integers."""
        return self.weights / float(DENOMINATOR)

    @property
    def guarantee(self) -> str:
        """What is promised, how it was verified, and what is not covered, in words."""
        return self.guarantee_between("two rows at distance d")

    def guarantee_between(self, two: str) -> str:
        """Return the guarantee in the words of a domain: two of what are hard to tell apart, and how far apart, d."""
        certificate = self.certificate
        within = "" if certificate.pairs_beyond == 0 else f" (d ≤ η = {self.eta_km:.9g} {self.unit})"
        lines = [
            f"One report changes the odds between {two}{within} by at most a factor of e^(ε·d), with "
            f"ε = {self.epsilon:.9g} per {self.unit}.",
            f"Verified exactly, in integers, for all {certificate.pairs:,} such pairs of {certificate.rows:,} rows, in "
            f"both directions and for each of {certificate.outputs:,} outputs. "
            f"The largest ε found is {certificate.epsilon_effective:.6g} per {self.unit}.",
        ]
        if certificate.pairs_beyond:
            lines.append(
                f"Not covered by itself: the {certificate.pairs_beyond:,} pairs further apart than η; along a chain of "
                "pairs within η, the bounds multiply."
            )
        if not certificate.connected:
            lines.append(
                f"No chain joins all rows: they fall into {certificate.components:,} parts, and between two parts "
                "nothing is promised."
            )
        lines.append(
            "Not covered: the distance from a raw value to the one of the domain that it is snapped to (add it to d), "
            "and repeated reports, whose ε add up."
        )
        return "\n".join(lines)

    def expected_loss(self, problem: Problem) -> float:
        """Return the expected loss under the prior and loss of `problem`: an upper bound, by a hair.

        Never below the true value, and above it by less than 2·(S + K + 8)·2^-53 of it: the terms are not negative, so
        each of the roundings, at most S + K + 4 on the way of any term, changes it by a factor between 1 ± 2^-53.
        """
        if problem.loss.shape != self.weights.shape:
            raise MismatchError(
                f"A mechanism of shape {self.weights.shape} has no expected loss in a problem of shape "
                f"{problem.loss.shape}."
            )
        by_row = np.einsum("sk,sk->s", self.weights.astype(np.float64), problem.loss) / DENOMINATOR
        margin = (self.row_count + self.output_count + 8) * 2.0**-53
        return float(problem.prior @ by_row) * (1 + margin)

    def sample(self, row: int) -> int:
        """Draw an output from a row, exactly, with the operating system's randomness."""
        if not 0 <= row < self.row_count:
            raise ParameterError(
                f"There are {self.row_count} rows, counted from 0. The one asked for is not among them."
            )
        return sampling.draw(self.weights[row])

    def sample_many(self, rows: npt.ArrayLike) -> Ints:
        """Draw an output for each of many rows, shape (N,), exactly, with the operating system's randomness."""
        indices = np.asarray(rows)
        if indices.ndim != 1 or not np.issubdtype(indices.dtype, np.integer):
            raise ParameterError("rows must be an array of whole numbers of one dimension.")
        if len(indices) and (indices.min() < 0 or indices.max() >= self.row_count):
            raise ParameterError(f"There are {self.row_count} rows, counted from 0. Some asked for are not among them.")
        return sampling.draw_many(self.weights, indices.astype(np.int64))

    def _repr_html_(self) -> str:
        rows = [
            ("rows, outputs", f"{self.row_count:,}, {self.output_count:,}"),
            ("ε promised", f"{self.epsilon:g} per {self.unit}"),
            ("up to η", "any distance" if self.eta_mm == INFINITE_ETA_MM else f"{self.eta_km:g} {self.unit}"),
            ("ε needed, verified exactly", f"{self.certificate.epsilon_effective:.6g} per {self.unit}"),
        ]
        return card(self, rows, draw=self._draw if self.weights.size <= _MOST_DRAWN else None)

    def _draw(self, axes: Axes) -> None:
        axes.imshow(self.probabilities, aspect="auto", cmap="Blues", vmin=0, interpolation="nearest")
        axes.locator_params(integer=True)
        axes.set_xlabel("output", fontsize=8)
        axes.set_ylabel("row", fontsize=8)
        axes.set_title("probability of each output from each row", fontsize=8)
        axes.tick_params(labelsize=7)

    def __repr__(self) -> str:
        sizes = counted(self.row_count, "row"), counted(self.output_count, "output")
        within = "" if self.eta_mm == INFINITE_ETA_MM else f"η = {self.eta_km:g} {self.unit}"
        return short_repr(self, *sizes, f"ε = {self.epsilon:g} per {self.unit}", within, "verified exactly")

    def __reduce__(self) -> tuple[partial[Mechanism], tuple[Ints]]:
        rebuild = partial(Mechanism.verified, **_promise(self))
        return rebuild, (self.weights,)


def _promise(promise: Problem | Mechanism) -> dict[str, Any]:
    return {name: getattr(promise, name) for name in ("distance_mm", "epsilon_micro", "eta_mm", "unit")}


def _frozen(array: Any) -> Ints:
    """Return the array if nothing can make it writeable again, else such a copy, in the memory of a `bytes` object."""
    if not isinstance(array, np.ndarray) or array.dtype != np.int64:
        raise MechanismError("The weights and distances of a mechanism must be arrays of int64.")
    if array.flags.c_contiguous and _is_read_only(array):
        return array
    return np.frombuffer(array.tobytes(), np.int64).reshape(array.shape)


def _is_read_only(array: npt.NDArray[Any]) -> bool:
    memory: Any = array
    while isinstance(memory, np.ndarray):
        memory = memory.base
    return isinstance(memory, bytes) or (isinstance(memory, memoryview) and memory.readonly)
