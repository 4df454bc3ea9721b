"""A bundle: verified mechanisms for the zones and regimes of a city, in one file.

The file is a strict container (`_arrayfile`) of whole numbers only. It holds, for each mechanism, the columns of
outputs that are used, and each row distance once. Where it has coordinates, row distances are computed from them again,
for a file with distances that are too large verifies and protects nothing. Reading goes from what costs little to what
costs most, and nothing is interpreted before it was checked: size, signature, hashes, header, distances, and at last
the exact verifier. What was read is a copy: nothing that is done to the file afterwards changes it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from geoblanket._arrayfile import read_arrays, write_arrays
from geoblanket.errors import GuaranteeViolation, InputError, MechanismError, MismatchError, ParameterError
from geoblanket.mechanism._bundle_contents import Bundle, BundledMechanism, whole_numbers
from geoblanket.mechanism._bundle_domain import (
    Indices,
    Rows,
    check_places,
    domain_hash,
    fits_32_bits,
    pack,
    triangle_size,
    unpack,
)
from geoblanket.mechanism._bundle_header import BundleHeader, MechanismHeader
from geoblanket.mechanism.clock import Clock
from geoblanket.mechanism.mechanism import Mechanism
from geoblanket.mechanism.signing import check_signature

__all__ = ["LARGEST_BYTES", "Bundle", "BundledMechanism", "load_bundle", "save_bundle"]

LARGEST_BYTES: Final = 1 << 30
"""The largest bundle that is read unless the caller says otherwise."""

_MAGIC = b"GBBUNDL2"
_KIND = "a bundle of mechanisms"
_HINT = "Get it again from where it came from"
_DTYPES: Mapping[str, tuple[str, ...]] = {
    "distances_mm": ("<u4", "<i8"), "weights": ("<i8",), "outputs": ("<i4",), "places_e7": ("<i4",),
    "histories": ("<i4",), "history_rows": ("<i4",), "output_places": ("<i4",),
}  # fmt: skip


def save_bundle(
    path: str | Path,
    mechanisms: Iterable[BundledMechanism],
    *,
    version: int,
    disclosed: str = "the zone and the regime of each report",
    snapping_radius_mm: int = 0,
    places_e7: npt.ArrayLike | None = None,
    domain: str | None = None,
    clock: Clock | None = None,
) -> str:
    """Write mechanisms to one file, wholly or not at all, and return the hash of their domain.

    The same mechanisms give the same bytes, in whatever order they come.

    Parameters
    ----------
    version
        A number that grows with every bundle published, so that a device can refuse an older one.
    disclosed
        What a report tells besides its output, in words.
    snapping_radius_mm
        How far a raw coordinate can lie from the place that stands for it, millimetres.
    places_e7
        Latitude and longitude of all places in 1e-7 degrees, whole numbers, shape (P, 2). Row distances must not be
        larger than those between these places. None: no coordinates, and no check by those who read it.
    domain
        Without coordinates: SHA-256 (hexadecimal) of whatever fixes the domain. With them it is computed.
    clock
        When which regime is used, for a device to choose by itself: every zone then needs a mechanism for each regime
        of it. None: whoever uses the bundle says which regime.
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
            disclosed=disclosed,
            snapping_radius_mm=snapping_radius_mm,
            clock=clock,
            mechanisms=described,
        )
        BundleHeader.parsed(header.as_fields())
        _check_layout(header, arrays)
        for mechanism in ordered:
            check_places(mechanism.rows(), places)
    except ValueError as error:
        raise ParameterError(f"This is not a bundle that can be written: {error}.") from error
    write_arrays(path, magic=_MAGIC, fields=header.as_fields(), arrays=arrays)
    return header.domain


def load_bundle(
    path: str | Path,
    *,
    public_key: str | Path | None = None,
    allow_unsigned: bool = False,
    domain: str | None = None,
    minimum_version: int = 0,
    largest_bytes: int = LARGEST_BYTES,
) -> Bundle:
    """Read a bundle and verify every mechanism in it, exactly, before anything is returned.

    Parameters
    ----------
    public_key
        A PEM file with an Ed25519 public key: the signature beside the file (`.sig`) must be by this key. None: no
        signature is looked for. What is promised never rests on it.
    allow_unsigned
        With a public key: take a file without a right signature too; `Bundle.signed` tells.
    domain
        The hash of the domain that is expected; another one is refused.
    minimum_version
        Older bundles are refused.
    largest_bytes
        Larger files are refused before they are read.

    Raises
    ------
    GuaranteeViolation
        A mechanism does not keep its promise.
    InputError
        The file is damaged, hostile, too old, not rightly signed, or its distances are larger than on the map.
    MismatchError
        It is for another domain.
    """
    found: dict[str, Any] = {"signed": False}

    def check(data: npt.NDArray[np.uint8]) -> None:
        digest = hashlib.sha256(data.data)
        found["sha256"] = digest.hexdigest()
        if public_key is not None:
            found["signed"] = _is_signed(path, digest.digest(), public_key, allow_unsigned=allow_unsigned)

    fields, arrays = read_arrays(path, magic=_MAGIC, kind=_KIND, hint=_HINT, largest_bytes=largest_bytes, check=check)
    try:
        header = BundleHeader.parsed(fields)
        _check_layout(header, arrays)
    except ValueError as error:
        raise InputError(f"is not {_KIND} that can be used: {error}", path=path, hint=_HINT) from error
    if domain is not None and header.domain != domain:
        raise MismatchError(f"{path}: is for another domain. Get the bundle of the domain that is asked for.")
    if header.version < minimum_version:
        raise InputError(
            f"is version {header.version}, older than the {minimum_version} that is asked for", path=path, hint=_HINT
        )
    if len(arrays["places_e7"]) and domain_hash(header.mechanisms, arrays) != header.domain:
        raise InputError("its domain is not the one that its header says", path=path, hint=_HINT)
    places = np.array(arrays["places_e7"])
    return Bundle(
        mechanisms=tuple(_verified(path, one, parts, places) for one, parts in _split(header, arrays)),
        version=header.version,
        domain=header.domain,
        disclosed=header.disclosed,
        snapping_radius_mm=header.snapping_radius_mm,
        clock=header.clock,
        places_e7=places,
        sha256=found["sha256"],
        signed=found["signed"],
    )


