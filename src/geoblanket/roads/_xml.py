"""XML from anybody, parsed as a stream in bounded memory and time.

Expat keeps what it has not understood yet: a tag, an attribute or a comment that does not end is kept as a whole, and
looked at again with every piece. So nothing may be longer than `LARGEST_TOKEN_BYTES`, and elements may not be nested
without end. A document that declares a type or entities is refused: no file can make the parser read another file, or
inflate.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, NoReturn
from xml.parsers import expat

from geoblanket._untrusted import open_unpacked, seconds_allowed, too_slow
from geoblanket.errors import InputError

__all__ = ["LARGEST_TOKEN_BYTES", "XmlReader", "check_xml"]

LARGEST_TOKEN_BYTES: Final = 1 << 20
"""The longest tag with its attributes, or comment. OpenStreetMap allows values of 255 characters."""

_DEEPEST: Final = 64  # nested elements
_PIECE_BYTES: Final = 1 << 16  # read at once


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
        # Namespaces and dictionaries take most of the time where nobody looks at them.
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
        """Read the whole file; return how many bytes it has, unpacked.

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
    """Read an XML file only to see that another parser can, in bounded memory and time; return its bytes, unpacked."""
    return XmlReader(path).read()
