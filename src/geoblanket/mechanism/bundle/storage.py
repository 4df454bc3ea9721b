"""A bundle as a file: written, read, and verified before anything is used.

The file is a strict container (`_arrayfile`) of whole numbers only. It holds, for each mechanism, the columns of
outputs that are used, and each row distance once; or the numbers and multipliers of a lattice. If it has coordinates,
row distances are recomputed from them: a file whose distances are too large would verify and protect nothing.

Cheap checks come first, and nothing is interpreted before it was checked: size, signature, hashes, header, distances,
and finally the exact verifier. What was read is a copy: later changes to the file do not affect it.

A device that remembers the hash of a file that it verified need not verify it again: it hashes the file at each start,
and reads exactly the bytes that the verifier accepted. It trusts nothing else.
"""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from geoblanket import __version__
from geoblanket._arguments import checked
from geoblanket._arrayfile import read_arrays, write_arrays
from geoblanket._arrays import Indices, Octets
from geoblanket._files import MAGIC as _MAGIC_OF
from geoblanket._files import sha256_file
from geoblanket._training import NOT_SAID, Training
from geoblanket.errors import GuaranteeViolation, InputError, LatticeViolation, MechanismError, ParameterError
from geoblanket.mechanism.bundle.contents import Bundle, BundledMechanism, LatticeBundle, ZoneBundle, whole_numbers
from geoblanket.mechanism.bundle.domain import (
    DomainCheck,
    domain_hash,
    fits_32_bits,
    pack,
    place_table,
    unpack,
)
from geoblanket.mechanism.bundle.header import (
    MULTIPLIERS,
    PLACE_DISTANCES,
    Clock,
    LatticeHeader,
    MechanismHeader,
    ZoneHeader,
    parsed_header,
)
from geoblanket.mechanism.bundle.trust import ANY_FILE, HINT, Trust
from geoblanket.mechanism.lattice.lattice import Lattice
from geoblanket.mechanism.lattice.spec import LatticeSpec
from geoblanket.mechanism.mechanism import Mechanism
from geoblanket.mechanism.place_metric import GREAT_CIRCLE, PlaceMetric, unit_of
from geoblanket.mechanism.promise import DISCLOSED

__all__ = [
    "LARGEST_BYTES",
    "MAGIC",
    "VERIFIER",
    "Bundle",
    "BundledMechanism",
    "LatticeBundle",
    "ZoneBundle",
    "load_bundle",
    "load_for_release",
    "next_version",
    "save_bundle",
    "save_lattice",
    "stored_bytes",
]

LARGEST_BYTES: Final = 1 << 30
"""The largest bundle that is read unless the caller says otherwise."""
MAGIC: Final = _MAGIC_OF["bundle"]
_REVISION: Final = 4
"""Grows when the verifier gets stricter, so that what an older one accepted is verified again."""
VERIFIER: Final = (
    f"geoblanket {__version__}, verifier {_REVISION}, NumPy {np.__version__}, Python {platform.python_version()}"
)
"""The software that verifies: another version verifies again."""

_KIND = "a bundle of mechanisms"
Parts = Mapping[str, npt.NDArray[Any]]


