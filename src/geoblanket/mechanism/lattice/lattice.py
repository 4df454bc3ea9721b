"""A lattice that was verified: draws, probabilities, and the promise in words."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import astuple, dataclass, replace
from functools import cached_property, lru_cache
from typing import Final

import numpy as np
import numpy.typing as npt

from geoblanket._arrays import Floats, Ints
from geoblanket._display import short_repr
from geoblanket.errors import LatticeViolation, MechanismError, ParameterError
from geoblanket.mechanism.certainty import LossCurve
from geoblanket.mechanism.costs import Costs
from geoblanket.mechanism.lattice.limit import mean_error_km
from geoblanket.mechanism.lattice.loss_curve import lattice_curve
from geoblanket.mechanism.lattice.spec import DENOMINATOR, SINK, Drawing, LatticeSpec
from geoblanket.mechanism.lattice.verifier import LatticeCertificate, verify_lattice
from geoblanket.mechanism.promise import DISCLOSED_BY_HOLD, DISCLOSED_BY_LATTICE, Promise
from geoblanket.mechanism.sampling import random_word, random_words

_AT_A_TIME: Final = 1 << 12


class _Numbers:
    """All numbers of a lattice, for comparison: two with the same numbers have the same verdict."""

    def __init__(self, spec: LatticeSpec) -> None:
        self.spec = spec
        table = spec.multipliers
        rest = replace(spec, multipliers=np.empty(0, np.int32))
        self._all = (*astuple(rest)[:-1], table.dtype.str, table.shape, table.tobytes())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Numbers) and self._all == other._all

    def __hash__(self) -> int:
        return hash(self._all)


@lru_cache(maxsize=16)
def _verdict(numbers: _Numbers) -> tuple[LatticeCertificate, Ints]:
    """Verify the numbers of a lattice, once in this process: a bundle that is made is written and read back."""
    certificate, totals = verify_lattice(numbers.spec)
    totals.setflags(write=False)
    return certificate, totals


@dataclass(frozen=True, eq=False, init=False, repr=False)
class Lattice:
    """Planar Laplace noise over a whole city, exact, between coordinates.

    It is made by `Lattice.verified`, or by `known` from a file that this device verified before. It cannot be changed
    afterwards, and a copy that was pickled is verified again.
    """

    spec: LatticeSpec
    hold_mm: int
    """Within this distance of where the last report was drawn, that report is repeated at no cost; 0: never."""
    certificate: LatticeCertificate
    _drawing: Drawing

    def __init__(self) -> None:
        raise TypeError("A Lattice is made by Lattice.verified.")

    @classmethod
    def verified(cls, spec: LatticeSpec, hold_mm: int = 0) -> Lattice:
        """Verify the numbers of a lattice, and return it.

        Raises
        ------
        LatticeViolation
            The numbers do not keep the promise.
        MechanismError
            They cannot be a lattice.
        """
        # In the memory of a `bytes` object, which nothing can make writeable: what was verified is what is drawn from.
        table = np.asarray(spec.multipliers)
        spec = replace(spec, multipliers=np.frombuffer(table.tobytes(), table.dtype).reshape(table.shape))
        certificate, totals = _verdict(_Numbers(spec))
        largest = largest_hold_mm(spec.epsilon_micro)
        if not 0 <= hold_mm <= largest:
            raise MechanismError(
                f"A report can be held within 0 to {largest / 1000:,.0f} m, the mean error of a report at this ε. Got "
                f"{hold_mm / 1000:g} m instead."
            )
        drawing = Drawing(spec, prepare=True)
        if not np.array_equal(drawing.totals(), totals):
            raise LatticeViolation("What this machine draws from is not what was verified: its arithmetic differs")
        return cls._of(spec, hold_mm, certificate, drawing)

    @classmethod
    def known(cls, spec: LatticeSpec, hold_mm: int) -> Lattice:
        """Return a lattice that the same software verified before, on this device, without doing it again.

        Nothing is prepared, so that it opens in no time; a draw takes some tenths of a millisecond more.
        """
        certificate = LatticeCertificate(
            epsilon_micro=spec.epsilon_micro,
            epsilon_effective=spec.epsilon_micro / 10**6,
            cells=spec.cell_count,
            positions=spec.cell_units**2,
            rounding_mm=spec.plane.rounding_mm,
        )
        return cls._of(spec, hold_mm, certificate, Drawing(spec, prepare=False))

    @classmethod
    def _of(cls, spec: LatticeSpec, hold_mm: int, certificate: LatticeCertificate, drawing: Drawing) -> Lattice:
        lattice = object.__new__(cls)
        for name, value in (("spec", spec), ("hold_mm", hold_mm), ("certificate", certificate), ("_drawing", drawing)):
            object.__setattr__(lattice, name, value)
        return lattice

    @property
    def epsilon(self) -> float:
        """ε of a report, per kilometre."""
        return self.spec.epsilon_micro / 10**6

    @property
    def cell_m(self) -> float:
        """Metres from edge to edge of a cell."""
        return self.spec.cell_units * self.spec.plane.unit_mm / 1000

    @property
    def cells(self) -> int:
        """How many cells there are; they are numbered from 0, from west to east, then from south to north."""
        return self.spec.cell_count

    @property
    def hold_m(self) -> float:
        """Metres within which a report is held; 0: never."""
        return self.hold_mm / 1000

    def holds(self, x: int, y: int, drawn_x: int, drawn_y: int) -> bool:
        """Return whether a point of the frame is so near to where the last report was drawn that it is repeated."""
        units = self.hold_mm // self.spec.plane.unit_mm
        return bool(units) and (x - drawn_x) ** 2 + (y - drawn_y) ** 2 <= units * units

    def center(self, cell: int) -> tuple[float, float]:
        """Return the latitude and longitude of a cell's centre, degrees."""
        if not 0 <= cell < self.cells:
            raise ParameterError(f"There are {self.cells:,} cells, counted from 0. Got {cell} instead.")
        lat, lon = self.centers(np.array([cell]))
        return float(lat[0]), float(lon[0])

    def centers(self, cells: npt.ArrayLike | None = None) -> tuple[Floats, Floats]:
        """Return the latitudes and longitudes of the centres of cells, degrees; of all cells where none are given."""
        numbers = np.arange(self.cells) if cells is None else np.asarray(cells)
        row, column = np.divmod(numbers, self.spec.cells_across)
        n = self.spec.cell_units
        return self.spec.plane.degrees(column * n + n // 2, row * n + n // 2)

    def weights(self, lat: float, lon: float) -> Ints:
        """Return how probable each cell is from a coordinate, in whole numbers over 2^62.

        Parameters
        ----------
        lat, lon
            Degrees. Outside the frame, its nearest point counts.
        """
        x, y = self.spec.plane.units(lat, lon)
        return self.weights_at(int(x), int(y))

    def weights_at(self, x: int, y: int) -> Ints:
        """Return the weights of all cells from a point of the frame, in units."""
        spec, n, across = self.spec, self.spec.cell_units, self.spec.cells_across
        (column, east), (row, north) = divmod(x, n), divmod(y, n)
        east, north = east - n // 2, north - n // 2
        weights = np.full((across, across), spec.floor, np.int64)
        window = spec.window.weights(max(abs(east), abs(north)), min(abs(east), abs(north)))
        if abs(east) < abs(north):
            window = window.T
        columns = (column + np.sign(east + 0.5).astype(int) * spec.window.offsets) % across
        rows = (row + np.sign(north + 0.5).astype(int) * spec.window.offsets) % across
        weights[np.ix_(rows, columns)] = window
        flat = weights.ravel()
        flat[SINK] += DENOMINATOR - int(flat.sum())
        return flat

    def draw(self, lat: float, lon: float) -> int:
        """Draw the cell that is reported from a coordinate, exactly, with the operating system's randomness."""
        x, y = self.spec.plane.units(lat, lon)
        return self.draw_at(int(x), int(y))

    def draw_at(self, x: int, y: int) -> int:
        """Draw the cell that is reported from a point of the frame, in units."""
        return self._drawing.cell(x, y, random_word())

    def draw_many(self, lat: npt.ArrayLike, lon: npt.ArrayLike) -> Ints:
        """Draw a cell for each of many coordinates, degrees, shape (N,)."""
        return self.draw_many_at(*self.spec.plane.units(lat, lon))

    def draw_many_at(self, x: Ints, y: Ints) -> Ints:
        """Draw a cell for each of many points of the frame, in units, shape (N,)."""
        cells = np.empty(len(x), np.int64)
        for start in range(0, len(x), _AT_A_TIME):
            part = slice(start, start + _AT_A_TIME)
            cells[part] = self._drawing.cells(x[part], y[part], random_words(len(x[part])))
        return cells

    @cached_property
    def mean_error_km(self) -> float:
        """How far reports lie from the truth on average, kilometres; the limit of all mechanisms is 2/ε (`limit`)."""
        return mean_error_km(self.spec)

    def loss_curve(self, apart_m: float) -> LossCurve:
        """Return how well one report tells coordinates up to a distance apart, metres, from one another."""
        plane = self.spec.plane
        return lattice_curve(self.spec, (1000 * apart_m + 2 * plane.rounding_mm) / plane.unit_mm)

    @property
    def promise(self) -> Promise:
        """What is promised, disclosed and not promised, and how it was verified."""
        found = self.certificate
        add_m = 2 * found.rounding_mm / 1000
        terms = [
            "One report changes the odds between any two coordinates of the frame, d apart, by at most a factor of "
            f"e^(ε·(d + {add_m:.3g} m)), with ε = {self.epsilon:.9g} per km. The {add_m:.3g} m are the rounding of "
            "both coordinates."
        ]
        if self.hold_mm:
            terms.append(
                f"Within {self.hold_m:g} m of where the last report was drawn, it is repeated: a stay costs one "
                "report. Take two trips that draw new reports at the same times: all reports together change the odds "
                "between them by at most e^(ε·Σ d), with d summed over those times."
            )
            caveat = (
                "When the vehicle rests is not hidden. Several draws add up, on the road and with each return to a "
                "place: a place that a vehicle returns to needs a fence."
            )
        else:
            caveat = (
                "Reports add up, also at rest. Nothing is held: noise that is drawn anew averages out, so that a "
                "parked car is found, and the longer it stays the nearer."
            )
        return Promise(
            epsilon=self.epsilon,
            between="location",
            added_m=add_m,
            costs=Costs(start=self.spec.epsilon_micro, other=self.spec.epsilon_micro),
            hold_m=self.hold_m,
            disclosed=DISCLOSED_BY_HOLD if self.hold_mm else DISCLOSED_BY_LATTICE,
            terms=tuple(terms),
            verified=(
                f"Verified exactly, in integers, over {found.cells:,} cells: for all pairs of {found.positions:,} "
                "positions within a cell, and by proof for the rest. The ε needed is "
                f"{found.epsilon_effective:.6g} per km.",
            ),
            not_promised=(caveat,),
            source=self,
        )

    def __reduce__(self) -> tuple[Callable[..., Lattice], tuple[LatticeSpec, int]]:
        return Lattice.verified, (self.spec, self.hold_mm)

    def __repr__(self) -> str:
        return short_repr(self, *self.facts())

    def facts(self) -> tuple[str, ...]:
        """Return what it is, in a few words each."""
        hold = f"held within {self.hold_m:g} m" if self.hold_mm else "never held"
        cells = f"{self.cells:,} cells of {self.cell_m:g} m"
        return cells, f"ε = {self.epsilon:g} per km", hold, "verified exactly"


def largest_hold_mm(epsilon_micro: int) -> int:
    """Return the largest distance within which reports can be held, millimetres: their mean error, 2/ε km.

    Holding within more than that would cost more accuracy than the noise does.
    """
    return 2 * 10**12 // epsilon_micro
