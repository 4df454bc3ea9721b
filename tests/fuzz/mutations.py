"""Changes of bytes, blind and structured."""

from __future__ import annotations

import gzip
import hashlib
import json
import math
import random
import zlib
from collections.abc import Callable
from typing import Any

Mutation = Callable[[bytes, random.Random], bytes]

_INTEGERS = [
    value.to_bytes(size, order, signed=value < 0)
    for size in (1, 2, 4, 8)
    for value in (0, 1, -1, 127, -128, (1 << 8 * size - 1) - 1, -(1 << 8 * size - 1))
    for order in ("little", "big")
]
_TEXTS = [
    b"0", b"-1", b"1e308", b"1e400", b"NaN", b"inf", b"9223372036854775807", b"18446744073709551616", b"null", b'"',
    b"'", b"[", b"]", b"{", b"}", b"\\u0000", b"\\ud800", b"\xff\xfe", b"\xf0\x9f\x9a\x95", b"<", b"&amp;",
    b"\0", b",", b";", b"\r\n", b"[" * 5000, b"9" * 5000, b"2014-02-30 25:61:61", b"POINT(91 181)",
]  # fmt: skip
_HEADER = 48
_ALIGNMENT = 64


def mutate_bytes(data: bytes, rng: random.Random) -> bytes:
    """Flip, set, cut, repeat, insert and copy bytes: one to eight changes."""
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 4, 8))):
        rng.choice(_CHANGES)(changed, rng)
    return bytes(changed)


def _flip(data: bytearray, rng: random.Random) -> None:
    if data:
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)


def _set(data: bytearray, rng: random.Random) -> None:
    if data:
        data[rng.randrange(len(data))] = rng.randrange(256)


def _integer(data: bytearray, rng: random.Random) -> None:
    value, at = rng.choice(_INTEGERS), rng.randrange(len(data) + 1)
    data[at : at + len(value)] = value


def _insert(data: bytearray, rng: random.Random) -> None:
    at = rng.randrange(len(data) + 1)
    data[at:at] = rng.choice(_TEXTS) if rng.random() < 0.7 else rng.randbytes(rng.randrange(1, 16))


def _truncate(data: bytearray, rng: random.Random) -> None:
    del data[rng.randrange(len(data) + 1) :]


def _remove(data: bytearray, rng: random.Random) -> None:
    at = rng.randrange(len(data) + 1)
    del data[at : at + rng.choice((1, 2, 4, 8, 64, 512))]


def _repeat(data: bytearray, rng: random.Random) -> None:
    at = rng.randrange(len(data) + 1)
    part = bytes(data[at : at + rng.choice((1, 4, 16, 64, 512))])
    data[at:at] = part * rng.choice((1, 2, 50))


def _copy(data: bytearray, rng: random.Random) -> None:
    start, at, size = rng.randrange(len(data) + 1), rng.randrange(len(data) + 1), rng.choice((1, 4, 8, 32, 256))
    data[at : at + size] = data[start : start + size]


_CHANGES = (_flip, _flip, _set, _set, _integer, _integer, _insert, _insert, _truncate, _remove, _repeat, _copy)


def inside_gzip(mutation: Mutation) -> Mutation:
    """Change the content of a gzip file, so that its checksum is right."""

    def mutate(data: bytes, rng: random.Random) -> bytes:
        try:
            return gzip.compress(mutation(gzip.decompress(data), rng), 1, mtime=0)
        except (OSError, EOFError, zlib.error):
            return mutation(data, rng)

    return mutate


def resummed_tar(data: bytes, rng: random.Random) -> bytes:
    """Change a tar archive, and make the sums of its headers right."""
    changed = bytearray(mutate_bytes(data, rng))
    for at in range(0, len(changed) - 511, 512):
        if data[at + 257 : at + 262] == b"ustar":
            changed[at + 148 : at + 156] = b" " * 8
            changed[at + 148 : at + 156] = b"%06o\0 " % sum(changed[at : at + 512])
    return bytes(changed)


def inside_pbf(data: bytes, rng: random.Random) -> bytes:
    """Change what the blocks of an OpenStreetMap PBF file hold, and pack them again."""
    try:
        blocks = _pbf_blocks(data)
    except (LookupError, ValueError, zlib.error):
        return mutate_bytes(data, rng)
    chosen = rng.randrange(len(blocks))
    return b"".join(
        _pbf_block(kind, mutate_bytes(raw, rng) if number == chosen else raw)
        for number, (kind, raw) in enumerate(blocks)
    )


def _pbf_blocks(data: bytes) -> list[tuple[bytes, bytes]]:
    blocks, at = [], 0
    while at < len(data):
        size = int.from_bytes(data[at : at + 4], "big")
        fields = _fields(data[at + 4 : at + 4 + size])
        at += 4 + size
        kind, length = fields[1], fields[3]
        if not isinstance(kind, bytes) or not isinstance(length, int):
            raise ValueError("block")
        blob = _fields(data[at : at + length])
        at += length
        packed = blob.get(3, blob.get(1, b""))
        if not isinstance(packed, bytes):
            raise ValueError("blob")
        blocks.append((kind, zlib.decompress(packed) if 3 in blob else packed))
    if not blocks:
        raise ValueError("no blocks")
    return blocks


def _fields(message: bytes) -> dict[int, int | bytes]:
    found: dict[int, int | bytes] = {}
    at = 0
    while at < len(message):
        key, at = _read_number(message, at)
        value, at = _read_number(message, at)
        if key & 7 == 2:
            found[key >> 3] = message[at : at + value]
            at += value
        else:
            found[key >> 3] = value
    return found


