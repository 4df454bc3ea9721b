from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from geoblanket.errors import LedgerError, MismatchError, ParameterError
from geoblanket.mechanism import Bundle
from geoblanket.release import Budget, Device, Ledger
from geoblanket.release._ledger_file import _ROW_WITH_ANCHORS, FORMAT, LedgerRow
from geoblanket.release.budget import Answer
from geoblanket.release.device_key import SealingKey, seal
from geoblanket.release.fence import NO_FENCES

BUDGET = Budget(100.0, 600.0)
KEY = b"the key of a test"
START = 1_719_792_000_000


def made_ns(number: int) -> int:
    """As if each was made when its slot began."""
    return 30 * 10**9 * number


def answer(number: int, *, cost: int = 5_000_000, request: str | None = None) -> Answer:
    return Answer(
        START + 30_000 * number, cost, number % 24, 410_000_000 + number, -86_000_000, request, made_ns(number)
    )


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A ledger of two vehicles with some answers."""
    made = tmp_path / "a.ledger"
    Ledger.create(made, budget=BUDGET)
    ledger = Ledger.open(made)
    ledger.use_bundle("a domain", 7)
    for number in range(3):
        ledger.write([("", answer(number, request=f"r{number}")), ("b", answer(number, cost=1))])
    ledger.remember_verified("ab" * 32)
    ledger.add_fence(41.15, -8.61, radius_km=1)
    ledger.add_fence(41.3, -8.5, radius_km=1, vehicle="b")
    ledger.close()
    return made


def state(path: Path) -> object:
    ledger = Ledger.open(path)
    kept = {
        vehicle: (account.answers, account.reports, account.spent_micro, account.last_slot_ms)
        for vehicle in ledger.vehicles
        for account in [ledger.account(vehicle)]
    }
    fences = ledger.fences, ledger.fences_of("b")
    result = kept, fences, ledger.commits, ledger.spent_micro, ledger.budget, ledger.is_verified("ab" * 32)
    ledger.close()
    return result


def test_what_was_written_is_there_again(path: Path) -> None:
    ledger = Ledger.open(path)
    assert ledger.vehicles == ("", "b")
    assert ledger.account("").answers == tuple(answer(number, request=f"r{number}") for number in range(3))
    assert ledger.account("b").spent_micro == 3
    assert (ledger.spent_micro, ledger.commits) == (15_000_003, 6)
    assert ledger.budget == BUDGET
    assert ledger.is_verified("ab" * 32)
    assert not ledger.is_verified("cd" * 32)
    assert ledger.summary()["spent_in_window"] == 15.0
    ledger.close()


def test_answers_that_leave_the_window_are_forgotten_and_what_they_cost_is_not(path: Path) -> None:
    ledger = Ledger.open(path)
    for number in range(3, 60):
        ledger.write([("", answer(number))])
    ledger.close()
    ledger = Ledger.open(path)
    account = ledger.account("")
    assert [stored.slot_ms for stored in account.answers] == [answer(number).slot_ms for number in range(40, 60)]
    assert (account.reports, account.spent_micro) == (60, 300_000_000)
    assert ledger.account("b").reports == 3
    ledger.close()
    with sqlite3.connect(path) as connection:
        assert connection.execute("SELECT count(*) FROM answers").fetchone() == (23,)
    connection.close()


def test_every_transaction_waits_for_the_disk(path: Path) -> None:
    ledger = Ledger.open(path)
    for pragma, value in (
        ("synchronous", 2),
        ("journal_mode", "wal"),
        ("locking_mode", "exclusive"),
        ("secure_delete", 1),
    ):
        assert ledger._connection.execute(f"PRAGMA {pragma}").fetchone() == (value,)
    ledger.close()


def test_a_ledger_is_made_once(path: Path) -> None:
    with pytest.raises(LedgerError, match="already"):
        Ledger.create(path, budget=BUDGET)
    path.unlink()
    with pytest.raises(LedgerError, match="It keeps what was spent"):
        Ledger.create(path, budget=BUDGET)
    with pytest.raises(LedgerError, match="no such ledger"):
        Ledger.open(path)
    with pytest.raises(LedgerError, match="cannot be made"):
        Ledger.create(path.parent / "absent" / "a.ledger", budget=BUDGET)


def test_a_ledger_refuses_to_go_back_to_an_older_bundle(path: Path) -> None:
    """It remembers the version that it released with, not one that was only opened."""
    for version in (7, 8):
        ledger = Ledger.open(path)
        assert ledger.versions == {"a domain": 7}
        ledger.use_bundle("another domain", 1)
        ledger.use_bundle("a domain", version)
        with pytest.raises(MismatchError, match=r"version 6, .* version 7 .* publish this one again as version 8\.$"):
            ledger.use_bundle("a domain", 6)
        ledger.close()
    ledger = Ledger.open(path)
    ledger.use_bundle("a domain", 8)
    ledger.write([("", answer(3))])
    ledger.close()
    ledger = Ledger.open(path)
    with pytest.raises(MismatchError, match="version 8"):
        ledger.use_bundle("a domain", 7)
    ledger.close()


def flip(position: float) -> Callable[[Path], None]:
    def change(path: Path) -> None:
        content = bytearray(path.read_bytes())
        content[int(position * len(content))] ^= 16
        path.write_bytes(content)

    return change


def edit(sql: str) -> Callable[[Path], None]:
    def change(path: Path) -> None:
        connection = sqlite3.connect(path)
        with connection:
            connection.executescript(sql)
        connection.close()

    return change


@pytest.mark.parametrize(
    "change",
    [
        lambda path: path.write_bytes(b""),
        lambda path: path.write_bytes(b"no ledger at all"),
        lambda path: path.write_bytes(os.urandom(20_000)),
        lambda path: path.write_bytes(path.read_bytes()[:-4096]),
        lambda path: path.write_bytes(path.read_bytes()[:4096]),
        lambda path: path.write_bytes(bytes(len(path.read_bytes()))),
        lambda path: Path(f"{path}.count").unlink(),
        lambda path: Path(f"{path}.count").write_bytes(b"x"),
        lambda path: Path(f"{path}.count").write_bytes(bytes(1024)),
        edit("UPDATE answers SET cost_micro = 0"),
        edit("UPDATE answers SET place = 5 WHERE place = 1"),
        edit("UPDATE answers SET request = 'r7' WHERE request = 'r0'"),
        edit("DELETE FROM answers WHERE vehicle = '' AND place = 2"),
        edit("DELETE FROM answers"),
        edit("DELETE FROM accounts"),
        edit("DELETE FROM accounts WHERE vehicle = 'b'"),
        edit("UPDATE accounts SET spent_micro = 0"),
        edit("UPDATE accounts SET last_slot_ms = 0"),
        edit("UPDATE ledger SET epsilon = 1e9"),
        edit("UPDATE ledger SET window_s = 1"),
        edit("UPDATE ledger SET commits = 99"),
        edit("UPDATE ledger SET passed_ns = passed_ns + 1"),
        edit("UPDATE ledger SET latest_wall_ns = 0"),
        edit("UPDATE ledger SET wall_ns = 0"),
        edit("UPDATE ledger SET boot = 'x'"),
        edit("UPDATE ledger SET boot_ns = 0"),
        edit("UPDATE ledger SET replay = 1"),
        edit("UPDATE ledger SET sealed_by = 'none'"),
        edit("UPDATE ledger SET machine = x'00'"),
        edit("UPDATE answers SET made_ns = 0"),
        edit("DELETE FROM ledger"),
        edit("INSERT INTO ledger SELECT * FROM ledger"),
        edit("INSERT INTO verified VALUES ('aa', 'me', x'00')"),
        edit("DROP TABLE answers"),
        edit("PRAGMA user_version = 1"),
        edit("PRAGMA user_version = 2"),
        edit("PRAGMA user_version = 3"),
        edit("PRAGMA user_version = 5"),
        edit("UPDATE ledger SET versions = '{}'"),
        edit("UPDATE accounts SET drawn_slot_ms = NULL"),
        edit("UPDATE accounts SET drawn_slot_ms = drawn_slot_ms - 30000"),
        edit("UPDATE ledger SET fences = x''"),
        edit("DELETE FROM fences"),
        edit("DELETE FROM fences WHERE vehicle = 'b'"),
        edit("DELETE FROM fences; UPDATE ledger SET fences = x''"),
        edit("UPDATE fences SET vehicle = 'c' WHERE vehicle = 'b'"),
        edit("UPDATE fences SET fences = replace(fences, 'true', 'false')"),
        edit("UPDATE fences SET fences = replace(fences, 'home', 'work')"),
        edit("UPDATE fences SET fences = replace(fences, '\"radius_m\": 1302', '\"radius_m\": 1000')"),
        edit('UPDATE fences SET fences = \'{"format": 1, "fences": []}\''),
        edit("UPDATE fences SET fences = ''"),
        edit("INSERT INTO fences SELECT 'c', fences FROM fences WHERE vehicle = ''"),
        edit("UPDATE fences SET fences = (SELECT fences FROM fences WHERE vehicle = 'b')"),
        edit("DROP TABLE fences"),
        edit("CREATE TRIGGER t AFTER UPDATE OF fences ON ledger BEGIN DELETE FROM verified; END"),
        edit("CREATE INDEX i ON answers (cost_micro)"),
        edit("CREATE VIEW v AS SELECT * FROM fences"),
        edit("CREATE TABLE t (shift BLOB)"),
        edit("ALTER TABLE answers ADD COLUMN shift BLOB"),
    ],
)
def test_a_ledger_that_was_changed_is_refused(path: Path, change: Callable[[Path], None]) -> None:
    change(path)
    with pytest.raises(LedgerError) as caught:
        Ledger.open(path)
    assert str(path) in str(caught.value)


def forged(path: Path, number: int) -> None:
    """Reset a ledger as whoever can write to it, but does not know its key: empty, and sealed by the empty key."""
    connection = sqlite3.connect(path)
    connection.row_factory = sqlite3.Row
    row = dict(connection.execute("SELECT * FROM ledger").fetchone())
    nothing = {"sealed_by": "none", "machine": b"", "vehicles": 0, "spent_micro": 0, "fences": b""}
    row |= nothing | {"key_check": SealingKey("given", b"").check(row["id"])}
    with connection:
        for table in ("answers", "accounts", "fences", "verified"):
            connection.execute(f"DELETE FROM {table}")  # noqa: S608
        names = LedgerRow._fields if number == FORMAT else _ROW_WITH_ANCHORS[:-1]
        if number < FORMAT:
            connection.execute("DROP TABLE fences")
            connection.execute("CREATE TABLE anchors (shift BLOB)")
            for name in ("versions", "fences"):
                connection.execute(f"ALTER TABLE ledger DROP COLUMN {name}")
            for name in ("anchor_epsilon", "anchor_spent_micro"):
                connection.execute(f"ALTER TABLE ledger ADD COLUMN {name} REAL")
                row[name] = 1.0
        values = [row[name] for name in names]
        assignments = ", ".join(f"{name} = ?" for name in (*names, "seal"))
        connection.execute(f"UPDATE ledger SET {assignments}", [*values, seal(b"", *values)])  # noqa: S608
        connection.execute(f"PRAGMA user_version = {number}")
    connection.close()


@pytest.mark.parametrize("number", [3, 4])
@pytest.mark.parametrize("key", [None, KEY])
def test_a_ledger_that_was_reset_and_sealed_by_no_key_is_refused(
    path: Path, number: int, key: bytes | None, tmp_path: Path
) -> None:
    """Key and counter are untouched. It stays refused, also as a file of the format that knew ledgers without a key."""
    if key is not None:
        path = tmp_path / "b.ledger"
        Ledger.create(path, budget=BUDGET, device_key=key)
    forged(path, number)
    for _ in range(2):
        with pytest.raises(LedgerError, match="has no key" if number < 4 else "another device key"):
            Ledger.open(path, device_key=key)


def test_a_trigger_is_refused_before_it_fires(path: Path) -> None:
    edit("CREATE TABLE kept (what BLOB)")(path)
    edit("CREATE TRIGGER t AFTER UPDATE ON ledger BEGIN INSERT INTO kept SELECT fences FROM fences; END")(path)
    with pytest.raises(LedgerError, match="its tables were changed, or others were added"):
        Ledger.open(path)
    connection = sqlite3.connect(path)
    assert connection.execute("SELECT count(*) FROM kept").fetchone() == (0,)
    connection.close()


def test_a_bit_that_flips_is_noticed_or_does_not_matter(path: Path) -> None:
    """Every 61st byte: what is refused is refused by an error of ours, and all else says the same as before."""
    before, content = state(path), path.read_bytes()
    refused = 0
    for position in range(0, len(content), 61):
        path.write_bytes(content[:position] + bytes([content[position] ^ 1 << position % 8]) + content[position + 1 :])
        try:
            after = state(path)
        except LedgerError:
            refused += 1
        else:
            assert after == before
        Path(f"{path}-wal").unlink(missing_ok=True)
    assert refused > 10
    path.write_bytes(content)
    assert state(path) == before


def test_a_counter_survives_the_loss_of_its_last_write(path: Path) -> None:
    counter = Path(f"{path}.count")
    content = counter.read_bytes()
    for sector in (0, 512):
        counter.write_bytes(content[:sector] + bytes(100) + content[sector + 100 :])
        Ledger.open(path).close()
        counter.write_bytes(content)


def test_a_ledger_put_back_to_an_earlier_state_is_refused(path: Path, tmp_path: Path) -> None:
    backup = shutil.copy(path, tmp_path / "backup")
    ledger = Ledger.open(path)
    ledger.write([("", answer(9))])
    ledger.close()
    shutil.copy(backup, path)
    with pytest.raises(LedgerError, match="rolled back to an earlier state"):
        Ledger.open(path)


def test_fences_are_there_again_and_are_never_forgotten(path: Path) -> None:
    ledger = Ledger.open(path)
    home, work = ledger.fences, ledger.fences_of("b")
    assert (home.names, work.names, home == work) == (("home",), ("home",), False)
    assert ledger.fences_of("nobody") == NO_FENCES
    for fewer in (NO_FENCES, work):
        with pytest.raises(ParameterError, match="never forgotten"):
            ledger.set_fences(fewer)
    with pytest.raises(ParameterError, match="holds this place already"):
        ledger.add_fence(41.15, -8.61, radius_km=1, name="another")
    ledger.set_fences(home.without("home"))
    ledger.close()
    ledger = Ledger.open(path)
    assert (ledger.fences, ledger.fences_of("b")) == (home.without("home"), work)
    assert ledger.add_fence(41.15, -8.61, radius_km=2, name="new") == home[0]
    assert ledger.fences == home
    ledger.close()


def test_a_ledger_put_back_to_before_a_fence_is_refused(path: Path, tmp_path: Path) -> None:
    """Else its place could get a second fence."""
    backup = shutil.copy(path, tmp_path / "backup")
    ledger = Ledger.open(path)
    ledger.add_fence(41.5, -8.5, radius_km=1, name="work")
    ledger.close()
    shutil.copy(backup, path)
    with pytest.raises(LedgerError, match="rolled back to an earlier state"):
        Ledger.open(path)


def test_a_disk_that_fails_keeps_no_fence(path: Path) -> None:
    ledger = Ledger.open(path)
    before = ledger.fences
    ledger._connection = Failing(ledger._connection)  # type: ignore[assignment]
    with pytest.raises(LedgerError, match="disk I/O error"):
        ledger.add_fence(41.5, -8.5, radius_km=1, name="work")
    assert ledger.fences == before
    with pytest.raises(LedgerError, match="could not be written before"):
        ledger.set_fences(before)
    ledger.close()
    ledger = Ledger.open(path)
    assert ledger.fences == before
    ledger.close()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_process_keeps_no_fence(path: Path) -> None:
    ledger = Ledger.open(path)
    if (child := os.fork()) == 0:
        try:
            ledger.add_fence(41.5, -8.5, radius_km=1, name="work")
        except LedgerError as error:
            os._exit(7 if "opened by another process" in str(error) else 1)
        os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    assert ledger.fences.names == ("home",)
    ledger.close()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
@pytest.mark.usefixtures("path")
def test_a_kill_at_any_step_leaves_all_fences_or_those_before(tmp_path: Path) -> None:
    """Killed before each statement of adding a fence, and after the last one: the centre of the place is one."""
    seen = set()
    for number in range(1, 20):
        folder = tmp_path / str(number)
        folder.mkdir()
        for file in tmp_path.glob("a.ledger*"):
            shutil.copy(file, folder / file.name)
        if (child := os.fork()) == 0:
            add_fence_until(folder / "a.ledger", number)
        outcome = os.waitpid(child, 0)[1]
        ledger = Ledger.open(folder / "a.ledger")
        names = ledger.fences.names
        assert names in {("home",), ("home", "work")}
        seen.add(names)
        if names == ("home",):
            ledger.add_fence(41.5, -8.5, radius_km=1, name="work")
        ledger.close()
        if os.WIFEXITED(outcome):
            assert outcome == 0
            break
    else:
        pytest.fail("adding a fence takes more statements than were tried")
    assert len(seen) == 2


def add_fence_until(path: Path, number: int) -> None:
    """Add a fence in a process of its own, which is killed before the statement of this number."""
    try:
        ledger = Ledger.open(path)
        statements, connection = 0, ledger._connection

        class Counting(Failing):
            def execute(self, sql: str, *values: Any) -> Any:
                nonlocal statements
                statements += 1
                if statements == number:
                    os.kill(os.getpid(), signal.SIGKILL)
                return connection.execute(sql, *values)

        ledger._connection = Counting(connection)  # type: ignore[assignment]
        ledger.add_fence(41.5, -8.5, radius_km=1, name="work")
        os._exit(0)
    finally:
        os._exit(1)


def test_a_log_that_was_cut_off_is_refused(path: Path) -> None:
    """SQLite itself takes a damaged log for the end of it, and goes on with what was there before."""
    script = """
