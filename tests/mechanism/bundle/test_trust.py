from __future__ import annotations

import builtins
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)

from geoblanket.errors import GuaranteeViolation, InputError, MissingExtraError
from geoblanket.mechanism.bundle.storage import load_bundle
from geoblanket.mechanism.bundle.trust import Trust, sign_bundle, signature_path
from tests.mechanism.bundles import forge, save_plain, tight


def write_keys(folder: Path, name: str, key: Any = None) -> tuple[Path, Path]:
    key = key or Ed25519PrivateKey.generate()
    private, public = folder / f"{name}.key", folder / f"{name}.pub"
    private.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    public.write_bytes(key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
    return private, public


@pytest.fixture
def signed(tmp_path: Path) -> tuple[Path, Path]:
    """A signed bundle and the public key."""
    path = save_plain(tmp_path / "a.bundle")
    private, public = write_keys(tmp_path, "ours")
    assert sign_bundle(path, private) == tmp_path / "a.bundle.sig"
    return path, public


def test_a_right_signature_is_found_right(signed: tuple[Path, Path]) -> None:
    path, public = signed
    assert load_bundle(path, trust=Trust(public_key=public)).signed
    assert not load_bundle(path).signed  # nobody asked
    assert signature_path(path).stat().st_size == 64


def test_another_key_another_file_and_a_changed_signature_are_refused(signed: tuple[Path, Path]) -> None:
    path, public = signed
    right = signature_path(path).read_bytes()
    _, unknown = write_keys(path.parent, "unknown")
    with pytest.raises(InputError, match="not one of this file by this key"):
        load_bundle(path, trust=Trust(public_key=unknown))
    other = save_plain(path.parent / "b.bundle", tight(3.0))
    signature_path(other).write_bytes(right)
    with pytest.raises(InputError, match="not one of this file by this key"):
        load_bundle(other, trust=Trust(public_key=public))
    for wrong in (right[:-1], right + b"\0", bytes([right[0] ^ 1]) + right[1:], b""):
        signature_path(path).write_bytes(wrong)
        with pytest.raises(InputError, match=r"signature|64 bytes"):
            load_bundle(path, trust=Trust(public_key=public))


def test_without_a_signature_it_is_refused_unless_allowed_and_verified(signed: tuple[Path, Path]) -> None:
    path, public = signed
    signature_path(path).unlink()
    with pytest.raises(InputError, match="has no signature"):
        load_bundle(path, trust=Trust(public_key=public))
    assert not load_bundle(path, trust=Trust(public_key=public, allow_unsigned=True)).signed
    forge(path, lambda _, arrays: arrays["weights"].put([0, 1], [0, 2**61]))
    with pytest.raises(GuaranteeViolation):
        load_bundle(path, trust=Trust(public_key=public, allow_unsigned=True))


def test_a_signature_does_not_make_a_broken_promise_good(tmp_path: Path) -> None:
    path = save_plain(tmp_path / "a.bundle")
    forge(path, lambda _, arrays: arrays["weights"].put([0, 1], [0, 2**61]))
    private, public = write_keys(tmp_path, "ours")
    sign_bundle(path, private)
    with pytest.raises(GuaranteeViolation):
        load_bundle(path, trust=Trust(public_key=public))


def test_the_signature_is_checked_before_the_header_is_read(signed: tuple[Path, Path]) -> None:
    path, public = signed
    data = path.read_bytes()
    path.write_bytes(data[:48] + b"[" * (len(data) - 48))
    with pytest.raises(InputError, match="signature"):
        load_bundle(path, trust=Trust(public_key=public))


def test_files_that_are_not_keys_are_refused_even_if_unsigned_is_allowed(signed: tuple[Path, Path]) -> None:
    path, public = signed
    private, other_kind = write_keys(path.parent, "x25519", X25519PrivateKey.generate())
    for wrong in (other_kind, private, path, path.parent / "none", path.parent):
        with pytest.raises(InputError):
            load_bundle(path, trust=Trust(public_key=wrong, allow_unsigned=True))
    locked = path.parent / "locked.key"
    locked.write_bytes(
        Ed25519PrivateKey.generate().private_bytes(
            Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"secret")
        )
    )
    for wrong in (private, public, locked):
        with pytest.raises(InputError, match="not an Ed25519 private key"):
            sign_bundle(path, wrong)
    with pytest.raises(InputError, match="no such file"):
        sign_bundle(path.parent / "none", path.parent / "ours.key")


def test_without_the_package_the_extra_is_named(signed: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    path, public = signed
    real = builtins.__import__

    def without(name: str, *args: Any, **options: Any) -> Any:
        if name.startswith("cryptography"):
            raise ImportError(name)
        return real(name, *args, **options)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(MissingExtraError, match="signing"):
        load_bundle(path, trust=Trust(public_key=public))
    with pytest.raises(MissingExtraError, match="signing"):
        sign_bundle(path, public)
    load_bundle(path)
