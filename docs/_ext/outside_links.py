"""Links from pages to files outside of docs/, which work on GitHub as they are, and in the site too.

A file that a page of the site includes is that page. Any other is in the repository.
"""

from __future__ import annotations

import re
from pathlib import Path
from posixpath import normpath, relpath

__all__ = ["with_includes", "with_site_links"]

_INCLUDE = re.compile(r"^```\{include\} (\S+)\n```$", re.MULTILINE)
_LINK = re.compile(r"\]\((?!\w+:|#)([^)#\s]+)(#[^)\s]*)?\)")


def _included_files(docs: Path) -> dict[str, str]:
    """Return the page of each file that a page includes; both relative to docs/."""
    pages = {page.name: _INCLUDE.search(page.read_text(encoding="utf-8")) for page in docs.glob("*.md")}
    return {found[1]: page for page, found in pages.items() if found}


def with_includes(text: str, docs: Path) -> str:
    """Return the text of a page with the files that it includes, their links made relative to docs/."""

    def included(block: re.Match[str]) -> str:
        text = (docs / block[1]).read_text(encoding="utf-8")
        folder = Path(block[1]).parent.as_posix()
        return _LINK.sub(lambda link: f"]({normpath(f'{folder}/{link[1]}')}{link[2] or ''})", text)

    return _INCLUDE.sub(included, text)


def with_site_links(text: str, docs: Path, repository: str, *, folder: str = ".") -> str:
    """Return the text of a page, in a folder of docs/, with links out of docs/ that lead somewhere in the site."""
    pages = _included_files(docs)

    def lead(link: re.Match[str]) -> str:
        target, anchor = normpath(f"{folder}/{link[1]}"), link[2] or ""
        if target in pages:
            return f"]({relpath(pages[target], folder)}{anchor})"
        if target.startswith("../docs/"):
            return f"]({relpath(target.removeprefix('../docs/'), folder)}{anchor})"
        if target.startswith("../"):
            return f"]({repository}/blob/main/{target.removeprefix('../')}{anchor})"
        return link[0]

    return _LINK.sub(lead, text)