import os, sys
from geoblanket.release import Ledger
from geoblanket.release.budget import Answer
ledger = Ledger.open(sys.argv[1])
for number in range(10, 15):
    ledger.write([("", Answer(1719792000000 + 30000 * number, 1, 2, 3, 4, None, 30 * 10**9 * number))])
os._exit(0)
"""
    subprocess.run([sys.executable, "-c", script, path], check=True)
    log = Path(f"{path}-wal")
    content = log.read_bytes()
    log.write_bytes(content[: len(content) // 2])
    with pytest.raises(LedgerError, match="rolled back to an earlier state"):
        Ledger.open(path)


def test_a_copy_without_its_counter_or_with_another_is_refused(path: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    copy = Path(shutil.copy(path, other / "a.ledger"))
    with pytest.raises(LedgerError, match="counter of the ledger cannot be opened"):
        Ledger.open(copy)
    Ledger.create(other / "b.ledger", budget=BUDGET)
    with pytest.raises(LedgerError, match="not the counter of this ledger"):
        Ledger.open(copy, counter=other / "b.ledger.count")


def test_a_ledger_of_another_device_is_refused(tmp_path: Path) -> None:
    path, counter = tmp_path / "a.ledger", tmp_path / "elsewhere"
    Ledger.create(path, budget=BUDGET, device_key=KEY, counter=counter)
    with pytest.raises(LedgerError, match=r"by a key that was given when it was made\. Give it again"):
        Ledger.open(path, counter=counter)
    with pytest.raises(LedgerError, match=r"another device key than the one here\. A ledger stays on its device"):
        Ledger.open(path, device_key=KEY[::-1], counter=counter)
    ledger = Ledger.open(path, device_key=KEY, counter=counter)
    ledger.write([("", answer(0))])
    ledger.close()
    assert not Path(f"{path}.count").exists()
    edit("UPDATE answers SET cost_micro = 0")(path)
    with pytest.raises(LedgerError, match="changed or damaged"):
        Ledger.open(path, device_key=KEY, counter=counter)


def test_two_at_a_time_are_refused(path: Path) -> None:
    ledger = Ledger.open(path)
    with pytest.raises(LedgerError, match="in use"):
        Ledger.open(path)
    script = "import sys; from geoblanket.release import Ledger; Ledger.open(sys.argv[1])"
    done = subprocess.run([sys.executable, "-c", script, path], capture_output=True, text=True, check=False)
    assert "is in use. Only one process" in done.stderr
    ledger.write([("", answer(9))])
    ledger.close()
    Ledger.open(path).close()


class Failing:
    """A connection whose transactions fail at the end, as when the disk does."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def execute(self, sql: str, *values: Any) -> Any:
        if sql == "COMMIT":
            raise sqlite3.OperationalError("disk I/O error")
        return self._connection.execute(sql, *values)

    def close(self) -> None:
        self._connection.close()


