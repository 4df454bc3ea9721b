"""Hostile bundles: each is refused with a typed error, quickly, without memory for what it claims."""

from __future__ import annotations

import io
import json
import pickle
import time
import tracemalloc
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from geoblanket.errors import GuaranteeViolation, InputError, MismatchError, ParameterError
from geoblanket.mechanism.bundle.storage import load_bundle, save_bundle
from geoblanket.mechanism.bundle.trust import Trust
from geoblanket.mechanism.exponential_bounds import bounds_for
from geoblanket.mechanism.mechanism import Mechanism
from tests.mechanism.bundles import (
    MAGIC,
    PLACES_E7,
    Arrays,
    Fields,
    forge,
    load_zones,
    located,
    rewrite_header,
    save_located,
    save_plain,
    tight,
)

ONE = 2**62


@pytest.fixture
def plain(tmp_path: Path) -> Path:
    return save_plain(tmp_path / "plain.bundle")


@pytest.fixture
def on_map(tmp_path: Path) -> Path:
    return save_located(tmp_path / "map.bundle")


def other_formats() -> dict[str, bytes]:
    npz, zipped = io.BytesIO(), io.BytesIO()
    np.savez(npz, weights=np.eye(3))
    with zipfile.ZipFile(zipped, "w") as archive:
        archive.writestr("weights", "1")
    return {"pickle": pickle.dumps(list(range(99))), "npz": npz.getvalue(), "zip": zipped.getvalue(), "empty": b""}


@pytest.mark.parametrize("name", ["pickle", "npz", "zip", "empty"])
def test_other_formats_under_our_name(tmp_path: Path, name: str) -> None:
    path = tmp_path / "a.bundle"
    path.write_bytes(other_formats()[name])
    with pytest.raises(InputError, match=r"other bytes|a ZIP archive|it is empty"):
        load_bundle(path)


def test_no_file_a_folder_and_a_file_that_may_not_be_read(tmp_path: Path) -> None:
    for path, problem in ((tmp_path / "none", "no such file"), (tmp_path, "is a folder")):
        with pytest.raises(InputError, match=problem):
            load_bundle(path)


@pytest.mark.parametrize("size", [2**63, 2**64 - 1, 2**30, 10**4, 0])
def test_a_header_longer_than_the_file(plain: Path, size: int) -> None:
    data = plain.read_bytes()
    plain.write_bytes(data[:8] + size.to_bytes(8, "little") + data[16:])
    with pytest.raises(InputError, match="header"):
        load_bundle(plain)


@pytest.mark.parametrize(
    "shape",
    ["[1099511627775, 1099511627775]", "[18446744073709551616]", "[-5]", "[26]", "[5, 5, 1, 1, 1]", "25", "[25.0]"],
)
def test_a_shape_that_overflows_or_does_not_fit_the_file(plain: Path, shape: str) -> None:
    rewrite_header(plain, lambda text: text.replace('"shape": [25]', f'"shape": {shape}'))
    with pytest.raises(InputError, match=r"bytes and has|cannot be read"):
        load_bundle(plain)


@pytest.mark.parametrize("change", [lambda data: data[:-1], lambda data: data + b"\0", lambda data: data[:60]])
def test_one_byte_less_or_more(plain: Path, change: Callable[[bytes], bytes]) -> None:
    plain.write_bytes(change(plain.read_bytes()))
    with pytest.raises(InputError, match=r"bytes and has|header"):
        load_bundle(plain)


def test_every_flipped_bit_is_noticed(plain: Path) -> None:
    data = plain.read_bytes()
    with plain.open("r+b", buffering=0) as file:
        for position, byte in enumerate(data):
            for bit in range(8):
                file.seek(position)
                file.write(bytes([byte ^ 1 << bit]))
                with pytest.raises(InputError):
                    load_bundle(plain)
            file.seek(position)
            file.write(bytes([byte]))
    load_bundle(plain)


def test_a_file_above_the_limit_is_not_read(plain: Path) -> None:
    with pytest.raises(InputError, match="more than the 1000 allowed"):
        load_bundle(plain, largest_bytes=1000)


