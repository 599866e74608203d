"""`psph report`: from trace files to a page."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import click

from spark_jobs.errors import SparkJobError
from spark_jobs.layout import LAYOUT, no_traces
from spark_jobs.session import LOCAL, build_session, check_java, stop


class _Moment(click.ParamType):  # type: ignore[type-arg]
    name = "time"

    def convert(
        self, value: object, param: click.Parameter | None, context: click.Context | None
    ) -> datetime:
        try:
            moment = datetime.fromisoformat(str(value))
        except ValueError:
            self.fail(f"{value!r} is no time: write 2027-01-15 or 2027-01-15T09:30:00", param)
        return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


@click.command(short_help="Make a report of trace files.")
@click.option("--traces", required=True, metavar="DIR", help="Trace directory, or its URL.")
@click.option(
    "--out",
    required=True,
    type=click.Path(file_okay=False, path_type=Path),
    help="Directory for report.html, pictures and tables.",
)
@click.option("--master", default=LOCAL, show_default=True, help="Where Spark runs.")
@click.option("--since", type=_Moment(), help="Leave out what is older (UTC).")
@click.option("--domain", help="Only the events of this domain.")
@click.option("--subscriber", help="Whose departure/arrival trace to draw.")
@click.option("--memory", default="1g", show_default=True, help="Memory of Spark's driver.")
@click.option("--json", "as_json", is_flag=True, help="Print what was found for programs.")
def report(
    traces: str,
    out: Path,
    master: str,
    since: datetime | None,
    domain: str | None,
    subscriber: str | None,
    memory: str,
    as_json: bool,
) -> None:
    """Read the traces of any number of nodes and write report.html, plots and tables to --out.

    What Spark has to say goes to spark.log there.
    """
    check_java()
    if "://" not in traces and not Path(traces).is_dir():
        raise click.UsageError(f"--traces {traces}: no such directory")
    source = traces if "://" in traces else str(Path(traces).resolve())
    if "://" not in source and not any(Path(source).glob(LAYOUT)):
        raise no_traces(source)
    # Spark is not installed everywhere, and takes a second to import.
    from spark_jobs import progress
    from spark_jobs.report import STEPS, Wish, make_report

    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SparkJobError(f"--out {out}: {error.strerror}") from error
    log = out / "spark.log"
    session = build_session("psph report", log=log, master=master, driver_memory=memory)
    try:
        with progress.bar(session, STEPS) as bar:
            found = make_report(session, Wish(source, since, domain, subscriber), out, bar)
    except Exception as error:
        if not _of_spark(error):
            raise
        raise SparkJobError(f"Spark failed: {_first_line(error)}; see {log}") from error
    finally:
        stop(session)
    events = sum(row["events"] for row in found.overview.rows)
    files = found.files
    if as_json:
        summary = {
            "report": str(out / "report.html"),
            "events": events,
            "files": files.files,
            "unreadable": files.unreadable,
            "copies": files.copies,
            "missing": files.missing,
            "left_out": [{"path": file.path, "why": file.why} for file in files.left_out],
        }
        click.echo(json.dumps(summary, indent=2, ensure_ascii=False))
        return
    for file in files.left_out[:5]:
        click.echo(f"left out ({file.why}): {file.path}", err=True)
    click.echo(f"{events:,} events of {files.files:,} files: {out / 'report.html'}")


def _of_spark(error: Exception) -> bool:
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    return isinstance(error, Py4JError | PySparkException)


def _first_line(error: Exception) -> str:
    return next((line for line in str(error).splitlines() if line.strip()), "no reason given")[:200]
