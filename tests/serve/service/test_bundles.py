from __future__ import annotations

import hashlib
import json
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest

from geoblanket.mechanism import load_bundle
from geoblanket.mechanism.bundle.facts import BundleFacts, ClockFacts, MechanismFacts
from geoblanket.mechanism.bundle.trust import Trust, sign_bundle
from geoblanket.serve.service.bundles import BundleStore
from tests.mechanism.bundle.test_trust import write_keys
from tests.mechanism.bundles import load_zones, save_located, save_plain
from tests.release.worlds import PLACES, ZONES
from tests.serve.service.living import Live, live


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_the_list_says_what_each_bundle_promises(service: Live, town: Path, plain: Path) -> None:
    answer = service.client.get("/v1/bundles")
    assert (answer.status_code, answer.headers["cache-control"]) == (200, "public, no-cache")
    first, second = answer.json()["bundles"]
    assert (first["sha256"], second["sha256"]) == (sha256(town), sha256(plain))
    assert first["epsilon_per_km"] == [20.0]
    assert first["eta_km"] == [None]
    assert first["history_weights"] == [[], [1.0]]
    assert first["epsilon_per_location_per_km"] == 40.0
    assert (first["zones"], first["regimes"]) == (["east", "west"], ["day", "night", "start"])
    assert (first["version"], first["places"], first["bytes"]) == (1, len(PLACES), town.stat().st_size)
    assert first["disclosed"] == "the zone, the regime, and when a report was made"
    assert first["training"] == {"source": "not said"}
    assert first["training_in_words"] == "learned from what its file does not say"
    assert first["clock"]["time_zone"] == "Asia/Tokyo"
    assert (second["clock"], second["version"], second["signed"]) == (None, 3, False)


def test_the_interface_is_described_in_the_words_of_the_facts(service: Live) -> None:
    schemas = service.client.get("/openapi.json").json()["components"]["schemas"]
    for facts in (BundleFacts, MechanismFacts, ClockFacts):
        assert list(schemas[facts.__name__]["properties"]) == [field.name for field in fields(facts)]
    assert schemas["BundleFacts"]["properties"]["places"]["description"] == "How many places have coordinates."


def test_a_download_is_the_file_and_its_hash_the_tag(service: Live, town: Path, tmp_path: Path) -> None:
    answer = service.client.get(f"/v1/bundles/{sha256(town)}")
    assert answer.content == town.read_bytes()
    assert answer.headers["etag"] == f'"{sha256(town)}"'
    assert answer.headers["content-length"] == str(town.stat().st_size)
    assert "immutable" in answer.headers["cache-control"]
    (tmp_path / "got.bundle").write_bytes(answer.content)
    assert load_bundle(tmp_path / "got.bundle").sha256 == sha256(town)


@pytest.mark.parametrize("known", ['"{}"', 'W/"{}"', '"other", "{}"', "*"])
def test_what_the_client_has_is_not_sent_again(service: Live, town: Path, known: str) -> None:
    path = f"/v1/bundles/{sha256(town)}"
    answer = service.client.get(path, headers={"If-None-Match": known.format(sha256(town))})
    assert (answer.status_code, answer.content) == (304, b"")
    assert answer.headers["etag"] == f'"{sha256(town)}"'
    assert service.client.get(path, headers={"If-None-Match": '"other"'}).status_code == 200


def test_a_range_is_not_known_and_gets_the_whole(service: Live, town: Path) -> None:
    answer = service.client.get(f"/v1/bundles/{sha256(town)}", headers={"Range": "bytes=0-7"})
    assert (answer.status_code, len(answer.content)) == (200, town.stat().st_size)
    assert "accept-ranges" not in answer.headers


def test_the_guarantee_in_words_and_figures(service: Live, town: Path) -> None:
    bundle = load_zones(town)
    facts = service.client.get(f"/v1/bundles/{sha256(town)}/guarantee").json()
    assert facts["words"] == str(bundle.promise).split("\n")
    assert len(facts["mechanisms"]) == len(bundle)
    for stated, bundled in zip(facts["mechanisms"], bundle, strict=True):
        assert (stated["zone"], stated["regime"]) == (bundled.zone, bundled.regime)
        assert stated["inequalities"] == bundled.mechanism.certificate.checks
        assert stated["epsilon_effective_per_km"] <= stated["epsilon_per_km"] == bundled.mechanism.epsilon
    words = service.client.get(f"/v1/bundles/{sha256(town)}/guarantee", headers={"Accept": "text/plain"})
    assert words.text == str(bundle.promise) + "\n"
    assert words.headers["content-type"].startswith("text/plain")