HEADERS: dict[str, Callable[[str], str]] = {
    "duplicate key": lambda text: text.replace('"version": 3', '"version": 3, "version": 3'),
    "unknown key": lambda text: text.replace('"version": 3', '"version": 3, "zz": 1'),
    "missing key": lambda text: text.replace(', "version": 3', ""),
    "unknown key of a mechanism": lambda text: text.replace('"zone": "centre"', '"zone": "centre", "zz": 1'),
    "unknown key of a part": lambda text: text.replace('"shape": [25]', '"shape": [25], "zz": 1'),
    "unknown key outside": lambda text: text[:-1] + ', "zz": 1}',
    "NaN": lambda text: text.replace("2000000", "NaN"),
    "infinity": lambda text: text.replace("2000000", "Infinity"),
    "1e400": lambda text: text.replace("2000000", "1e400"),
    "float": lambda text: text.replace("2000000", "2000000.0"),
    "string": lambda text: text.replace("2000000", '"2000000"'),
    "bool": lambda text: text.replace("2000000", "true"),
    "null": lambda text: text.replace("2000000", "null"),
    "many digits": lambda text: text.replace("2000000", "9" * 5000),
    "spaces": lambda text: text.replace('"version": 3', '"version":  3'),
    "plus sign": lambda text: text.replace("2000000", "+2000000"),
    "deep": lambda text: text.replace('"version": 3', '"version": ' + "[" * 100_000),
    "not JSON": lambda text: text[:-1],
    "a list": lambda text: f"[{text}]",
    "not ASCII": lambda text: text.replace("centre", "zentrü"),
    "lone surrogate": lambda text: text.replace("centre", "\\ud800"),
    "control characters": lambda text: text.replace("centre", "\\u001b[2J"),
    "empty zone": lambda text: text.replace("centre", ""),
    "endless zone": lambda text: text.replace("centre", "c" * 201),
    "no mechanisms": lambda text: (
        text[: text.index('"mechanisms": [')] + '"mechanisms": [], "snapping_radius_mm": 0, "version": 3}}'
    ),
    "mechanisms as a number": lambda text: text.replace('"mechanisms": [{', '"mechanisms": {"a": {').replace(
        "}]", "}}"
    ),
    "other part": lambda text: text.replace('"output_places"', '"output_placet"'),
    "other type": lambda text: text.replace("<i8", "<f8"),
    "forbidden type": lambda text: text.replace("<i8", "|O8"),
    "negative version": lambda text: text.replace('"version": 3', '"version": -3'),
    "short domain": lambda text: text.replace("ab" * 32, "ab" * 31),
    "domain in capitals": lambda text: text.replace("ab" * 32, "AB" * 32),
    "history as a number": lambda text: text.replace('"history_weights_micro": []', '"history_weights_micro": 0'),
    "history of a float": lambda text: text.replace('"history_weights_micro": []', '"history_weights_micro": [0.5]'),
    "endless history": lambda text: text.replace('"history_weights_micro": []', f'"history_weights_micro": {[0] * 65}'),
    "more rows": lambda text: text.replace('"rows": 5', '"rows": 6'),
    "no rows": lambda text: text.replace('"rows": 5', '"rows": 0'),
    "more columns": lambda text: text.replace('"columns": 5', '"columns": 7'),
    "more columns than outputs": lambda text: text.replace('"outputs": 7', '"outputs": 4'),
    "histories without coordinates": lambda text: text.replace('"histories": 0', '"histories": 5'),
    "negative epsilon": lambda text: text.replace("2000000", "-2000000"),
    "huge epsilon": lambda text: text.replace("2000000", str(10**18)),
    "huge eta": lambda text: text.replace(str(2**63 - 2), str(2**63 - 1)),
}


@pytest.mark.parametrize("name", HEADERS)
def test_a_header_that_is_not_as_we_write_it(plain: Path, name: str) -> None:
    rewrite_header(plain, HEADERS[name])
    with pytest.raises(InputError, match=r"header cannot be read|that can be used: "):
        load_bundle(plain)


def test_a_million_rows_in_a_small_file_cost_neither_time_nor_memory(plain: Path) -> None:
    rewrite_header(plain, lambda text: text.replace('"rows": 5', '"rows": 1000000'))
    assert plain.stat().st_size < 2000
    seconds = []
    tracemalloc.start()
    for _ in range(10):  # on a busy machine some take longer, whatever they do
        start = time.perf_counter()
        with pytest.raises(InputError, match="'rows' must be a whole number from 1 to 5000"):
            load_bundle(plain)
        seconds.append(time.perf_counter() - start)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert min(seconds) < 0.1
    assert peak < 500_000


