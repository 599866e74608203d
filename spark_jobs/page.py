"""The report as one file: tables and pictures inside, no script, nothing fetched from anywhere."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable, Sequence
from html import escape

from spark_jobs.collected import Collected, Row
from spark_jobs.plots import Picture

SHOWN = 50
"""Rows of a table on the page; the files have all of them."""
_STYLE = """
:root { color-scheme: light dark; --ink: #1b1f24; --paper: #fff; --line: #d0d5db; --soft: #f3f5f7 }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6e8eb; --paper: #16191d; --line: #39404a; --soft: #20252b }
}
body { font: 16px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper);
       max-width: 60rem; margin: 0 auto; padding: 1rem; overflow-wrap: anywhere }
h1 { line-height: 1.2 } h2 { margin-top: 2.5rem; border-bottom: 1px solid var(--line) }
.wide { overflow-x: auto; margin: 1rem 0 }
table { border-collapse: collapse; font-size: .85rem; font-variant-numeric: tabular-nums }
th, td { padding: .25rem .6rem; border-bottom: 1px solid var(--line); text-align: left;
         white-space: nowrap }
td.n, th.n { text-align: right } thead th { background: var(--soft); position: sticky; top: 0 }
img { max-width: 100%; height: auto; border: 1px solid var(--line); border-radius: 4px }
figure { margin: 1rem 0 } figcaption, .small { font-size: .85rem; opacity: .8 }
summary { cursor: pointer } a { color: inherit }
"""


def page(title: str, sections: Iterable[str]) -> str:
    """The whole document."""
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{_STYLE}</style></head>\n<body>\n"
        f"<h1>{escape(title)}</h1>\n" + "\n".join(sections) + "\n</body></html>\n"
    )


def section(heading: str, *parts: str) -> str:
    """A part with a heading; of nothing there is no part."""
    inside = "\n".join(part for part in parts if part)
    name = heading.lower().replace(" ", "-")
    return f'<section id="{name}"><h2>{escape(heading)}</h2>\n{inside}</section>' if inside else ""


def paragraph(text: str) -> str:
    """Plain words."""
    return f"<p>{escape(text)}</p>"


def picture(drawn: Picture | None) -> str:
    """The picture that fits the reader's colours; none where there was nothing to draw."""
    if drawn is None:
        return ""
    light, dark = (
        f"data:image/png;base64,{b64encode(b).decode()}" for b in (drawn.light, drawn.dark)
    )
    return (
        f'<figure><picture><source media="(prefers-color-scheme: dark)" srcset="{dark}">'
        f'<img alt="{escape(drawn.says)}" src="{light}"></picture>'
        f"<figcaption>{escape(drawn.says)}</figcaption></figure>"
    )


def table(rows: Sequence[Row], columns: Sequence[str]) -> str:
    """A table; numbers stand right."""
    if not rows:
        return ""
    numbers = {c: all(isinstance(row[c], int | float | None) for row in rows) for c in columns}
    kind = {c: ' class="n"' if numbers[c] else "" for c in columns}
    head = "".join(f"<th{kind[c]}>{escape(c.replace('_', ' '))}</th>" for c in columns)
    body = "\n".join(
        "<tr>" + "".join(f"<td{kind[c]}>{_cell(row[c])}</td>" for c in columns) + "</tr>"
        for row in rows
    )
    inside = f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody>"
    return f'<div class="wide"><table>{inside}</table></div>'


def table_of(collected: Collected, columns: Sequence[str], most: int = SHOWN) -> str:
    """The first rows, and where the rest is."""
    rows = collected.rows
    if not rows:
        return ""
    name = collected.name
    note = f"The first {most} of {len(rows):,} rows. " if len(rows) > most else ""
    if collected.cut:
        note += f"There were more than {len(rows):,}: these are the ones that matter most. "
    return table(rows[:most], columns) + (
        f'<p class="small">{note}Files: <a href="{name}.parquet">{name}.parquet</a>,'
        f' <a href="{name}.json">{name}.json</a></p>'
    )


def details(summary: str, inside: str) -> str:
    """Something to unfold."""
    return f"<details><summary>{escape(summary)}</summary>{inside}</details>"


def _cell(value: object) -> str:
    match value:
        case None:
            return "–"
        case bool():
            return "yes" if value else "no"
        case int():
            return f"{value:,}"
        case float():
            return f"{value:,.3f}" if abs(value) < 1_000 else f"{value:,.0f}"
        case _:
            return escape(str(value))
