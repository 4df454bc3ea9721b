"""The shared parts of the readers of road files: their result, and checks of untrusted files.

XML is parsed as a stream in bounded memory and time. Expat keeps an unfinished tag, attribute or comment as a whole,
and scans it again with every piece. So no token may be longer than `LARGEST_TOKEN_BYTES`, and the depth of elements is
limited. A document that declares a type or entities is refused: no file can make the parser read another file, or
inflate.

The blocks of an OpenStreetMap PBF file are checked before libosmium reads them. A block has the length of its header
(4 bytes, big-endian), the header (kind and size of the blob), and a blob, which states its unpacked size. libosmium
unpacks a block no further than that, and to at most 32 MiB; but a small file can hold many blocks full of zeros. And
libosmium ends the text of a tag at the first zero byte: a zero inside a text makes it read beyond its memory, which
ends the process.
"""

from __future__ import annotations

import os
import time
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Final, NamedTuple, NoReturn
from xml.parsers import expat

import numpy as np

from geoblanket._arrays import Floats, Octets
from geoblanket._untrusted import most_bytes, open_unpacked, seconds_allowed, too_large, too_slow
from geoblanket.errors import InputError
from geoblanket.roads.graph import ROAD_CLASSES, RoadGraph
from geoblanket.roads.tags import CLASS_SPEEDS_KMH

KMH_TO_M_S = 1 / 3.6

LARGEST_TOKEN_BYTES: Final = 1 << 20
"""The longest tag with its attributes, or comment. OpenStreetMap allows values of 255 characters."""

_DEEPEST: Final = 64  # nested elements
_PIECE_BYTES: Final = 1 << 16  # read at once

LARGEST_RATIO: Final = 30
"""The largest ratio of unpacked to packed size; maps have 2 to 6."""

_LARGEST_HEADER = 64 << 10  # bytes; the format's own limit
_LARGEST_BLOB = 32 << 20  # bytes; the format's own limit
# Numbers of fields, in the order of the messages: header of a block, blob, block, table of texts.
_KIND, _DATA_SIZE = 1, 3
_RAW, _RAW_SIZE, _ZLIB = 1, 2, 3
_TEXTS = 1
_TEXT = 1
_EMPTY_TEXT = b"\n\0"

Field = tuple[int, int | memoryview]


@dataclass
class Counts:
    """Counts of a file that was read."""

    read: Counter[str] = field(default_factory=Counter)
    """Contents of the file."""
    dropped: Counter[str] = field(default_factory=Counter)
    """What was left out, by reason."""
    assumed: Counter[str] = field(default_factory=Counter)
    """Where the file lacks a value, and a default is used."""


class RoadsRead(NamedTuple):
    """A road graph as its file gives it."""

    graph: RoadGraph
    counts: Counts
    scenery: bytes = b""
    """As in `RoadGraph`."""


def class_speeds_kmh(road_class: Octets) -> Floats:
    """Return the usual free-flow speed of each class (an index into `ROAD_CLASSES`), km/h."""
    return np.array([CLASS_SPEEDS_KMH[name] for name in ROAD_CLASSES], np.float64)[road_class]


class XmlReader:
    """One pass over an XML file, plain or packed.

    Parameters
    ----------
    start, end, characters
        Called for tags that open (with their attributes) and close, and for text; namespaces come before tags, with a
        space between.
    """

    def __init__(
        self,
        path: Path,
        *,
        start: Callable[[str, dict[str, str]], None] | None = None,
        end: Callable[[str], None] | None = None,
        characters: Callable[[str], None] | None = None,
    ) -> None:
        self._path = path
        self._start, self._end = start, end
        self._depth = 0
        self._bytes = 0
        self._begin = time.monotonic()
        # Without a handler, namespaces and dictionaries would take most of the time for nothing.
        self._parser = expat.ParserCreate(namespace_separator=None if start is None else " ")
        self._parser.ordered_attributes = start is None
        self._parser.buffer_text = True
        self._parser.StartDoctypeDeclHandler = self._refuse_doctype
        self._parser.StartElementHandler = self._opened
        self._parser.EndElementHandler = self._closed
        if characters is not None:
            self._parser.CharacterDataHandler = characters

    @property
    def line(self) -> int:
        """The line that is being read, from 1."""
        return self._parser.CurrentLineNumber

    def read(self) -> int:
        """Read the whole file; return its unpacked size in bytes.

        Raises
        ------
        InputError
            If it is not well-formed, cut off or damaged, or larger, longer or deeper than allowed, or takes too long.
        """
        try:
            with open_unpacked(self._path) as stream:
                while piece := stream.read(_PIECE_BYTES):
                    self._feed(piece)
                self._parser.Parse(b"", True)
        except expat.ExpatError as error:
            reason = expat.ErrorString(error.code)
            raise InputError(f"is not well-formed XML ({reason})", path=self._path, row=error.lineno) from None
        except (ValueError, LookupError, MemoryError) as error:
            # An encoding that Python does not know, or text that it does not allow.
            raise InputError("cannot be read as XML", path=self._path, row=self.line) from error
        return self._bytes

    def _feed(self, piece: bytes) -> None:
        self._parser.Parse(piece, False)
        self._bytes += len(piece)
        if time.monotonic() - self._begin > seconds_allowed(self._bytes):
            raise too_slow(self._path, self._bytes)
        if self._bytes - self._parser.CurrentByteIndex > LARGEST_TOKEN_BYTES:
            self.refuse(
                f"has a tag, an attribute or a comment of more than {LARGEST_TOKEN_BYTES >> 20} MiB",
                "Check that this is the right file; no map has such a thing",
            )

    def refuse(self, problem: str, hint: str) -> NoReturn:
        """Raise InputError about the line that is being read."""
        raise InputError(problem, path=self._path, row=self.line, hint=hint)

    def _refuse_doctype(self, *_: object) -> None:
        self.refuse("declares a document type, which maps have no use for", "Save or download the map again")

    def _opened(self, tag: str, attributes: dict[str, str]) -> None:
        self._depth += 1
        if self._depth > _DEEPEST:
            self.refuse(f"has elements nested deeper than {_DEEPEST}", "Check that this is the right file")
        if self._start is not None:
            self._start(tag, attributes)

    def _closed(self, tag: str) -> None:
        self._depth -= 1
        if self._end is not None:
            self._end(tag)