def test_parts_of_other_sizes_are_refused_before_they_are_copied(plain: Path) -> None:
    rewrite_header(
        plain, lambda text: text.replace('"rows": 5', '"rows": 5000').replace('"columns": 5', '"columns": 7')
    )
    tracemalloc.start()
    with pytest.raises(InputError, match="does not follow from its header"):
        load_bundle(plain)
    assert tracemalloc.get_traced_memory()[1] < 500_000
    tracemalloc.stop()


def test_epsilon_of_zero_allows_only_equal_rows(tmp_path: Path, plain: Path) -> None:
    constant = Mechanism.verified(
        np.tile([ONE // 2, ONE // 2], (5, 1)), distance_mm=tight().distance_mm, epsilon_micro=0, eta_mm=2**63 - 2
    )
    loaded = load_zones(save_plain(tmp_path / "a.bundle", constant))
    assert loaded.get("centre", "day").mechanism.epsilon == 0
    rewrite_header(plain, lambda text: text.replace("2000000", "0"))
    with pytest.raises(GuaranteeViolation, match="must be equal"):
        load_bundle(plain)


def weights(change: Callable[[Any], object]) -> Callable[[Fields, Arrays], None]:
    """Change the weights as a table."""

    def apply(_: Fields, arrays: Arrays) -> None:
        change(arrays["weights"].reshape(5, 5))

    return apply


def swap(table: Any, first: Any, second: Any) -> None:
    table[first], table[second] = table[second].copy(), table[first].copy()


def move_all(table: Any) -> None:
    """Take output 3 away from row 2 only."""
    table[2, 0] += table[2, 3]
    table[2, 3] = 0


def overflow(table: Any) -> None:
    """Sum to 2^62 modulo 2^64 only."""
    table[1] = [2**62, 2**62, 2**62, 2**62, 2**62]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda table: np.add.at(table, (1, 2), 1), r"Row 1 sums to 2\^62 \+1"),
        (lambda table: np.add.at(table, (1, 2), -1), r"Row 1 sums to 2\^62 -1"),
        (lambda table: table[3].fill(0), "Row 3 sums to"),
        (lambda table: np.copyto(table[0], [ONE + 1, -1, 0, 0, 0]), "row 0, output 1 is negative"),
        (lambda table: np.copyto(table[0], [ONE + 1, 0, 0, 0, 0]), "row 0, output 0 is above 1"),
        (overflow, "Row 1 sums to"),
        (lambda table: swap(table, 0, 4), "times as probable"),
        (lambda table: swap(table, (2, 0), (2, 4)), "times as probable"),
        (move_all, "inf times as probable"),
    ],
)
def test_changed_weights_break_the_promise(plain: Path, change: Callable[[Any], object], words: str) -> None:
    forge(plain, weights(change))
    with pytest.raises(GuaranteeViolation, match=words) as caught:
        load_bundle(plain)
    assert "zone 'centre', regime 'day'" in str(caught.value)


def test_one_unit_on_a_tight_constraint_is_named(tmp_path: Path) -> None:
    distance = np.array([[0, 700_000], [700_000, 0]])
    small = 2**58 + 12345
    tightest = bounds_for(2_000_000).lower(700_000) * small >> 96
    table = np.array([[0, tightest, 0, ONE - tightest], [0, small, 0, ONE - small]])
    mechanism = Mechanism.verified(table, distance_mm=distance, epsilon_micro=2_000_000, eta_mm=10**9)
    path = save_plain(tmp_path / "a.bundle", mechanism)
    load_bundle(path)
    forge(path, lambda _, arrays: np.add.at(arrays["weights"], [0, 1], [1, -1]))
    with pytest.raises(GuaranteeViolation) as caught:
        load_bundle(path)
    # Output 1 is the file's column 0.
    assert (caught.value.row, caught.value.other_row, caught.value.output, caught.value.excess) == (0, 1, 1, 1)


def inflate(_: Fields, arrays: Arrays) -> None:
    """Distances five times too large, with weights that verify under them."""
    pairs = len(arrays["distances_mm"]) // 2
    arrays["distances_mm"][:pairs] *= 5
    mechanism = tight(2.0, scale=5)
    arrays["weights"][:25] = mechanism.weights[:, mechanism.weights.any(axis=0)].ravel()


