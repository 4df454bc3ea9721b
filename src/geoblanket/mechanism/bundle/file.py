"""The file of a bundle, read: its header and parts checked, and its mechanisms verified one by one.

Cheap checks come first, and nothing is interpreted before it was checked: size, signature, hashes, header, distances,
and finally the exact verifier.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from geoblanket._arrayfile import read_arrays
from geoblanket._arrays import Indices, Octets
from geoblanket._files import MAGIC as _MAGIC_OF
from geoblanket.errors import GuaranteeViolation, InputError, LatticeViolation, MechanismError, ParameterError
from geoblanket.mechanism.bundle.contents import BundledMechanism
from geoblanket.mechanism.bundle.domain import LARGEST_WORK, DomainCheck, domain_hash, triangle_size, unpack
from geoblanket.mechanism.bundle.header import BundleHeader, MechanismHeader, ReadBundle
from geoblanket.mechanism.bundle.lattice_section import MULTIPLIERS
from geoblanket.mechanism.bundle.trust import ANY_FILE, HINT, Trust
from geoblanket.mechanism.lattice.lattice import Lattice
from geoblanket.mechanism.mechanism import Mechanism

__all__ = ["LARGEST_BYTES", "MAGIC", "BundleFile", "check_layout", "next_version"]

LARGEST_BYTES: Final = 1 << 30
"""The largest bundle that is read unless the caller says otherwise."""
MAGIC: Final = _MAGIC_OF["bundle"]

_KIND = "a bundle of mechanisms"
_DTYPES: Mapping[str, tuple[str, ...]] = {
    "distances_mm": ("<u4", "<i8"), "weights": ("<i8",), "outputs": ("<i4",), "places_e7": ("<i4",),
    "histories": ("<i4",), "history_rows": ("<i4",), "output_places": ("<i4",),
}  # fmt: skip

_NO_PLACES: Indices = np.empty((0, 2), np.int32)

Parts = Mapping[str, npt.NDArray[Any]]


@dataclass(frozen=True, eq=False, kw_only=True)
class BundleFile(ReadBundle):
    """A complete bundle that was read, but not yet verified."""

    path: Path
    arrays: Parts
    """Views of the file; `places_e7` is a copy."""

    @classmethod
    def read(
        cls,
        path: str | Path,
        *,
        trust: Trust = ANY_FILE,
        largest_bytes: int = LARGEST_BYTES,
        content: bytes | None = None,
    ) -> BundleFile:
        """Read a file; see `load_bundle` for parameters and errors."""
        sha256, signed = "", False

        def check(data: Octets) -> None:
            nonlocal sha256, signed
            digest = hashlib.sha256(data.data)
            sha256, signed = digest.hexdigest(), trust.is_signed(path, digest.digest())

        fields, arrays = read_arrays(
            path, magic=MAGIC, kind=_KIND, hint=HINT, largest_bytes=largest_bytes, check=check, content=content
        )
        try:
            header = BundleHeader.parsed(fields)
            check_layout(header, arrays)
        except ValueError as error:
            raise _unusable(path, error) from error
        trust.check_header(path, header)
        if header.lattice is not None:
            return cls(
                path=Path(path), header=header, arrays=arrays, places_e7=_NO_PLACES, sha256=sha256, signed=signed
            )
        if len(arrays["places_e7"]) and domain_hash(header.mechanisms, arrays) != header.domain:
            raise InputError("its domain is not the one that its header says", path=path, hint=HINT)
        places_e7 = np.array(arrays["places_e7"])
        return cls(path=Path(path), header=header, arrays=arrays, places_e7=places_e7, sha256=sha256, signed=signed)

    def parts(self) -> Iterator[tuple[MechanismHeader, Parts]]:
        """Yield each mechanism's header and its part of the arrays, views of the file."""
        start = dict.fromkeys(_DTYPES, 0)
        for header in self.header.mechanisms:
            parts = {}
            for name, size in _sizes(header).items():
                parts[name] = self.arrays[name][start[name] : start[name] + size]
                start[name] += size
            yield header, parts

    def verified_lattice(self) -> Lattice | None:
        """Return the lattice of the file, if it has one, verified."""
        section = self.header.lattice
        if section is None:
            return None
        try:
            return Lattice.verified(section.spec(self.arrays[MULTIPLIERS]), section.hold_mm)
        except LatticeViolation as error:
            raise LatticeViolation(f"{self.path}: {error.problem}") from error
        except MechanismError as error:
            raise InputError(str(error).rstrip("."), path=self.path, hint=HINT) from error

    def known_lattice(self) -> Lattice | None:
        """Return the lattice of the file, if it has one, which this device verified before."""
        section = self.header.lattice
        return None if section is None else Lattice.known(section.spec(self.arrays[MULTIPLIERS]), section.hold_mm)

    def verified(self, *, largest_work: int = LARGEST_WORK) -> Iterator[BundledMechanism]:
        """Yield each mechanism, its distances checked on the map and its promise exactly."""
        if self.header.lattice is not None:
            return
        try:
            domain = DomainCheck(
                self.header.mechanisms,
                [_histories(header, parts) for header, parts in self.parts()],
                self.places_e7,
                largest_work=largest_work,
            )
        except ValueError as error:
            raise _unusable(self.path, error) from error
        for number, (header, parts) in enumerate(self.parts()):
            yield _verified(self.path, header, parts, domain, number)