def test_a_disk_that_fails_releases_nothing_until_the_ledger_is_opened_again(spread: Bundle, tmp_path: Path) -> None:
    path = tmp_path / "a.ledger"
    Ledger.create(path, budget=BUDGET)
    device = Device.open(spread, ledger=path, replay=True)
    device.report(41.0, -8.6, START / 1000)
    device._ledger._connection = Failing(device._ledger._connection)  # type: ignore[attr-defined]
    with pytest.raises(LedgerError, match="disk I/O error"):
        device.report(41.0, -8.6, START / 1000 + 30)
    with pytest.raises(LedgerError, match="could not be written before"):
        device.report(41.0, -8.6, START / 1000 + 60)
    device.close()
    with Device.open(spread, ledger=path, replay=True) as device:
        assert not device.report(41.0, -8.6, START / 1000 + 30).stored
    ledger = Ledger.open(path)
    assert ledger.account("").reports == 2
    ledger.close()


FULL = """
import resource, signal, sys
from geoblanket.errors import LedgerError
from geoblanket.release import Device
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
device = Device.open(sys.argv[1], ledger=sys.argv[2], replay=True)
resource.setrlimit(resource.RLIMIT_FSIZE, (60_000, 60_000))
for step in range(1_000):
    try:
        one = device.report(41.0, -8.6, 1719792000 + 30 * step)
    except LedgerError:
        break
    print(one.slot, one.place, flush=True)
refused = 0
for step in range(2_000, 2_010):
    try:
        device.report(41.0, -8.6, 1719792000 + 30 * step)
    except LedgerError:
        refused += 1
assert refused == 10
print("refused")
"""