@checked
def save_bundle(
    path: str | Path,
    mechanisms: Iterable[BundledMechanism],
    *,
    version: int,
    snapping_radius_mm: int = 0,
    places_e7: npt.ArrayLike | PlaceMetric | None = None,
    domain: str | None = None,
    clock: Clock | None = None,
    training: Training = NOT_SAID,
) -> str:
    """Write mechanisms to one file, wholly or not at all, and return the hash of their domain.

    The same mechanisms give the same bytes, in whatever order they come.

    Parameters
    ----------
    version
        A number that grows with every bundle published, so that a device can refuse an older one.
    snapping_radius_mm
        How far a point of the roads can lie from the place that stands for it, millimetres, as the builder measured.
    places_e7
        Latitude and longitude of all places in 1e-7 degrees, whole numbers, shape (P, 2). Row distances must not be
        larger than those between these places. A `PlaceMetric`: the places with their distances in another metric than
        on the map. None: no coordinates, and no check by those who read it.
    domain
        Without coordinates: SHA-256 (hexadecimal) of whatever fixes the domain. With them it is computed.
    clock
        When which regime is used, for a device to choose by itself: every zone then needs a mechanism for each regime
        of it. None: whoever uses the bundle says which regime.
    training
        What the mechanisms were learned from: a statement that all who read the bundle see.

    Examples
    --------
    With the `result` in the example of `optimise`:

    >>> from geoblanket import BundledMechanism, load_bundle, save_bundle
    >>> day = BundledMechanism.of(result.mechanism, zone="centre", regime="day")
    >>> domain = save_bundle("small.bundle", [day], version=1, domain=64 * "0")
    >>> load_bundle("small.bundle").get("centre", "day").epsilon_micro
    1000000
    """
    ordered = sorted(mechanisms, key=lambda mechanism: (mechanism.zone, mechanism.regime))
    metric = places_e7 if isinstance(places_e7, PlaceMetric) else None
    located = places_e7.coordinates_e7 if isinstance(places_e7, PlaceMetric) else places_e7
    places = np.empty((0, 2), np.int32) if located is None else whole_numbers(located)
    if (len(places) > 0) == (domain is not None):
        raise ParameterError("Give either places_e7, from which the domain's hash is computed, or domain.")
    if not ordered:
        raise ParameterError("A bundle needs at least one mechanism.")
    described = tuple(mechanism.header() for mechanism in ordered)
    try:
        arrays = _arrays(ordered, places)
        if metric is not None:
            arrays[PLACE_DISTANCES] = pack(metric.mm, bits=32)
        header = ZoneHeader(
            version=version,
            domain=domain or domain_hash(described, arrays),
            disclosed=DISCLOSED,
            snapping_radius_mm=snapping_radius_mm,
            clock=clock,
            mechanisms=described,
            training=training,
            metric=GREAT_CIRCLE if metric is None else metric.name,
        )
        ZoneHeader.parsed(header.as_fields()).check_arrays(arrays)
        listed = [(mechanism.histories, mechanism.history_rows) for mechanism in ordered]
        domain_check = DomainCheck(described, listed, places, place_table(arrays))
        for number, mechanism in enumerate(ordered):
            domain_check.check(number, mechanism.mechanism.distance_mm, mechanism.output_places)
    except ValueError as error:
        raise ParameterError(f"This is not a bundle that can be written: {error}.") from error
    write_arrays(path, magic=MAGIC, fields=header.as_fields(), arrays=arrays)
    return header.domain


def save_lattice(
    path: str | Path, spec: LatticeSpec, *, hold_mm: int = 0, version: int, interval_s: float
) -> LatticeBundle:
    """Verify a lattice, write it to one file, wholly or not at all, and return it as `load_bundle` would.

    Parameters
    ----------
    spec
        Its numbers.
    hold_mm
        Within this distance of where the last report was drawn, that report is repeated, millimetres; 0: never.
    version
        A number that grows with every bundle published, so that a device can refuse an older one.
    interval_s
        Seconds from one report to the next.
    """
    lattice = Lattice.verified(spec, hold_mm)
    header = LatticeHeader(version, round(interval_s * 1000), hold_mm, spec)
    try:
        LatticeHeader.parsed(header.as_fields())
    except ValueError as error:
        raise ParameterError(f"This is not a bundle that can be written: {error}.") from error
    write_arrays(path, magic=MAGIC, fields=header.as_fields(), arrays={MULTIPLIERS: spec.multipliers})
    return LatticeBundle(header=header, lattice=lattice, sha256=sha256_file(path), signed=False)


@checked
def load_bundle(
    path: str | Path,
    *,
    trust: Trust = ANY_FILE,
    largest_bytes: int = LARGEST_BYTES,
    content: bytes | None = None,
) -> Bundle:
    """Read a bundle and verify every mechanism in it, exactly, before anything is returned.

    Parameters
    ----------
    trust
        Which files are accepted: signed by whom, for which domain, how new; by default any.
    largest_bytes
        Larger files are refused before they are read.
    content
        The bytes of the file, if it was read already: these are verified, whatever happens to the file.

    Raises
    ------
    GuaranteeViolation, LatticeViolation
        A mechanism, or the lattice, does not keep its promise.
    InputError
        The file is damaged, hostile, too old, without a valid signature, or its distances are larger than on the map.
    MismatchError
        It is for another domain.

    Examples
    --------
    >>> from geoblanket import load_bundle
    >>> bundle = load_bundle("city.bundle")
    >>> bundle.version, bundle.signed
    (1, False)
    """
    return _read(path, trust=trust, largest_bytes=largest_bytes, content=content).verified()


def load_for_release(
    path: str | Path,
    *,
    is_known: Callable[[str], bool] = lambda _: False,
    trust: Trust = ANY_FILE,
    largest_bytes: int = LARGEST_BYTES,
) -> Bundle:
    """Read what a device needs of a bundle; verify it exactly unless its hash is known.

    Mechanisms come without the distances that were verified, and without certificates.

    Parameters
    ----------
    is_known
        Whether this device verified, by the same `VERIFIER`, a file with this SHA-256 (hexadecimal).

    See `load_bundle` for the other parameters and the errors.
    """
    file = _read(path, trust=trust, largest_bytes=largest_bytes)
    # The hash is of the bytes in memory: a file that changes on the way cannot be another one than was hashed.
    return file.for_release(known=is_known(file.sha256))


