"""The package and its pages stay small enough for a few people to know all of them."""

from __future__ import annotations

import ast
import io
import tokenize
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src" / "geoblanket"
DOCS = Path(__file__).parents[1] / "docs"
MOST_WORDS = 35_000
"""Of all pages together, with their tables."""
LARGEST = {"modules": 300, "code lines": 40_000, "code lines of a module": 500}
_NO_CODE = {
    *(tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER),
}


def code_lines(text: str) -> int:
    """Count lines with code: neither blank nor comment nor docstring, nor a string below a field."""
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in _NO_CODE:
            lines.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            lines.difference_update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return len(lines)


def test_lines_of_code_are_counted() -> None:
    text = '"""Words."""\n\n# why\nx = (\n    1\n)  # what\n\n\ndef f():\n    """More."""\n    return x\n'
    assert code_lines(text) == 5


def test_the_package_stays_small() -> None:
    counts = [code_lines(path.read_text()) for path in SOURCE.rglob("*.py")]
    weight = {"modules": len(counts), "code lines": sum(counts), "code lines of a module": max(counts)}
    assert {name: value for name, value in weight.items() if value > LARGEST[name]} == {}


def test_the_pages_stay_few() -> None:
    """A fact stands in one place: what is written again is cut, or linked to."""
    words = {page.name: len(page.read_text().split()) for page in DOCS.rglob("*.md")}
    longest = sorted(words, key=words.__getitem__, reverse=True)[:5]
    assert sum(words.values()) <= MOST_WORDS, {name: words[name] for name in longest}