def _unusable(path: str | Path, problem: ValueError) -> InputError:
    return InputError(f"is not {_KIND} that can be used: {problem}", path=path, hint=HINT)


def check_layout(header: BundleHeader, arrays: Parts) -> None:
    """Raise ValueError unless the parts of the file have the types and sizes that follow from its header."""
    if header.lattice is not None:
        header.lattice.check_array(arrays)
        return
    if set(arrays) != set(_DTYPES):
        raise ValueError("its parts are not those of a bundle")
    for name, array in arrays.items():
        if array.dtype.str not in _DTYPES[name] or array.ndim != (2 if name == "places_e7" else 1):
            raise ValueError(f"its part '{name}' has another type")
    sizes = [_sizes(mechanism) for mechanism in header.mechanisms]
    for name in sizes[0]:
        if len(arrays[name]) != sum(size[name] for size in sizes):
            raise ValueError(f"the size of its part '{name}' does not follow from its header")
    located = len(arrays["places_e7"]) > 0
    if any((mechanism.histories > 0) != located for mechanism in header.mechanisms):
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


def _histories(header: MechanismHeader, parts: Parts) -> tuple[Indices, Indices]:
    """Return the table of a mechanism's histories and the row of each, copies."""
    table = np.array(parts["histories"]).reshape(-1, 1 + len(header.history_weights_micro))
    return table, np.array(parts["history_rows"])


def _verified(path: Path, header: MechanismHeader, parts: Parts, domain: DomainCheck, number: int) -> BundledMechanism:
    """Return a mechanism of the file, its distances checked on the map and its promise exactly."""
    outputs, output_places = np.array(parts["outputs"]), np.array(parts["output_places"])
    if outputs[0] < 0 or outputs[-1] >= header.outputs or (np.diff(outputs) <= 0).any():
        raise InputError(f"{header.where}: the numbers of its outputs are wrong", path=path, hint=HINT)
    distance_mm = unpack(parts["distances_mm"], header.rows)
    try:
        domain.check(number, distance_mm, output_places)
        mechanism = Mechanism.verified(
            parts["weights"].reshape(header.rows, header.columns),
            distance_mm=distance_mm,
            epsilon_micro=header.epsilon_micro,
            eta_mm=header.eta_mm,
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
    histories, history_rows = _histories(header, parts)
    return BundledMechanism(
        zone=header.zone,
        regime=header.regime,
        mechanism=mechanism,
        outputs=outputs,
        output_count=header.outputs,
        history_weights_micro=header.history_weights_micro,
        histories=histories,
        history_rows=history_rows,
        output_places=output_places,
    )


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
        replaced = BundleFile.read(path).header.version
    except InputError:
        return 1 if asked is None else asked
    if asked is not None and asked <= replaced:
        raise ParameterError(
            f"The version of the bundle must be greater than {replaced}, that of the bundle it replaces ({path}): "
            f"devices refuse to go back. Got {asked} instead; leave it out for {replaced + 1}."
        )
    return replaced + 1 if asked is None else asked