def next_version(path: str | Path, asked: int | None = None) -> int:
    """Return the version of a bundle that is to be written at `path`.

    It is the publisher's number. It only grows, so that devices refuse to go back.

    Parameters
    ----------
    asked
        The version that was asked for; None: 1, or one more than that of the bundle that is replaced. A file that is no
        readable bundle has no version to go beyond.

    Raises
    ------
    ParameterError
        If the version that was asked for is not greater than that of the bundle that is replaced.
    """
    try:
        replaced = _read(path, trust=ANY_FILE, largest_bytes=LARGEST_BYTES).header.version
    except InputError:
        return 1 if asked is None else asked
    if asked is not None and asked <= replaced:
        raise ParameterError(
            f"The version of the bundle must be greater than {replaced}, that of the bundle it replaces ({path}): "
            f"devices refuse to go back. Got {asked} instead; leave it out for {replaced + 1}."
        )
    return replaced + 1 if asked is None else asked


def stored_bytes(mechanisms: Sequence[BundledMechanism], places_e7: Indices) -> int:
    """Return how many bytes the arrays of mechanisms and places take in a file."""
    return sum(array.nbytes for array in _arrays(mechanisms, places_e7).values())


def _arrays(mechanisms: Sequence[BundledMechanism], places: Indices) -> dict[str, npt.NDArray[Any]]:
    """Return the arrays of the file: those of all mechanisms one after the other."""
    distances = [bundled.mechanism.distance_mm for bundled in mechanisms]
    bits = 32 if all(map(fits_32_bits, distances)) else 64
    return {
        "places_e7": places,
        "distances_mm": np.concatenate([pack(distance_mm, bits=bits) for distance_mm in distances]),
        "weights": np.concatenate([bundled.mechanism.weights.ravel() for bundled in mechanisms]),
        "outputs": np.concatenate([bundled.outputs for bundled in mechanisms]),
        "histories": np.concatenate([bundled.histories.ravel() for bundled in mechanisms]),
        "history_rows": np.concatenate([bundled.history_rows for bundled in mechanisms]),
        "output_places": np.concatenate([bundled.output_places for bundled in mechanisms]),
    }


def _read(
    path: str | Path, *, trust: Trust, largest_bytes: int, content: bytes | None = None
) -> _ZoneFile | _LatticeFile:
    """Read a file and check all of it but the promise; see `load_bundle` for parameters and errors."""
    sha256, signed = "", False

    def check(data: Octets) -> None:
        nonlocal sha256, signed
        digest = hashlib.sha256(data.data)
        sha256, signed = digest.hexdigest(), trust.is_signed(path, digest.digest())

    fields, arrays = read_arrays(
        path, magic=MAGIC, kind=_KIND, hint=HINT, largest_bytes=largest_bytes, check=check, content=content
    )
    try:
        header = parsed_header(fields)
        header.check_arrays(arrays)
    except ValueError as error:
        raise _unusable(path, error) from error
    trust.check_header(path, header)
    if isinstance(header, LatticeHeader):
        return _LatticeFile(Path(path), sha256, signed, header, arrays[MULTIPLIERS])
    if len(arrays["places_e7"]) and domain_hash(header.mechanisms, arrays) != header.domain:
        raise InputError("its domain is not the one that its header says", path=path, hint=HINT)
    return _ZoneFile(Path(path), sha256, signed, header, arrays)


@dataclass(frozen=True, eq=False)
class _LatticeFile:
    """A complete bundle with a lattice that was read, but not yet verified."""

    path: Path
    sha256: str
    signed: bool
    header: LatticeHeader
    multipliers: npt.NDArray[Any]
    """A view of the file."""

    def verified(self) -> LatticeBundle:
        """Return the bundle, its promise verified exactly."""
        try:
            return self._bundle(Lattice.verified)
        except LatticeViolation as error:
            raise LatticeViolation(f"{self.path}: {error.problem}") from error
        except MechanismError as error:
            raise InputError(str(error).rstrip("."), path=self.path, hint=HINT) from error

    def for_release(self, *, known: bool) -> LatticeBundle:
        """Return the bundle, verified unless it is known."""
        return self._bundle(Lattice.known) if known else self.verified()

    def _bundle(self, make: Callable[[LatticeSpec, int], Lattice]) -> LatticeBundle:
        # A copy that nothing can change.
        multipliers = np.frombuffer(self.multipliers.tobytes(), np.int32)
        lattice = make(replace(self.header.spec, multipliers=multipliers), self.header.hold_mm)
        return LatticeBundle(header=self.header, sha256=self.sha256, signed=self.signed, lattice=lattice)