def check_xml(path: Path) -> int:
    """Check that another parser can read an XML file in bounded memory and time; return its unpacked size in bytes."""
    return XmlReader(path).read()


def check_pbf(path: Path) -> int:
    """Check the blocks of a PBF file; return their unpacked size in bytes.

    Raises
    ------
    InputError
        If the file is not made of such blocks, would unpack to too much, or has texts with zero bytes.
    """
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            most, total = most_bytes(size, ratio=LARGEST_RATIO), 0
            while file.tell() < size:
                total += _block(file)
                if total > most:
                    raise too_large(path, most)
            return total
    except (ValueError, TypeError, zlib.error) as error:
        raise InputError(
            f"cannot be read as OpenStreetMap data ({error})",
            path=path,
            hint="Download or export it again; it may be cut off or damaged",
        ) from error
    except OSError as error:
        raise InputError(f"cannot be read ({error.strerror or error})", path=path) from error


def _block(file: IO[bytes]) -> int:
    """Check one block; return its unpacked size in bytes."""
    header_size = int.from_bytes(_exactly(file, 4), "big")
    if header_size > _LARGEST_HEADER:
        raise ValueError("a block has a header that is too large")
    header = dict(_fields(memoryview(_exactly(file, header_size))))
    blob = dict(_fields(memoryview(_exactly(file, _size(header.get(_DATA_SIZE, 0))))))
    content = _unpacked(blob)
    kind = header.get(_KIND)
    if isinstance(kind, memoryview) and bytes(kind) == b"OSMData":
        _check_texts(content)
    return len(content)


def _unpacked(blob: dict[int, int | memoryview]) -> memoryview:
    raw, packed = blob.get(_RAW), blob.get(_ZLIB)
    if isinstance(raw, memoryview):
        return raw
    if not isinstance(packed, memoryview):
        raise ValueError("a block is packed otherwise than by zlib; write it anew with osmium cat")
    size = _size(blob.get(_RAW_SIZE, 0))
    inflater = zlib.decompressobj()
    content = inflater.decompress(packed, size)
    if len(content) != size or inflater.unconsumed_tail or not inflater.eof:
        raise ValueError("a block has another size than it tells")
    return memoryview(content)


def _check_texts(block: memoryview) -> None:
    """Raise ValueError if the texts of a block hold zero bytes."""
    for number, table in _fields(block):
        if number != _TEXTS or not isinstance(table, memoryview):
            continue
        # The first text is empty, and its length is a zero. If there is no other zero, no text needs to be checked.
        if b"\0" not in bytes(table).removeprefix(_EMPTY_TEXT):
            continue
        for kind, text in _fields(table):
            if kind == _TEXT and b"\0" in bytes(text if isinstance(text, memoryview) else b""):
                raise ValueError("a text has a zero byte")


def _size(value: int | memoryview) -> int:
    if not isinstance(value, int) or not 0 < value <= _LARGEST_BLOB:
        raise ValueError("a block does not tell its unpacked size, or is too large")
    return value


def _exactly(file: IO[bytes], count: int) -> bytes:
    data = file.read(count)
    if len(data) < count:
        raise ValueError("it is cut off")
    return data


def _fields(message: memoryview) -> Iterator[Field]:
    """Yield the numbers of a message's fields and their values: whole numbers, or bytes."""
    at = 0
    while at < len(message):
        key, at = _varint(message, at)
        value, at = _varint(message, at)
        if key & 7 == 2:
            if value > len(message) - at:
                raise ValueError("a block has a field that is cut off")
            yield key >> 3, message[at : at + value]
            at += value
        elif key & 7 == 0:
            yield key >> 3, value
        else:
            raise ValueError("a block has a field of an unknown kind")


def _varint(message: memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if at >= len(message) or shift > 63:
            raise ValueError("a block has a number that does not end")
        byte = message[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value, at
