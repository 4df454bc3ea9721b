from __future__ import annotations

import shutil
import threading
import time
from pathlib import Path

import pytest

from geoblanket.errors import InputError
from geoblanket.mechanism import save_bundle
from geoblanket.mechanism.bundle.trust import Trust, sign_bundle
from geoblanket.serve.service.bundles import BundleStore
from tests.mechanism.bundle.test_trust import write_keys
from tests.mechanism.bundles import PLACES_E7, forge, located, save_located, save_plain, tight
from tests.serve.service.living import PATIENCE_S, live


def weaken(path: Path) -> None:
    """Break the promise, with all hashes right."""
    forge(path, lambda _, arrays: arrays["weights"].put([0, 1], [0, 2**61]))


def test_what_does_not_verify_is_named_and_nothing_is_served(tmp_path: Path) -> None:
    right = save_located(tmp_path / "right.bundle")
    wrong = save_located(tmp_path / "wrong.bundle")
    weaken(wrong)
    cut = tmp_path / "cut.bundle"
    cut.write_bytes(right.read_bytes()[:-1])
    (tmp_path / "empty.bundle").write_bytes(b"")
    files = [right, wrong, cut, tmp_path / "empty.bundle", tmp_path / "missing.bundle", tmp_path]
    with pytest.raises(InputError, match="5 of 6") as caught:
        BundleStore(files)
    for words in ("wrong.bundle", "cut.bundle", "empty.bundle", "missing.bundle: no such file"):
        assert words in str(caught.value)
    assert "right.bundle" not in str(caught.value)
    assert not BundleStore([]).bundles  # the page makes its own


def test_signatures_and_versions_are_demanded(tmp_path: Path) -> None:
    private, public = write_keys(tmp_path, "ours")
    path = save_located(tmp_path / "a.bundle", version=3)
    with pytest.raises(InputError, match="has no signature"):
        BundleStore([path], trust=Trust(public_key=public))
    sign_bundle(path, private)
    assert BundleStore([path], trust=Trust(public_key=public)).bundles[0].bundle.signed
    with pytest.raises(InputError, match="older than the 4"):
        BundleStore([path], trust=Trust(minimum_version=4))


def test_files_of_the_same_content_are_served_once(tmp_path: Path) -> None:
    path = save_located(tmp_path / "one.bundle")
    shutil.copy(path, tmp_path / "two.bundle")
    assert len(BundleStore([path, tmp_path / "two.bundle"]).bundles) == 1


def test_a_file_that_is_replaced_is_verified_again(tmp_path: Path) -> None:
    path = save_located(tmp_path / "a.bundle", version=3)
    store = BundleStore([path])
    old = store.bundles[0]
    assert store.refresh() == 0
    save_located(path, version=4)
    assert store.refresh() == 1
    assert store.bundles[0].bundle.version == 4
    assert store.bundles[0].content == path.read_bytes()
    assert store.get(old.sha256) is None
    assert store.refresh() == 0


def test_a_replacement_that_is_not_right_is_not_taken(tmp_path: Path) -> None:
    path = save_located(tmp_path / "a.bundle", version=3)
    store = BundleStore([path])
    old = store.bundles[0]
    right = path.read_bytes()

    def refused() -> bool:
        assert store.refresh() == 0
        assert store.bundles == (old,)
        return store.refused == 1

    weaken(path)
    assert refused()
    save_located(path, version=2)  # an older one
    assert refused()
    path.write_bytes(right[: len(right) // 2])  # half written
    assert refused()
    path.unlink()
    assert refused()
    path.write_bytes(right)
    assert store.refresh() == 0
    assert store.refused == 0


def test_the_key_is_demanded_of_replacements_too(tmp_path: Path) -> None:
    private, public = write_keys(tmp_path, "ours")
    path = save_located(tmp_path / "a.bundle", version=3)
    sign_bundle(path, private)
    store = BundleStore([path], trust=Trust(public_key=public))
    save_located(path, version=4)
    assert (store.refresh(), store.refused) == (0, 1)
    sign_bundle(path, private)
    assert (store.refresh(), store.refused) == (1, 0)


def test_a_file_replaced_while_it_is_served_is_old_or_new_wholly(tmp_path: Path) -> None:
    versions = []
    for number in range(8):
        path = save_located(tmp_path / f"{number}.bundle", version=number + 1)
        versions.append(path.read_bytes())
    path = tmp_path / "a.bundle"
    path.write_bytes(versions[0])
    seen = {1}
    end = time.monotonic() + PATIENCE_S

    def replace() -> None:
        for number, content in enumerate(versions[1:], 2):
            with path.open("r+b") as file:  # in place, in two halves: the worst way to do it
                file.truncate(0)
                file.write(content[: len(content) // 2])
                file.flush()
                time.sleep(0.02)
                file.write(content[len(content) // 2 :])
            while number not in seen and time.monotonic() < end:
                time.sleep(0.01)

    with live(BundleStore([path]), look_every_s=0.005) as service:
        writer = threading.Thread(target=replace)
        writer.start()
        while writer.is_alive():
            facts = service.client.get("/v1/bundles").json()["bundles"][0]
            answer = service.client.get(f"/v1/bundles/{facts['sha256']}")
            if answer.status_code == 404:  # replaced in between
                continue
            assert answer.content == versions[facts["version"] - 1]
            assert answer.headers["etag"] == f'"{facts["sha256"]}"'
            seen.add(facts["version"])
        assert seen == set(range(1, 9))


def test_a_refused_replacement_shows_in_health_and_metrics(tmp_path: Path) -> None:
    path = save_plain(tmp_path / "a.bundle")
    with live(BundleStore([path]), look_every_s=0.01) as service:
        path.write_bytes(b"something else")
        end = time.monotonic() + PATIENCE_S
        while service.client.get("/healthz").json()["refused"] != 1:
            assert time.monotonic() < end
        assert "geoblanket_bundles_refused 1.0" in service.client.get("/metrics").text


def test_it_tells_how_many_bundles_are_verified(tmp_path: Path) -> None:
    paths = [save_plain(tmp_path / f"{number}.bundle") for number in range(3)]
    told: list[tuple[float, float | None]] = []
    BundleStore(paths, progress=lambda _, done, total: told.append((done, total)))
    assert told == [(0, 3), (1, 3), (2, 3), (3, 3)]


def test_hostile_names_of_zones_are_only_text(tmp_path: Path) -> None:
    name = '</script><img src=x onerror=alert(1)> "é'
    save_bundle(tmp_path / "a.bundle", [located(tight(), zone=name)], version=1, places_e7=PLACES_E7)
    with live(BundleStore([tmp_path / "a.bundle"])) as service:
        facts = service.client.get("/v1/bundles")
        assert facts.headers["content-type"] == "application/json"
        zones = service.client.get(f"/v1/bundles/{facts.json()['bundles'][0]['sha256']}/zones").json()
        assert zones["features"][0]["properties"]["zone"] == name
