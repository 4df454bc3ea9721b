"""Python reproduces the committed vectors. With GEOBLANKET_WRITE_VECTORS=1 it writes them anew instead."""

from __future__ import annotations

import base64
import json
import os
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from geoblanket.mechanism.bundle.trust import sign_bundle
from tests.conformance import made_bundles
from tests.conformance.fence_vectors import fence_vectors, is_refused
from tests.conformance.tracking_vectors import CASES, made_model, tracking_vector
from tests.conformance.vectors import FOLDER, encoded, refusal_of, vector_of
from tests.predictable import MARKER, MARKER_VALUE

WRITES = os.environ.get("GEOBLANKET_WRITE_VECTORS") == "1"


@pytest.fixture(autouse=True)
def _predictable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(MARKER, MARKER_VALUE)


def write(name: str, vectors: list[Any]) -> None:
    FOLDER.mkdir(exist_ok=True)
    lines = ",\n".join(json.dumps(vector, ensure_ascii=False) for vector in vectors)
    (FOLDER / name).write_text(f"[\n{lines}\n]\n", encoding="utf-8")


@cache
def committed(name: str) -> Any:
    return json.loads((FOLDER / name).read_text(encoding="utf-8"))


def signed_vector(bundle: str, folder: Path) -> dict[str, str]:
    """A bundle that was signed by a key which everyone knows."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

    key = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
    (folder / "key").write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    public = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()
    (folder / "signed.bundle").write_bytes(base64.b64decode(bundle))
    signature = sign_bundle(folder / "signed.bundle", folder / "key").read_bytes()
    return {"bundle": bundle, "public_key": public, "signature": encoded(signature)}


def as_json(value: Any) -> Any:
    return json.loads(json.dumps(value))


@pytest.mark.skipif(not WRITES, reason="the committed vectors stay")
def test_write(tmp_path: Path) -> None:
    bundles = []
    for name in made_bundles.SPECS:
        made_bundles.save(name, tmp_path / "a.bundle")
        bundles.append(vector_of(name, encoded((tmp_path / "a.bundle").read_bytes())))
    write("bundles.json", bundles)
    write("refusals.json", [refusal_of(name, encoded(data)) for name, data in made_bundles.refused(tmp_path)])
    by_name = {vector["name"]: vector["bundle"] for vector in bundles}
    tracks = [
        tracking_vector(name, by_name[bundle], made_model(name, by_name[bundle], tmp_path / "a.model"), tmp_path)
        for name, bundle in CASES.items()
    ]
    write("tracking.json", tracks)
    (FOLDER / "fences.json").write_text(json.dumps(fence_vectors(), ensure_ascii=False) + "\n", encoding="utf-8")
    (FOLDER / "signature.json").write_text(json.dumps(signed_vector(bundles[0]["bundle"], tmp_path)) + "\n")
    committed.cache_clear()


@pytest.mark.parametrize("name", made_bundles.SPECS)
def test_bundle(name: str) -> None:
    (expected,) = [vector for vector in committed("bundles.json") if vector["name"] == name]
    assert as_json(vector_of(name, expected["bundle"])) == expected


def test_refusals() -> None:
    expected = committed("refusals.json")
    assert len(expected) > 150
    assert [refusal_of(refusal["name"], refusal["bundle"]) for refusal in expected] == expected


def test_fences() -> None:
    expected = committed("fences.json")
    assert as_json(fence_vectors()) == expected
    assert len(expected["refused"]) > 50
    assert [text for text in expected["refused"] if not is_refused(text)] == []


def test_signature(tmp_path: Path) -> None:
    expected = committed("signature.json")
    assert signed_vector(expected["bundle"], tmp_path) == expected


@pytest.mark.parametrize("name", CASES)
def test_tracking(name: str, tmp_path: Path) -> None:
    (expected,) = [vector for vector in committed("tracking.json") if vector["name"] == name]
    found = tracking_vector(name, expected["bundle"], expected["model"], tmp_path)
    for report, wanted in zip(found["reports"], expected["reports"], strict=True):
        assert all(report[part] == wanted[part] for part in ("slot", "cell", "outcome"))
        for part in ("estimate", "ahead"):
            # Sums of single precision differ from machine to machine: by a metre, or by a ring of 20 m.
            assert report[part][:2] == pytest.approx(wanted[part][:2], abs=1e-5)
            assert report[part][2] == pytest.approx(wanted[part][2], abs=21)