@pytest.mark.skipif(not hasattr(signal, "SIGXFSZ"), reason="needs limits of file sizes")
def test_a_full_disk_releases_nothing(spread_path: Path, tmp_path: Path) -> None:
    path = tmp_path / "a.ledger"
    Ledger.create(path, budget=Budget(1e6, 1e6))
    command = [sys.executable, "-c", FULL, str(spread_path), str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    *lines, last = done.stdout.splitlines()
    assert last == "refused"
    released = {int(line.split()[0]) * 30_000: int(line.split()[1]) for line in lines}
    ledger = Ledger.open(path)
    stored = {answer.slot_ms: answer.place for answer in ledger.account("").answers}
    ledger.close()
    assert len(released) > 2
    assert released.items() <= stored.items()


def test_a_file_that_cannot_be_written_is_refused(path: Path) -> None:
    Path(f"{path}-wal").mkdir()  # SQLite needs to make a file of this name
    with pytest.raises(LedgerError, match="cannot be used as a ledger"):
        Ledger.open(path)


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="for root no file is read-only")
def test_a_read_only_file_is_refused(path: Path) -> None:
    path.chmod(0o400)
    with pytest.raises(LedgerError):
        Ledger.open(path)


def test_ledgers_are_for_their_owner_only(path: Path) -> None:
    assert path.stat().st_mode & 0o077 == 0
    assert Path(f"{path}.count").stat().st_mode & 0o077 == 0


def test_a_closed_ledger_is_not_written(path: Path) -> None:
    ledger = Ledger.open(path)
    ledger.close()
    ledger.close()
    with pytest.raises(LedgerError, match="is closed"):
        ledger.write([("", answer(9))])
