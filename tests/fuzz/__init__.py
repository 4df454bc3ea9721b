"""Fuzzing of every reader of files: damaged and hostile files give typed errors, quickly and in bounded memory.

`python -m tests.fuzz --help` tells how to run it for long; `test_fuzz.py` runs each target for a second or two.
"""
