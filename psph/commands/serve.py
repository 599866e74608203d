"""`psph serve`: run a node."""

from __future__ import annotations

from pathlib import Path

import click

from psph import configuration as configurations
from psph.log_options import begin_log, log_options


@click.command(short_help="Run a node as its configuration says.")
@click.option("--config", "file", type=click.Path(path_type=Path), required=True)
@click.option("--check", is_flag=True, help="Check the configuration and do not start.")
@log_options
def serve(file: Path, check: bool, log_format: str | None, log_level: str | None) -> None:
    """Run the roles of a configuration file in this process, until Ctrl-C or SIGTERM.

    When everything serves, one line `ready http://HOST:PORT/` names the admin port. A PSPH is ready
    when an update can cross the fabric at once.
    """
    configuration = configurations.load(file, configurations.NodeConfiguration)
    if configuration.bootstrap is not None:
        configuration.bootstrap.check_files(file.parent)
    if check:
        click.echo(f"{file} is valid")
        return
    from psirp_sim.runtime import loop
    from psph import server

    begin_log(log_format, log_level, configuration.log)

    def ready(address: str) -> None:
        click.echo(f"ready http://{address}/")

    loop.run(server.serve(configuration, file.parent, ready))
