"""A bundle: verified mechanisms for the zones and regimes of a city, in one file.

The file is a strict container (`_arrayfile`) of whole numbers only. It holds, for each mechanism, the columns of
outputs that are used, and each row distance once. If it has coordinates, row distances are recomputed from them: a file
whose distances are too large would verify and protect nothing. What was read is a copy: later changes to the file do
not affect it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from geoblanket._arguments import checked
from geoblanket._arrayfile import write_arrays
from geoblanket._arrays import Indices
from geoblanket._training import NOT_SAID, Training
from geoblanket.errors import ParameterError
from geoblanket.mechanism.bundle.clock import Clock
from geoblanket.mechanism.bundle.contents import Bundle, BundledMechanism, whole_numbers
from geoblanket.mechanism.bundle.domain import LARGEST_WORK, DomainCheck, domain_hash, fits_32_bits, pack
from geoblanket.mechanism.bundle.file import LARGEST_BYTES, MAGIC, BundleFile, check_layout
from geoblanket.mechanism.bundle.header import DISCLOSED, BundleHeader
from geoblanket.mechanism.bundle.lattice_section import MULTIPLIERS, LatticeHeader
from geoblanket.mechanism.bundle.trust import ANY_FILE, Trust
from geoblanket.mechanism.lattice.lattice import Lattice
from geoblanket.mechanism.lattice.spec import LatticeSpec

__all__ = ["LARGEST_BYTES", "Bundle", "BundledMechanism", "load_bundle", "save_bundle", "save_lattice", "stored_bytes"]


@checked
def save_bundle(
    path: str | Path,
    mechanisms: Iterable[BundledMechanism],
    *,
    version: int,
    snapping_radius_mm: int = 0,
    places_e7: npt.ArrayLike | None = None,
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
        larger than those between these places. None: no coordinates, and no check by those who read it.
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
    places = np.empty((0, 2), np.int32) if places_e7 is None else whole_numbers(places_e7)
    if (len(places) > 0) == (domain is not None):
        raise ParameterError("Give either places_e7, from which the domain's hash is computed, or domain.")
    if not ordered:
        raise ParameterError("A bundle needs at least one mechanism.")
    described = tuple(mechanism.header() for mechanism in ordered)
    try:
        arrays = _arrays(ordered, places)
        header = BundleHeader(
            version=version,
            domain=domain or domain_hash(described, arrays),
            disclosed=DISCLOSED,
            snapping_radius_mm=snapping_radius_mm,
            clock=clock,
            mechanisms=described,
            training=training,
        )
        BundleHeader.parsed(header.as_fields())
        check_layout(header, arrays)
        listed = [(mechanism.histories, mechanism.history_rows) for mechanism in ordered]
        domain_check = DomainCheck(described, listed, places, largest_work=LARGEST_WORK)
        for number, mechanism in enumerate(ordered):
            domain_check.check(number, mechanism.mechanism.distance_mm, mechanism.output_places)
    except ValueError as error:
        raise ParameterError(f"This is not a bundle that can be written: {error}.") from error
    write_arrays(path, magic=MAGIC, fields=header.as_fields(), arrays=arrays)
    return header.domain


def save_lattice(path: str | Path, spec: LatticeSpec, *, hold_mm: int = 0, version: int, interval_s: float) -> Lattice:
    """Verify a lattice, write it to one file, wholly or not at all, and return it.

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
    section = LatticeHeader.of(spec, hold_mm)
    header = BundleHeader.of_lattice(section, version=version, interval_ms=round(interval_s * 1000))
    try:
        BundleHeader.parsed(header.as_fields())
    except ValueError as error:
        raise ParameterError(f"This is not a bundle that can be written: {error}.") from error
    write_arrays(path, magic=MAGIC, fields=header.as_fields(), arrays={MULTIPLIERS: spec.multipliers})
    return lattice


@checked
def load_bundle(
    path: str | Path,
    *,
    trust: Trust = ANY_FILE,
    largest_bytes: int = LARGEST_BYTES,
    largest_work: int = LARGEST_WORK,
    content: bytes | None = None,
) -> Bundle:
    """Read a bundle and verify every mechanism in it, exactly, before anything is returned.

    Parameters
    ----------
    trust
        Which files are accepted: signed by whom, for which domain, how new; by default any.
    largest_bytes
        Larger files are refused before they are read.
    largest_work
        Files whose verification would take more elementary steps, by estimate, are refused before it starts.
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
    file = BundleFile.read(path, trust=trust, largest_bytes=largest_bytes, content=content)
    return Bundle(
        mechanisms=tuple(file.verified(largest_work=largest_work)),
        lattice=file.verified_lattice(),
        header=file.header,
        places_e7=file.places_e7,
        sha256=file.sha256,
        signed=file.signed,
    )


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