def test_inflated_distances_are_seen_on_the_map(on_map: Path, plain: Path) -> None:
    forge(on_map, inflate)
    with pytest.raises(InputError, match="rows 0 and 1 are said to be further apart than some two histories"):
        load_bundle(on_map)
    with pytest.raises(ParameterError, match="further apart than some two histories"):
        save_bundle(on_map, [located(tight(scale=5))], version=1, places_e7=PLACES_E7)
    # Without coordinates nobody can tell, and that is said.
    save_plain(plain, tight(scale=5))
    assert "taken as they are stated" in str(load_bundle(plain).promise)


def test_smaller_distances_on_the_map_are_safe(tmp_path: Path) -> None:
    save_bundle(tmp_path / "a.bundle", [located(tight(4.0, scale=0.5))], version=1, places_e7=PLACES_E7)
    load_bundle(tmp_path / "a.bundle")


@pytest.mark.parametrize(
    ("part", "index", "value", "words"),
    [
        ("histories", 0, 5, "places of its histories"),
        ("histories", 0, -2, "places of its histories"),
        ("output_places", 0, 5, "places of its outputs"),
        ("output_places", 0, -1, "places of its outputs"),
        ("places_e7", 0, 900_000_001, "latitudes and longitudes"),
        ("places_e7", 1, -1_800_000_001, "latitudes and longitudes"),
        ("places_e7", 1, -(2**31), "latitudes and longitudes"),
        ("history_rows", 0, 1, "rows of its histories"),
        ("history_rows", 4, 5, "rows of its histories"),
        ("history_rows", 4, -1, "rows of its histories"),
        ("outputs", 1, 0, "numbers of its outputs"),
        ("outputs", 0, -1, "numbers of its outputs"),
        ("outputs", 4, 7, "numbers of its outputs"),
    ],
)
def test_places_rows_and_outputs_that_do_not_exist(on_map: Path, part: str, index: int, value: int, words: str) -> None:
    forge(on_map, lambda _, arrays: arrays[part].put(index, value), new_domain=True)
    with pytest.raises(InputError, match=words):
        load_bundle(on_map)


def test_a_row_must_say_where_it_is(on_map: Path) -> None:
    """An attacker who leaves out where a row is must not win larger distances."""
    forge(on_map, lambda _, arrays: arrays["histories"].put(2, -1), new_domain=True)
    with pytest.raises(InputError, match="must say which present place it is of"):
        load_bundle(on_map)


def test_distances_have_no_other_half_to_differ_and_no_diagonal(plain: Path) -> None:
    """Each pair is stored once: an asymmetric or non-zero diagonal cannot be said, and a whole matrix does not fit."""
    forge(plain, lambda _, arrays: arrays.update(distances_mm=tight().distance_mm.ravel()))
    with pytest.raises(InputError, match="'distances_mm' does not follow"):
        load_bundle(plain)


def test_negative_distances(plain: Path) -> None:
    forge(plain, lambda _, arrays: arrays.update(distances_mm=-arrays["distances_mm"].astype(np.int64)))
    with pytest.raises(InputError, match="must not be negative"):
        load_bundle(plain)