def _is_signed(path: str | Path, digest: bytes, public_key: str | Path, *, allow_unsigned: bool) -> bool:
    try:
        check_signature(path, digest, public_key)
    except InputError as error:
        if not allow_unsigned or error.path == Path(public_key):
            raise
        return False
    return True


def _check_layout(header: BundleHeader, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
    """Raise ValueError unless the parts of the file have the types and sizes that follow from its header."""
    if set(arrays) != set(_DTYPES):
        raise ValueError("its parts are not those of a bundle")
    for name, array in arrays.items():
        if array.dtype.str not in _DTYPES[name] or array.ndim != (2 if name == "places_e7" else 1):
            raise ValueError(f"its part '{name}' has another type")
    sizes = [_sizes(one) for one in header.mechanisms]
    for name in sizes[0]:
        if len(arrays[name]) != sum(size[name] for size in sizes):
            raise ValueError(f"the size of its part '{name}' does not follow from its header")
    located = len(arrays["places_e7"]) > 0
    if any((one.histories > 0) != located for one in header.mechanisms):
        raise ValueError("histories need coordinates, and coordinates histories")


def _sizes(header: MechanismHeader) -> dict[str, int]:
    return {
        "distances_mm": triangle_size(header.rows),
        "weights": header.rows * header.columns,
        "outputs": header.columns,
        "histories": header.histories * (1 + len(header.history_weights_micro)),
        "history_rows": header.histories,
        "output_places": header.columns if header.histories else 0,
    }


def _split(
    header: BundleHeader, arrays: Mapping[str, npt.NDArray[Any]]
) -> Iterator[tuple[MechanismHeader, dict[str, npt.NDArray[Any]]]]:
    """Yield each mechanism's part of the arrays, views of the file."""
    start = dict.fromkeys(_DTYPES, 0)
    for one in header.mechanisms:
        parts = {}
        for name, size in _sizes(one).items():
            parts[name] = arrays[name][start[name] : start[name] + size]
            start[name] += size
        yield one, parts


def _verified(
    path: str | Path, header: MechanismHeader, parts: Mapping[str, npt.NDArray[Any]], places: Indices
) -> BundledMechanism:
    """Return a mechanism of the file, its distances checked on the map and its promise exactly."""
    where = f"zone '{header.zone}', regime '{header.regime}'"
    outputs = np.array(parts["outputs"])
    if outputs[0] < 0 or outputs[-1] >= header.outputs or (np.diff(outputs) <= 0).any():
        raise InputError(f"{where}: the numbers of its outputs are wrong", path=path, hint=_HINT)
    rows = Rows(
        zone=header.zone,
        regime=header.regime,
        distance_mm=unpack(parts["distances_mm"], header.rows),
        history_weights_micro=header.history_weights_micro,
        histories=np.array(parts["histories"]).reshape(-1, 1 + len(header.history_weights_micro)),
        history_rows=np.array(parts["history_rows"]),
        output_places=np.array(parts["output_places"]),
    )
    try:
        check_places(rows, places)
        mechanism = Mechanism.verified(
            parts["weights"].reshape(header.rows, header.columns),
            distance_mm=rows.distance_mm,
            epsilon_micro=header.epsilon_micro,
            eta_mm=header.eta_mm,
        )
    except ValueError as error:
        raise InputError(str(error), path=path, hint=_HINT) from error
    except GuaranteeViolation as error:
        output = None if error.output is None else int(outputs[error.output])
        column = "" if output is None else f" (column {error.output} is output {output})"
        problem = f"{path}: {where}: {error.problem}{column}"
        raise GuaranteeViolation(error.row, error.other_row, output, error.excess, problem) from error
    except MechanismError as error:
        raise InputError(f"{where}: {error}", path=path, hint=_HINT) from error
    return BundledMechanism(
        zone=header.zone,
        regime=header.regime,
        mechanism=mechanism,
        outputs=outputs,
        output_count=header.outputs,
        history_weights_micro=header.history_weights_micro,
        histories=rows.histories,
        history_rows=rows.history_rows,
        output_places=rows.output_places,
    )


def _arrays(mechanisms: Sequence[BundledMechanism], places: Indices) -> dict[str, npt.NDArray[Any]]:
    """Return the arrays of the file: those of all mechanisms one after the other."""
    small = all(fits_32_bits(one.mechanism.distance_mm) for one in mechanisms)
    packed = [pack(one.mechanism.distance_mm, bits=32 if small else 64) for one in mechanisms]
    return {
        "places_e7": places,
        "distances_mm": np.concatenate(packed),
        "weights": np.concatenate([one.mechanism.weights.ravel() for one in mechanisms]),
        "outputs": np.concatenate([one.outputs for one in mechanisms]),
        "histories": np.concatenate([one.histories.ravel() for one in mechanisms]),
        "history_rows": np.concatenate([one.history_rows for one in mechanisms]),
        "output_places": np.concatenate([one.output_places for one in mechanisms]),
    }
