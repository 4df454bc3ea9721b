"""Small bundles, and forgeries of them with right hashes."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from geoblanket._arrayfile import read_arrays, write_arrays
from geoblanket._arrays import Floats
from geoblanket._geodesy import haversine_m
from geoblanket.lab.baselines import tight_constraints
from geoblanket.mechanism.bundle.domain import domain_hash
from geoblanket.mechanism.bundle.header import ZoneHeader
from geoblanket.mechanism.bundle.storage import BundledMechanism, LatticeBundle, ZoneBundle, load_bundle, save_bundle
from geoblanket.mechanism.mechanism import Mechanism
from geoblanket.mechanism.problem import Problem

MAGIC = b"GBBUNDL2"
DOMAIN = "ab" * 32
PLACES_E7 = np.array([[410000000 + 90000 * i, -86000000 + 50000 * i * i] for i in range(5)], np.int32)
"""Five places, about a kilometre from one to the next."""

Fields = dict[str, Any]
Arrays = dict[str, npt.NDArray[Any]]


def distance_km(scale: float = 1.0) -> Floats:
    lat, lon = PLACES_E7.T / 1e7
    return haversine_m(lat[:, None], lon[:, None], lat, lon) / 1000 * scale


def tight(epsilon: float = 2.0, *, scale: float = 1.0, eta_km: float = np.inf) -> Mechanism:
    """A mechanism of the five places in which every constraint that can bind, binds; two outputs are not used."""
    distance = distance_km(scale)
    far = distance.max() + 1
    loss = np.concatenate([distance[:, :2], np.full((5, 1), far), distance[:, 2:], np.full((5, 1), far)], axis=1)
    return tight_constraints(
        Problem(loss=loss, prior=np.full(5, 0.2), distance_km=distance, epsilon=epsilon, eta_km=eta_km)
    )


OUTPUT_PLACES = np.array([0, 1, 0, 2, 3, 4, 0])


def located(mechanism: Mechanism, *, zone: str = "centre", regime: str = "day", first: int = 0) -> BundledMechanism:
    """The mechanism over five places, of which `first` is the first."""
    return BundledMechanism.of(
        mechanism, zone=zone, regime=regime, histories=first + np.arange(5), output_places=first + OUTPUT_PLACES
    )


def save_located(path: Path, *, version: int = 3) -> Path:
    """A bundle with coordinates, two regimes of one zone."""
    parts = [located(tight(2.0)), located(tight(4.0), regime="night")]
    save_bundle(path, parts, version=version, places_e7=PLACES_E7, snapping_radius_mm=50_000)
    return path


def save_plain(path: Path, mechanism: Mechanism | None = None, *, version: int = 3) -> Path:
    """A bundle without coordinates."""
    part = BundledMechanism.of(mechanism or tight(), zone="centre", regime="day")
    save_bundle(path, [part], version=version, domain=DOMAIN)
    return path


def load_zones(path: str | Path) -> ZoneBundle:
    bundle = load_bundle(path)
    assert isinstance(bundle, ZoneBundle)
    return bundle


def load_lattice(path: str | Path) -> LatticeBundle:
    bundle = load_bundle(path)
    assert isinstance(bundle, LatticeBundle)
    return bundle


def forge(path: Path, change: Callable[[Fields, Arrays], None], *, new_domain: bool = False) -> None:
    """Change the contents of a bundle and write it with right hashes, as an attacker would."""
    fields, mapped = read_arrays(path, magic=MAGIC, kind="a bundle")
    arrays = {name: np.array(array) for name, array in mapped.items()}
    change(fields, arrays)
    if new_domain:
        fields["domain"] = domain_hash(ZoneHeader.parsed(fields).mechanisms, arrays)
    write_arrays(path, magic=MAGIC, fields=fields, arrays=arrays)


def rewrite_header(path: Path, change: Callable[[str], str]) -> None:
    """Change the text of the header, whatever comes of it, and give it its right hash."""
    data = path.read_bytes()
    end = 48 + int.from_bytes(data[8:16], "little")
    before = data[48:end].decode()
    text = change(before)
    assert text != before
    header = text.encode()
    padding = bytes(-(48 + len(header)) % 64)
    digest = hashlib.sha256(header).digest()
    path.write_bytes(MAGIC + len(header).to_bytes(8, "little") + digest + header + padding + data[end + -end % 64 :])
