"""Hypothesis for the whole suite: no deadlines, because machines are noisy, and the same examples every time.

`make test-all` looks for new examples instead (`--hypothesis-profile=search`).
"""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("same", deadline=None, derandomize=True)
settings.register_profile("search", deadline=None, print_blob=True)
settings.load_profile("same")
