"""Entity tags: a client that has a file already is told so, and not sent it again (RFC 9110, 8.8.3 and 13.1.2)."""

from __future__ import annotations

from typing import Annotated

from fastapi import Header

__all__ = ["KnownTags", "is_known"]

KnownTags = Annotated[str | None, Header(alias="If-None-Match", description="ETags that the client has.")]


def is_known(tag: str, known: str | None) -> bool:
    """Return whether an If-None-Match header names a tag; weak ones count."""
    tags = [name.strip().removeprefix("W/") for name in (known or "").split(",")]
    return "*" in tags or f'"{tag}"' in tags