@dataclass(frozen=True, eq=False)
class _ZoneFile:
    """A complete bundle with zones that was read, but not yet verified."""

    path: Path
    sha256: str
    signed: bool
    header: ZoneHeader
    arrays: Parts
    """Views of the file."""

    def verified(self) -> ZoneBundle:
        """Return the bundle, all its promises verified exactly."""
        return self._bundle(self._verified())

    def for_release(self, *, known: bool) -> ZoneBundle:
        """Return the bundle without distances, verified unless it is known."""
        if known:
            return self._bundle(_bundled(header, parts, _known(header, parts)) for header, parts in self._parts())
        # One mechanism after the other, so that only one of them has its distances in memory.
        return self._bundle(bundled.for_release() for bundled in self._verified())

    def _bundle(self, mechanisms: Iterable[BundledMechanism]) -> ZoneBundle:
        return ZoneBundle(
            header=self.header,
            sha256=self.sha256,
            signed=self.signed,
            mechanisms=tuple(mechanisms),
            places_e7=np.array(self.arrays["places_e7"]),
            place_distances_mm=np.array(self.arrays[PLACE_DISTANCES]) if PLACE_DISTANCES in self.arrays else None,
        )

    def _parts(self) -> Iterator[tuple[MechanismHeader, Parts]]:
        """Yield each mechanism's header and its part of the arrays, views of the file."""
        start = dict.fromkeys(self.arrays, 0)
        for header in self.header.mechanisms:
            parts = {}
            for name, size in header.sizes.items():
                parts[name] = self.arrays[name][start[name] : start[name] + size]
                start[name] += size
            yield header, parts

    def _verified(self) -> Iterator[BundledMechanism]:
        """Yield each mechanism, its distances checked on the map and its promise exactly."""
        try:
            domain = DomainCheck(
                self.header.mechanisms,
                [_histories(header, parts) for header, parts in self._parts()],
                np.array(self.arrays["places_e7"]),
                place_table(self.arrays),
            )
        except ValueError as error:
            raise _unusable(self.path, error) from error
        for number, (header, parts) in enumerate(self._parts()):
            made = _verified(self.path, header, parts, domain, number, unit=unit_of(self.header.metric))
            yield _bundled(header, parts, made)


def _unusable(path: str | Path, problem: ValueError) -> InputError:
    return InputError(f"is not {_KIND} that can be used: {problem}", path=path, hint=HINT)


def _histories(header: MechanismHeader, parts: Parts) -> tuple[Indices, Indices]:
    """Return the table of a mechanism's histories and the row of each, copies."""
    table = np.array(parts["histories"]).reshape(-1, 1 + len(header.history_weights_micro))
    return table, np.array(parts["history_rows"])


def _known(header: MechanismHeader, parts: Parts) -> Mechanism:
    """Return a mechanism of a file that this device verified before."""
    weights = parts["weights"].reshape(header.rows, header.columns)
    return Mechanism.known(weights, epsilon_micro=header.epsilon_micro, eta_mm=header.eta_mm)


def _verified(
    path: Path, header: MechanismHeader, parts: Parts, domain: DomainCheck, number: int, *, unit: str = "km"
) -> Mechanism:
    """Return a mechanism of the file, its distances checked on the map and its promise exactly."""
    outputs = parts["outputs"]
    if outputs[0] < 0 or outputs[-1] >= header.outputs or (np.diff(outputs) <= 0).any():
        raise InputError(f"{header.where}: the numbers of its outputs are wrong", path=path, hint=HINT)
    distance_mm = unpack(parts["distances_mm"], header.rows)
    try:
        domain.check(number, distance_mm, parts["output_places"])
        return Mechanism.verified(
            parts["weights"].reshape(header.rows, header.columns),
            distance_mm=distance_mm,
            epsilon_micro=header.epsilon_micro,
            eta_mm=header.eta_mm,
            unit=unit,
        )
    except ValueError as error:
        raise InputError(str(error), path=path, hint=HINT) from error
    except GuaranteeViolation as error:
        output = None if error.output is None else int(outputs[error.output])
        column = "" if output is None else f" (column {error.output} is output {output})"
        problem = f"{path}: {header.where}: {error.problem}{column}"
        raise GuaranteeViolation(error.row, error.other_row, output, error.excess, problem) from error
    except MechanismError as error:
        raise InputError(f"{header.where}: {error}", path=path, hint=HINT) from error


def _bundled(header: MechanismHeader, parts: Parts, mechanism: Mechanism) -> BundledMechanism:
    histories, history_rows = _histories(header, parts)
    return BundledMechanism(
        zone=header.zone,
        regime=header.regime,
        mechanism=mechanism,
        outputs=np.array(parts["outputs"]),
        output_count=header.outputs,
        history_weights_micro=header.history_weights_micro,
        histories=histories,
        history_rows=history_rows,
        output_places=np.array(parts["output_places"]),
    )
