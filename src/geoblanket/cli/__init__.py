"""The command line: one command per job.

Modules here import only the standard library, Typer and each other at the top; what a command needs is imported
inside it, so that `geoblanket --help` is quick.
"""

from geoblanket.cli.main import main

__all__ = ["main"]
