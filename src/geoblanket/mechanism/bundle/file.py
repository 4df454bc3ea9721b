"""The file of a bundle, read: its header and parts checked, and its mechanisms verified one by one.

Reading goes from what costs little to what costs most, and nothing is interpreted before it was checked: size,
signature, hashes, header, distances, and at last the exact verifier.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from geoblanket._arrayfile import read_arrays
from geoblanket._arrays import Indices, Octets
from geoblanket.errors import GuaranteeViolation, InputError, MechanismError, MismatchError
from geoblanket.mechanism.bundle.contents import BundledMechanism
from geoblanket.mechanism.bundle.domain import (
    LARGEST_WORK,
    DomainCheck,
    Rows,
    domain_hash,
    triangle_size,
    unpack,
)
from geoblanket.mechanism.bundle.header import BundleHeader, MechanismHeader
from geoblanket.mechanism.bundle.signing import check_signature
from geoblanket.mechanism.mechanism import Mechanism

__all__ = ["LARGEST_BYTES", "MAGIC", "BundleFile", "check_layout"]

LARGEST_BYTES: Final = 1 << 30
"""The largest bundle that is read unless the caller says otherwise."""
MAGIC: Final = b"GBBUNDL2"

_KIND = "a bundle of mechanisms"
_HINT = "Get it again from where it came from"
_DTYPES: Mapping[str, tuple[str, ...]] = {
    "distances_mm": ("<u4", "<i8"), "weights": ("<i8",), "outputs": ("<i4",), "places_e7": ("<i4",),
    "histories": ("<i4",), "history_rows": ("<i4",), "output_places": ("<i4",),
}  # fmt: skip

Parts = Mapping[str, npt.NDArray[Any]]


@dataclass(frozen=True, eq=False)
class BundleFile:
    """A bundle that was read and is whole, and of which nothing was verified yet."""

    path: Path
    header: BundleHeader
    arrays: Parts
    """Views of the file."""
    places_e7: Indices
    """A copy."""
    sha256: str
    signed: bool

    @classmethod
    def read(
        cls,
        path: str | Path,
        *,
        public_key: str | Path | None = None,
        allow_unsigned: bool = False,
        domain: str | None = None,
        minimum_version: int = 0,
        largest_bytes: int = LARGEST_BYTES,
        content: bytes | None = None,
    ) -> BundleFile:
        """Read a file; see `load_bundle` for parameters and errors."""
        found: dict[str, Any] = {"signed": False}

        def check(data: Octets) -> None:
            digest = hashlib.sha256(data.data)
            found["sha256"] = digest.hexdigest()
            if public_key is not None:
                found["signed"] = _is_signed(path, digest.digest(), public_key, allow_unsigned=allow_unsigned)

        fields, arrays = read_arrays(
            path, magic=MAGIC, kind=_KIND, hint=_HINT, largest_bytes=largest_bytes, check=check, content=content
        )
        try:
            header = BundleHeader.parsed(fields)
            check_layout(header, arrays)
        except ValueError as error:
            raise InputError(f"is not {_KIND} that can be used: {error}", path=path, hint=_HINT) from error
        if domain is not None and header.domain != domain:
            raise MismatchError(f"{path}: is for another domain. Get the bundle of the domain that is asked for.")
        if header.version < minimum_version:
            raise InputError(
                f"is version {header.version}, older than the {minimum_version} that is asked for",
                path=path,
                hint=_HINT,
            )
        if len(arrays["places_e7"]) and domain_hash(header.mechanisms, arrays) != header.domain:
            raise InputError("its domain is not the one that its header says", path=path, hint=_HINT)
        return cls(Path(path), header, arrays, np.array(arrays["places_e7"]), found["sha256"], found["signed"])

    def parts(self) -> Iterator[tuple[MechanismHeader, Parts]]:
        """Yield each mechanism's header and its part of the arrays, views of the file."""
        start = dict.fromkeys(_DTYPES, 0)
        for one in self.header.mechanisms:
            parts = {}
            for name, size in _sizes(one).items():
                parts[name] = self.arrays[name][start[name] : start[name] + size]
                start[name] += size
            yield one, parts

    def verified(self, *, largest_work: int = LARGEST_WORK) -> Iterator[BundledMechanism]:
        """Yield each mechanism, its distances checked on the map and its promise exactly."""
        try:
            domain = DomainCheck(
                self.header.mechanisms,
                [_histories(header, parts) for header, parts in self.parts()],
                self.places_e7,
                largest_work=largest_work,
            )
        except ValueError as error:
            raise InputError(f"is not {_KIND} that can be used: {error}", path=self.path, hint=_HINT) from error
        for number, (header, parts) in enumerate(self.parts()):
            yield _verified(self.path, header, parts, partial(domain.check, number))


def _is_signed(path: str | Path, digest: bytes, public_key: str | Path, *, allow_unsigned: bool) -> bool:
    try:
        check_signature(path, digest, public_key)
    except InputError as error:
        if not allow_unsigned or error.path == Path(public_key):
            raise
        return False
    return True


def check_layout(header: BundleHeader, arrays: Parts) -> None:
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


def _histories(header: MechanismHeader, parts: Parts) -> tuple[Indices, Indices]:
    """Return the table of a mechanism's histories and the row of each, copies."""
    return np.array(parts["histories"]).reshape(-1, 1 + len(header.history_weights_micro)), np.array(
        parts["history_rows"]
    )


def _verified(
    path: Path, header: MechanismHeader, parts: Parts, check_rows: Callable[[Rows], None]
) -> BundledMechanism:
    """Return a mechanism of the file, its distances checked on the map and its promise exactly."""
    where = f"zone '{header.zone}', regime '{header.regime}'"
    outputs = np.array(parts["outputs"])
    if outputs[0] < 0 or outputs[-1] >= header.outputs or (np.diff(outputs) <= 0).any():
        raise InputError(f"{where}: the numbers of its outputs are wrong", path=path, hint=_HINT)
    histories, history_rows = _histories(header, parts)
    rows = Rows(
        zone=header.zone,
        regime=header.regime,
        distance_mm=unpack(parts["distances_mm"], header.rows),
        history_weights_micro=header.history_weights_micro,
        histories=histories,
        history_rows=history_rows,
        output_places=np.array(parts["output_places"]),
    )
    try:
        check_rows(rows)
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
