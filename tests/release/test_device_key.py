from __future__ import annotations

import shutil
import stat
import threading
from pathlib import Path

import pytest

from geoblanket.errors import InputError, LedgerError, ParameterError
from geoblanket.release import Budget, Ledger, device_key
from geoblanket.release.device_key import KEY_FILE_VARIABLE, SealingKey

BUDGET = Budget(100.0, 600.0)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home of its own, and a machine with an id, as they are where nothing is set."""
    monkeypatch.delenv(KEY_FILE_VARIABLE)
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    be_machine(monkeypatch, tmp_path, "a" * 32)
    return tmp_path / "home"


def be_machine(monkeypatch: pytest.MonkeyPatch, folder: Path, identity: str) -> None:
    (folder / "machine-id").write_text(f"{identity}\n")
    monkeypatch.setattr(device_key, "_MACHINE_ID", folder / "machine-id")


def made(folder: Path) -> Path:
    folder.mkdir(exist_ok=True)
    Ledger.create(folder / "a.ledger", budget=BUDGET)
    return folder / "a.ledger"


def test_the_key_is_made_once_in_a_place_of_its_own_for_its_owner_only(home: Path, tmp_path: Path) -> None:
    path = made(tmp_path / "ledgers")
    key = home / ".local/state/geoblanket/device.key"
    content = key.read_bytes()
    assert len(content) == 32
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    assert stat.S_IMODE(key.parent.stat().st_mode) == 0o700
    assert [file.name for file in key.parent.iterdir()] == ["device.key"]
    Ledger.create(tmp_path / "b.ledger", budget=BUDGET)
    assert key.read_bytes() == content
    ledger = Ledger.open(path)
    assert ledger.sealed_by == "device"
    ledger.close()
    for file in path.parent.iterdir():
        assert content not in file.read_bytes()


def test_the_folder_of_states_may_be_elsewhere(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    made(tmp_path / "ledgers")
    assert (tmp_path / "state/geoblanket/device.key").exists()
    assert not home.exists()


def test_a_copy_with_its_counter_is_refused_on_another_machine(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = made(tmp_path / "ledgers")
    shutil.copytree(path.parent, tmp_path / "copy")
    copy = tmp_path / "copy" / path.name
    monkeypatch.setenv("HOME", str(tmp_path / "other home"))
    with pytest.raises(LedgerError, match="sealed by the key of the device that it was made on, and there is none"):
        Ledger.open(copy)
    made(tmp_path / "ledgers of the other")
    with pytest.raises(LedgerError, match=r"another device key than the one here.*`geoblanket ledger create`"):
        Ledger.open(copy)
    monkeypatch.setenv("HOME", str(home))
    Ledger.open(path).close()


def test_a_copy_with_its_key_is_refused_by_the_machines_id(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = made(tmp_path / "ledgers")
    for other in ("b" * 32, ""):
        be_machine(monkeypatch, tmp_path, other)
        with pytest.raises(LedgerError, match="made on another machine, or this one got another id"):
            Ledger.open(path)
    be_machine(monkeypatch, tmp_path, "a" * 32)
    Ledger.open(path).close()
    assert b"a" * 32 not in path.read_bytes()
    assert home.exists()


@pytest.mark.parametrize("named", [True, False])
def test_containers_keep_their_ledgers(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, named: bool
) -> None:
    """By a key on a volume, whatever id they get; and where they have no id, by the key alone."""
    if named:
        monkeypatch.setenv(KEY_FILE_VARIABLE, str(tmp_path / "volume" / "key"))
    else:
        be_machine(monkeypatch, tmp_path, "uninitialized")
    path = made(tmp_path / "ledgers")
    be_machine(monkeypatch, tmp_path, "b" * 32)
    Ledger.open(path).close()
    assert home.exists() != named


def test_a_key_that_is_given_is_all_that_counts(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.ledger"
    Ledger.create(path, budget=BUDGET, device_key=bytes(range(16)))
    assert not home.exists()
    be_machine(monkeypatch, tmp_path, "b" * 32)
    ledger = Ledger.open(path, device_key=bytes(range(16)))
    assert ledger.sealed_by == "given"
    ledger.close()


@pytest.mark.parametrize("key", [b"", b"x", bytes(15)])
def test_keys_that_are_no_keys_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, key: bytes) -> None:
    path = made(tmp_path)
    for use in (lambda: Ledger.open(path, device_key=key), lambda: SealingKey.for_new_ledger(key)):
        with pytest.raises(ParameterError, match="16 bytes or more"):
            use()
    file = tmp_path / "key"
    file.write_bytes(key)
    monkeypatch.setenv(KEY_FILE_VARIABLE, str(file))
    for use in (lambda: Ledger.open(path), lambda: SealingKey.for_new_ledger(None)):
        with pytest.raises(InputError, match=f"is no device key: it has {len(key)} bytes"):
            use()


def test_a_key_that_cannot_be_read_or_made_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = made(tmp_path)
    monkeypatch.setenv(KEY_FILE_VARIABLE, str(tmp_path))
    with pytest.raises(InputError, match="cannot be read"):
        Ledger.open(path)
    (tmp_path / "file").touch()
    monkeypatch.setenv(KEY_FILE_VARIABLE, str(tmp_path / "file" / "key"))
    with pytest.raises(LedgerError, match="cannot be made"):
        Ledger.create(tmp_path / "b.ledger", budget=BUDGET)


def test_many_at_once_make_one_key(home: Path) -> None:
    keys: set[bytes] = set()
    threads = [threading.Thread(target=lambda: keys.add(SealingKey.for_new_ledger(None).key)) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(keys) == 1
    assert [file.name for file in (home / ".local/state/geoblanket").iterdir()] == ["device.key"]
