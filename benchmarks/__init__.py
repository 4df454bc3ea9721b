"""Benchmarks: each prints our figure, a peer's figure from the same run, their ratio, and peak memory."""