def test_rows_in_one_place_must_be_equal(tmp_path: Path, plain: Path) -> None:
    twins = Mechanism.verified(
        np.tile([ONE // 2, ONE // 2], (2, 1)),
        distance_mm=np.zeros((2, 2), np.int64),
        epsilon_micro=10**6,
        eta_mm=10**9,
    )
    load_bundle(save_plain(tmp_path / "a.bundle", twins))
    forge(plain, lambda _, arrays: arrays["distances_mm"].put(0, 0))
    with pytest.raises(GuaranteeViolation, match="Rows 0 and 1 must be equal"):
        load_bundle(plain)


def test_another_domain_or_order_of_context(on_map: Path) -> None:
    domain = load_bundle(on_map).domain
    load_bundle(on_map, trust=Trust(domain=domain))
    with pytest.raises(MismatchError, match="another domain"):
        load_bundle(on_map, trust=Trust(domain="0" * 64))

    def reorder(_: Fields, arrays: Arrays) -> None:
        arrays["histories"][:5] = arrays["histories"][:5][::-1].copy()

    forge(on_map, reorder)
    with pytest.raises(InputError, match="its domain is not the one that its header says"):
        load_bundle(on_map)


def test_an_older_version_than_pinned(plain: Path) -> None:
    load_bundle(plain, trust=Trust(minimum_version=3))
    with pytest.raises(InputError, match="is version 3, older than the 4"):
        load_bundle(plain, trust=Trust(minimum_version=4))


def test_exponentials_beyond_any_float(tmp_path: Path) -> None:
    """e^(ε·d) is above 2^1000 here; what is impossible from one row is still refused."""
    distance = np.array([[0, 4 * 10**6], [4 * 10**6, 0]])
    table = np.array([[ONE - 1, 1], [1, ONE - 1]])
    mechanism = Mechanism.verified(table, distance_mm=distance, epsilon_micro=10**9, eta_mm=10**9)
    path = save_plain(tmp_path / "a.bundle", mechanism)
    load_bundle(path)
    forge(path, lambda _, arrays: arrays.update(weights=np.array([ONE, 0, 1, ONE - 1])))
    with pytest.raises(GuaranteeViolation, match="inf times"):
        load_bundle(path)


def test_errors_never_tell_a_coordinate(on_map: Path) -> None:
    messages = []
    for change in (inflate, lambda _, arrays: arrays["places_e7"].put(0, 911_111_111)):
        save_located(on_map)
        forge(on_map, change)
        with pytest.raises(InputError) as caught:
            load_bundle(on_map)
        messages.append(str(caught.value))
    canaries = {str(value) for value in PLACES_E7.ravel()} | {f"{value / 1e7:.4f}" for value in PLACES_E7.ravel()}
    assert not [text for text in messages if any(canary in text for canary in canaries)]


def test_random_changes_give_an_error_or_a_verified_bundle(on_map: Path) -> None:
    random = np.random.default_rng(5)
    original = on_map.read_bytes()
    for _ in range(400):
        data = bytearray(original)
        for _ in range(random.integers(1, 6)):
            where = int(random.integers(len(data)))
            match random.integers(4):
                case 0:
                    data[where] = int(random.integers(256))
                case 1:
                    del data[where : where + int(random.integers(1, 80))]
                case 2:
                    data[where:where] = random.bytes(int(random.integers(1, 80)))
                case _:
                    data[where : where + 8] = data[:8]
        on_map.write_bytes(data)
        with pytest.raises(InputError):
            load_bundle(on_map)


def test_random_forgeries_with_right_hashes_give_an_error_or_a_verified_bundle(on_map: Path) -> None:
    """Behind the hashes: numbers of the header and of all parts are changed, and everything is hashed anew."""
    random = np.random.default_rng(6)
    original = on_map.read_bytes()
    strange: list[Any] = [
        0,
        1,
        -1,
        2,
        2**31 - 1,
        -(2**31),
        2**62,
        2**63 - 1,
        -(2**63),
        10**9,
        True,
        None,
        "x",
        1.5,
        [],
        {},
    ]

    def mutate(fields: Fields, arrays: Arrays) -> None:
        for _ in range(random.integers(1, 3)):
            target: Any = fields if random.random() < 0.3 else fields["mechanisms"][int(random.integers(2))]
            if random.random() < 0.5:
                target[sorted(target)[int(random.integers(len(target)))]] = strange[int(random.integers(len(strange)))]
                return
            array = arrays[sorted(arrays)[int(random.integers(len(arrays)))]].reshape(-1)
            limits = np.iinfo(array.dtype)
            value = [int(limits.min), int(limits.max), 0, 1, int(array[0]) + 1][int(random.integers(5))]
            array[int(random.integers(len(array)))] = np.clip(value, limits.min, limits.max)

    accepted = 0
    for _ in range(400):
        on_map.write_bytes(original)
        forge(on_map, mutate)
        try:
            bundle = load_zones(on_map)
        except (InputError, GuaranteeViolation):
            continue
        accepted += 1
        for bundled in bundle:  # an independent look, in fractions of whole numbers
            table, far = bundled.mechanism.weights.tolist(), bundled.mechanism.distance_mm.tolist()
            for s, row in enumerate(table):
                assert sum(row) == ONE
                for t, other in enumerate(table):
                    bound = bounds_for(bundled.mechanism.epsilon_micro).lower(far[s][t])
                    if far[s][t] <= bundled.mechanism.eta_mm:
                        assert all(a << 96 <= bound * b for a, b in zip(row, other, strict=True))
    assert 0 < accepted < 300


def test_the_magic_is_that_of_this_format(plain: Path) -> None:
    assert plain.read_bytes()[:8] == MAGIC
    header = plain.read_bytes()
    assert json.loads(header[48 : 48 + int.from_bytes(header[8:16], "little")])["fields"]["version"] == 3