def _read_number(message: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while message[at] > 127:
        value |= (message[at] & 127) << shift
        at, shift = at + 1, shift + 7
    return value | message[at] << shift, at + 1


def _number(value: int) -> bytes:
    digits = b""
    while value > 127:
        digits, value = digits + bytes([value & 127 | 128]), value >> 7
    return digits + bytes([value])


def _pbf_block(kind: bytes, raw: bytes) -> bytes:
    packed = zlib.compress(raw, 1)
    blob = b"\x10" + _number(len(raw)) + b"\x1a" + _number(len(packed)) + packed
    header = b"\x0a" + _number(len(kind)) + kind + b"\x18" + _number(len(blob))
    return len(header).to_bytes(4, "big") + header + blob


def rehashed_arrays(data: bytes, rng: random.Random) -> bytes:
    """Change the numbers in an array file and give them their right hashes, as somebody would who means harm."""
    try:
        header, parts = _arrays(data)
    except (ValueError, KeyError, IndexError, TypeError, AttributeError):
        return mutate_bytes(data, rng)
    name = rng.choice(sorted(parts))
    part = bytearray(parts[name])
    item = int(header["arrays"][name]["dtype"][2:])
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        if len(part) < item:
            break
        at = rng.randrange(len(part) // item) * item
        other = rng.randrange(len(part) // item) * item
        value = int.from_bytes(part[at : at + item], "little")
        new = rng.choice((0, 1, value + 1, value - 1, value ^ 1 << rng.randrange(8 * item), (1 << 8 * item) - 1))
        swap = bytes(part[other : other + item])
        part[at : at + item] = swap if rng.random() < 0.2 else (new % (1 << 8 * item)).to_bytes(item, "little")
    parts[name] = bytes(part)
    return _array_file(data[:8], header, parts)


def rehashed_header(data: bytes, rng: random.Random) -> bytes:
    """Change values, keys, types and shapes in the header of an array file, and make hashes and sizes right again."""
    try:
        header, parts = _arrays(data)
    except (ValueError, KeyError, IndexError, TypeError, AttributeError):
        return mutate_bytes(data, rng)
    for _ in range(rng.choice((1, 1, 2))):
        _change_json(header, rng)
    return _array_file(data[:8], header, parts)


def rehashed_ledger(data: bytes, rng: random.Random) -> bytes:
    """Change values in a training ledger, and give it the digest that belongs to them."""
    try:
        body = json.loads(data)
        del body["sha256"]
    except (ValueError, KeyError, TypeError):
        return mutate_bytes(data, rng)
    _change_json(body, rng)
    text = json.dumps(body, sort_keys=True, separators=(",", ":"))
    return json.dumps(body | {"sha256": hashlib.sha256(text.encode()).hexdigest()}).encode()


def _change_json(value: Any, rng: random.Random) -> None:
    """Change something somewhere in a JSON value."""
    while True:
        keys: list[Any] = list(value) if isinstance(value, dict) else list(range(len(value)))
        if not keys:
            return
        key = rng.choice(keys)
        if isinstance(value[key], dict | list) and value[key] and rng.random() < 0.8:
            value = value[key]
            continue
        break
    action = rng.random()
    if action < 0.1:
        del value[key]
    elif action < 0.2 and isinstance(value, dict):
        value[rng.choice(("", "x", "shape", "\ud83d\ude95", key + "2"))] = value[key]
    elif action < 0.3 and isinstance(value, list):
        value.insert(rng.randrange(len(value) + 1), value[key])
    else:
        value[key] = _other(value[key], rng)


def _other(value: Any, rng: random.Random) -> Any:
    near: list[Any] = [0, 1, -1, 2**31, 2**53, 2**63, 10**400, 0.5, 1e308, True, None, "", "a" * 3000, [], {}, [[]] * 3]
    if type(value) is int:
        near += [value + 1, value - 1, value * 2, value // 2, float(min(value, 1 << 60)), str(min(value, 1 << 60))] * 3
    if isinstance(value, str):
        near += [value + "x", value[:-1], value.upper(), "<i8", "<f8", "|u1", "|O", "../x", "UTC", "\x1b[2J"] * 2
    if isinstance(value, list):
        near += [value * 2, value[::-1], value[1:]] * 3
    return rng.choice(near)


def _arrays(data: bytes) -> tuple[dict[str, Any], dict[str, bytes]]:
    end = _HEADER + int.from_bytes(data[8:16], "little")
    header = json.loads(data[_HEADER:end])
    parts = {}
    for name, entry in sorted(header["arrays"].items()):
        start = end + -end % _ALIGNMENT
        end = start + int(entry["dtype"][2:]) * math.prod(entry["shape"])
        parts[name] = data[start:end]
    if not parts:
        raise ValueError("no arrays")
    return header, parts


def _array_file(magic: bytes, header: dict[str, Any], parts: dict[str, bytes]) -> bytes:
    arrays = header.get("arrays")
    if isinstance(arrays, dict):
        for name, part in parts.items():
            if isinstance(arrays.get(name), dict) and "sha256" in arrays[name]:
                arrays[name]["sha256"] = hashlib.sha256(part).hexdigest()
    text = json.dumps(header, sort_keys=True).encode()
    data = magic + len(text).to_bytes(8, "little") + hashlib.sha256(text).digest() + text
    for name in sorted(parts):
        data += bytes(-len(data) % _ALIGNMENT) + parts[name]
    return data