def test_zones_and_places_as_geojson(service: Live, town: Path) -> None:
    answer = service.client.get(f"/v1/bundles/{sha256(town)}/zones")
    assert answer.headers["content-type"] == "application/geo+json"
    zones = {zone["properties"]["zone"]: zone for zone in answer.json()["features"]}
    points = [[round(float(lon), 7), round(float(lat), 7)] for lat, lon in zip(PLACES.lat, PLACES.lon, strict=True)]
    for name, members in ZONES.items():
        assert zones[name]["geometry"]["type"] == "MultiPoint"
        np.testing.assert_allclose(zones[name]["geometry"]["coordinates"], [points[place] for place in members])
        assert zones[name]["properties"]["regimes"] == ["day", "night", "start"]
    places = service.client.get(f"/v1/bundles/{sha256(town)}/places").json()["features"]
    assert [place["id"] for place in places] == list(range(len(PLACES)))
    np.testing.assert_allclose([place["geometry"]["coordinates"] for place in places], points)
    assert places[5]["properties"] == {"place": 5, "zones": []}
    assert places[0]["properties"] == {"place": 0, "zones": ["west"]}


def test_without_coordinates_there_is_no_map(service: Live, plain: Path) -> None:
    answer = service.client.get(f"/v1/bundles/{sha256(plain)}/zones")
    assert (answer.status_code, answer.json()["error"]) == (404, "no_coordinates")


def test_signatures_are_handed_out(tmp_path: Path) -> None:
    private, public = write_keys(tmp_path, "ours")
    path = save_located(tmp_path / "a.bundle")
    signature = sign_bundle(path, private).read_bytes()
    with live(
        BundleStore([path, save_plain(tmp_path / "b.bundle")], trust=Trust(public_key=public, allow_unsigned=True))
    ) as service:
        first, second = service.client.get("/v1/bundles").json()["bundles"]
        assert (first["signed"], second["signed"]) == (True, False)
        assert service.client.get(f"/v1/bundles/{first['sha256']}/signature").content == signature
        missing = service.client.get(f"/v1/bundles/{second['sha256']}/signature")
        assert (missing.status_code, missing.json()["error"]) == (404, "no_signature")


@pytest.mark.parametrize(
    "name",
    [
        "0" * 64,
        "..%2f..%2fetc%2fpasswd",
        "%2e%2e",
        "town.bundle",
        "%00",
        "a%00b",
        "%ff%fe",
        "%ed%a0%80",
        "١٢",
        "%25s%25n",
        "a" * 10_000,
        "{0}.json",
        "{0}%00",
        "{0}%0a",
        "{0}/../{0}/x",
    ],
)
def test_names_that_are_no_hash_lead_nowhere(service: Live, town: Path, name: str) -> None:
    target = f"/v1/bundles/{name.format(sha256(town))}".encode()
    answer = service.raw(b"GET " + target + b" HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
    head, _, body = answer.partition(b"\r\n\r\n")
    if target.isascii():
        assert head.startswith(b"HTTP/1.1 404 ")
        assert set(json.loads(body)) == {"error", "message"}
    else:
        assert head.startswith(b"HTTP/1.1 400 ")


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "BREW"])
def test_other_methods_are_refused(service: Live, method: str) -> None:
    answer = service.client.request(method, "/v1/bundles")
    assert (answer.status_code, answer.json()["error"]) == (405, "wrong_method")
    assert "GET" in answer.headers["allow"]


@pytest.mark.parametrize("path", ["/v1/bundles", "/healthz", "/metrics", "/openapi.json", "/nothing"])
def test_every_answer_forbids_other_hosts_and_frames(service: Live, path: str) -> None:
    headers = service.client.get(path).headers
    assert "default-src 'self'" in headers["content-security-policy"]
    assert "http" not in headers["content-security-policy"]
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["cross-origin-resource-policy"] == "same-origin"
    assert "access-control-allow-origin" not in headers
    assert "server" not in headers


def test_no_page_of_the_framework_loads_scripts_from_elsewhere(service: Live) -> None:
    for path in ("/docs", "/redoc"):
        assert service.client.get(path).status_code == 404
    assert service.client.get("/openapi.json").json()["info"]["title"] == "geoblanket"


def test_health(service: Live) -> None:
    assert service.client.get("/healthz").json() == {"status": "ok", "bundles": 2, "refused": 0}
