"""`geoblanket gateway`: true positions of trackers in, perturbed positions out, in their own protocols."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from geoblanket.cli._output import say
from geoblanket.cli._policy import PolicyOption, read_policy

__all__ = ["gateway"]

_DEFAULT = Path("gateway.toml")


def gateway(
    file: Annotated[Path, typer.Argument(metavar="[CONFIG]", help="Its configuration (TOML).")] = _DEFAULT,
    *,
    init: Annotated[bool, typer.Option("--init", help="Write a commented example to CONFIG, and end.")] = False,
    check: Annotated[bool, typer.Option("--check", help="Check CONFIG, and end.")] = False,
    enrol: Annotated[
        bool, typer.Option("--enrol", help="Give devices that are not known an account at first sight.")
    ] = False,
    policy: PolicyOption = None,
    access_log: Annotated[bool, typer.Option(help="Log a line for each request, without what was sent.")] = False,
) -> None:
    """Stand between trackers and their server: OwnTracks (HTTP, MQTT), OsmAnd and Traccar, and JSON lines.

    Each device has a durable budget in one ledger. What is released waits on disk until the server has it. Nothing else
    of a message passes, except what the configuration allows.

    Ctrl-C or SIGTERM stops the gateway in order.
    """
    from geoblanket.gateway.config import read_config, readable_by_others, write_example

    if init:
        write_example(file)
        say(f"An example is in {file}. Change it, then start: geoblanket gateway {file}")
        return
    config = read_config(file)
    if readable_by_others(file):
        say(f"WARNING: {file} holds passwords, and others can read it. Run: chmod 600 {file}")
    if check:
        say(f"{file} is in order.")
        return
    import resource

    from geoblanket.gateway.running import run
    from geoblanket.service.metrics import configure_logs

    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # a core dump would hold where devices were
    configure_logs(access=access_log)

    def ready(url: str | None) -> None:
        say("The gateway runs" + (f" on {url}" if url else "") + " (Ctrl-C stops).")

    is_good = run(config, enrol=enrol, policy=read_policy(policy), on_ready=ready)
    say("Stopped.")
    if not is_good:
        raise typer.Exit(1)
