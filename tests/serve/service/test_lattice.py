"""Bundles with a lattice: what the service tells of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, replace
from pathlib import Path

import pytest

from geoblanket.errors import InputError
from geoblanket.mechanism.bundle.facts import BundleFacts, FrameFacts, LatticeFacts
from geoblanket.mechanism.bundle.policy import Policy
from geoblanket.serve.service.bundles import BundleStore
from tests.mechanism.bundles import load_lattice
from tests.serve.service.city_lattices import save_city
from tests.serve.service.living import Live, live

HERE = (41.152, -8.604)


@pytest.fixture(scope="module")
def city(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_city(tmp_path_factory.mktemp("city") / "city.bundle", hold_m=50)


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Without hold."""
    return save_city(tmp_path_factory.mktemp("bare") / "bare.bundle", epsilon=2.0)


@pytest.fixture(scope="module")
def store(city: Path, bare: Path, town: Path) -> BundleStore:
    return BundleStore([city, bare, town])


@pytest.fixture(scope="module")
def site(store: BundleStore) -> Iterator[Live]:
    with live(store) as found:
        yield found


def test_the_list_describes_lattices_beside_zones(site: Live, city: Path) -> None:
    lattice = load_lattice(city).lattice
    first, second, third = site.client.get("/v1/bundles").json()["bundles"]
    facts = first["lattice"]
    assert (facts["cells"], facts["cell_m"], facts["epsilon_per_km"]) == (lattice.cells, 100, 4)
    assert facts["hold_m"] == 50
    assert facts["meaning"] == replace(lattice.promise, interval_s=30).meaning
    assert facts["rounding_m"] == lattice.certificate.rounding_mm / 1000
    frame = facts["frame"]
    lat, lon = lattice.centers()
    assert frame["south"] < lat.min() < lat.max() < frame["north"]
    assert frame["west"] < lon.min() < lon.max() < frame["east"]
    assert (first["epsilon_per_km"], first["eta_km"], first["zones"]) == ([4], [None], [])
    assert second["lattice"]["hold_m"] == 0
    assert third["lattice"] is None


def test_the_interface_describes_lattices(site: Live) -> None:
    schemas = site.client.get("/openapi.json").json()["components"]["schemas"]
    for facts in (BundleFacts, LatticeFacts, FrameFacts):
        assert list(schemas[facts.__name__]["properties"]) == [field.name for field in fields(facts)]
    assert schemas["LatticeFacts"]["properties"]["cell_m"]["description"] == "Metres from edge to edge of a cell."


def test_download_guarantee_and_what_is_not_there(site: Live, city: Path) -> None:
    bundle = load_lattice(city)
    path = f"/v1/bundles/{bundle.sha256}"
    answer = site.client.get(path)
    assert answer.content == city.read_bytes()
    assert site.client.get(path, headers={"If-None-Match": answer.headers["etag"]}).status_code == 304
    guarantee = site.client.get(f"{path}/guarantee").json()
    assert guarantee["words"] == str(bundle.promise).split("\n")
    assert (guarantee["mechanisms"], guarantee["lattice"]["cells"]) == ([], bundle.lattice.cells)
    for part in ("zones", "places"):
        assert site.client.get(f"{path}/{part}").json()["error"] == "no_zones"


def test_the_policy_holds_for_lattices(city: Path) -> None:
    with pytest.raises(InputError, match=r"its ε is 4 per km, more than 3"):
        BundleStore([city], policy=Policy(largest_epsilon=3.0))


def test_a_lattice_is_replaced_like_any_bundle(tmp_path: Path, city: Path) -> None:
    path = tmp_path / "city.bundle"
    path.write_bytes(city.read_bytes())
    store = BundleStore([path])
    before = store.bundles[0].sha256
    save_city(path, version=2)
    assert store.refresh() == 1
    assert store.bundles[0].sha256 != before
    path.write_bytes(b"nothing")
    assert (store.refresh(), store.refused) == (0, 1)
