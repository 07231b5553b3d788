"""clicktower check"""

import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter
from rich.filesize import decimal as size

from clicktower.flows.commands.options import STANDARD_INPUT, Json, log_files
from clicktower.flows.report.blocks import Block, Cell, Code, Heading, Items, Table, Text, duration, quantity
from clicktower.flows.report.run_blocks import gate_table, ledger_table, percent
from clicktower.flows.show import console
from clicktower.flows.show.present import program
from clicktower.flows.show.store_results import finding_rows
from clicktower.schemas.ledger import Ledger

if TYPE_CHECKING:
    from clicktower.beam_jobs.checking.check_log import Checked


def check(
    logs: Annotated[list[str], Parameter(negative=())],
    *,
    format: str | None = None,
    mapping: str | None = None,
    documents: str | None = None,
    k: int = 5,
    sample_lines: int = 500_000,
    json: Json = False,
) -> int:
    """Report what a log contains and what looks wrong with it, from a sample, before
    it is ingested.

    Nothing is written, and no line, query, client id or user agent is shown. Exit
    code 1 means that ingest would fail; the output says why.

        clicktower check logs/*.ndjson.gz
        clicktower check clicks.csv --format delimited --mapping clicks.toml --documents documents.tsv

    Args:
        logs: Files, patterns, folders or URIs (s3://, gs://) of the log, plain or compressed with gzip or zstd; `-` for
            standard input.
        format: The format of the log, as in `ingest`; by default it is guessed.
        mapping: TOML file that says what the columns are; where one is needed and none is given, one is proposed.
        documents: The documents file, to report how many clicks are on a document with a title.
        k: How many distinct people must have issued a query.
        sample_lines: About how many lines to look at; a log with fewer is read whole.
    """
    import time

    from clicktower.beam_jobs.build.build_stage import BuildConfig
    from clicktower.beam_jobs.checking.check_log import check_log
    from clicktower.beam_jobs.sources.mapping import Mapping as LogMapping
    from clicktower.flows.config.toml_file import read_toml
    from clicktower.schemas.errors import UsageError
    from clicktower.schemas.section import changed

    changed(BuildConfig(), {"k": k})  # its error is specific
    if sample_lines < 1:
        raise UsageError(f"A sample of {sample_lines} lines is empty.", "Ask for 1 or more.")
    begun = time.perf_counter()
    with log_files(logs) as files, console.progress_bar("check") as progress:
        checked = check_log(
            files,
            log_format=format,
            mapping=read_toml(mapping, LogMapping, subject="mapping", see="docs/data.md") if mapping else None,
            documents=documents,
            k=k,
            sample_lines=sample_lines,
            progress=progress,
        )
    result = result_json(checked, logs, mapping, documents, time.perf_counter() - begun)
    console.emit(result, json, lambda result: console.show(report(result)))
    return 0 if checked.can_be_ingested else 1


_MAX_FIELDS = 16


def result_json(
    checked: "Checked", logs: Sequence[str], mapping: str | None, documents: str | None, seconds: float
) -> dict[str, Any]:
    """The JSON object of a check."""
    facts = checked.facts
    next_command = None
    if checked.can_be_ingested:
        words = ["ingest", *("-" if log == STANDARD_INPUT else log for log in logs), "--into", "store"]
        words += [] if facts["format"] == "ubi" else ["--format", facts["format"]]
        words += ["--mapping", mapping] if mapping else []
        next_command = shlex.join(words)
    return {
        "stage": "check",
        "can_be_ingested": checked.can_be_ingested,
        **facts,
        "findings": [asdict(finding) for finding in checked.findings],
        "documents_file": documents,
        "next": next_command,
        "duration_seconds": round(seconds, 3),
    }


def report(result: Mapping[str, Any]) -> list[Block]:
    """The whole check: format, findings, content, what k would keep, time and memory."""
    blocks = [*_headline(result), *_findings(result["findings"])]
    if result["fields"]:
        blocks.append(_fields(result))
    if hidden := result["fields_not_shown"]:
        text = f"{quantity(hidden, 'more field')}, not named here, since names may be text of the log"
        blocks.append(Text(text=text, tone="quiet"))
    if "ledger" in result:
        of_sample = "" if result["sample"]["is_whole"] else " of the sample"
        blocks += [
            replace(ledger_table(Ledger(**result["ledger"])), caption=f"The fate of every line{of_sample}"),
            Table(caption="", rows=[(Cell(text=name, tone="strong"), fact) for name, fact in _facts(result)]),
            gate_table(result["kept"], result["k"]),
            _pair_gate(result["kept_at_pair_k"], result["k"]),
            Items(items=list(_gate_lines(result))),
            _estimate(result["estimate"]),
        ]
    if result["proposed_mapping"]:
        options = f"--format {result['proposed_format']} --mapping FILE"
        blocks.append(Heading(text=f"A mapping to begin with ({options}), made from the names:"))
        blocks += [Code(text=line) for line in result["proposed_mapping"].splitlines()]
    if result["next"]:
        blocks += [Heading(text="Next:"), Code(text=f"{program()} {result['next']}")]
    return blocks


def _headline(result: Mapping[str, Any]) -> Iterable[Block]:
    verdict, tone = ("✓ can be ingested", "better") if result["can_be_ingested"] else ("✗ ingest would fail", "worse")
    yield Text(text=f"{verdict}: {result['looks_like']}", tone=tone)
    files, sample = result["files"], result.get("sample")
    empty = f" ({files['empty']} of them empty)" if files["empty"] else ""
    read = "no line was read"
    if sample and sample["is_whole"]:
        read = f"all {sample['lines']:,} lines were read, so the figures are exact"
    elif sample:
        places = quantity(sample["places"], "place")
        read = f"{sample['lines']:,} lines from {places} were read, {percent(sample['share_of_log'], 1)} of the log"
    yield Text(text=f"{quantity(files['count'], 'file')}{empty}, {size(files['stored_bytes'])}; {read}")
    if files["skipped"]:
        yield Text(text=f"{quantity(files['skipped'], 'hidden file')} beside them skipped", tone="quiet")
    if result.get("simulated_lines"):
        yield Text(text=f"{result['simulated_lines']:,} of these lines are of a simulated log.", tone="open")
    yield Text(text=f"checked in {result['duration_seconds']:.1f} s; nothing was written", tone="quiet")


def _findings(findings: Sequence[Mapping[str, str]]) -> Iterable[Block]:
    if not findings:
        yield Text(text="Nothing looks wrong.", tone="better")
        return
    rows = list[list[Cell | str]]()
    for finding in findings:
        rows += finding_rows(finding["level"], [], finding["problem"], finding["fix"])
    yield Table(caption="What looks wrong", rows=rows)


def _fields(result: Mapping[str, Any]) -> Table:
    fields = result["fields"]
    rows = [[row["name"], percent(row["share"], 1), row["looks_like"]] for row in fields[:_MAX_FIELDS]]
    if len(fields) > _MAX_FIELDS:
        rows.append([f"and {len(fields) - _MAX_FIELDS} more (--json has them)", "", ""])
    caption = f"Fields of the first {result['fields_from_lines']:,} lines"
    return Table(caption=caption, header=("field", "share", "looks like"), rows=rows, left=(0, 2))


def _facts(result: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
    joins, clients, times, is_whole = result["joins"], result["clients"], result["times"], result["sample"]["is_whole"]
    yield "kinds", ", ".join(f"{count:,} {kind}" for kind, count in result["lines"].items())
    if joins["events"]:
        bound = "" if is_whole else " in the sample, a lower bound, since it separates searches from their events"
        need = f"of {joins['total']:,} impressions and clicks {joins['events']:,} need their search"
        yield "joining", f"{need}; {joins['joined']:,} of these ({percent(joins['share'], 1)}) find it{bound}"
    if clients["distinct"]:
        yield "clients", f"{clients['distinct']:,}, {clients['searches_each']:.1f} searches each"
    if times["first"]:
        first, last = (times[which][:16].replace("T", " ") for which in ("first", "last"))
        yield "time", f"{first} to {last} UTC, {quantity(times['dates'], 'date')}"
    if documents := result["documents"]:
        share = percent(documents["clicks_titled"], documents["clicks"])
        on_titled = f"{documents['clicks_titled']:,} of {documents['clicks']:,} clicks ({share})"
        yield "documents", f"{documents['num_documents']:,}; {on_titled} are on one with a title"


def _pair_gate(kept: Sequence[Mapping[str, Any]], k: int) -> Table:
    most = kept[0]["clicks"]
    rows: list[list[Cell | str]] = [
        [str(row["pair_k"]), Cell(text=f"{row['clicks']:,}", mark=percent(row["clicks"], most)), f"{row['pairs']:,}"]
        for row in kept
    ]
    caption = f"What k = {k} leaves at each pair_k, the fewest people behind a pair"
    return Table(caption=caption, header=("pair_k", "Clicks", "Pairs"), rows=rows, left=(0,))


def _gate_lines(result: Mapping[str, Any]) -> Iterable[str]:
    if not result["sample"]["is_whole"]:
        yield "The whole log keeps more than its sample, as more people ask the same."
    if result["documents"] is None:
        yield "Without --documents each clicked document counts as one that has a title of its own."


def _estimate(estimate: Mapping[str, Any]) -> Table:
    rows = [
        ("lines", f"{estimate['lines']:,} ({size(estimate['text_bytes'])} of text)"),
        ("time", f"ingest {duration(estimate['ingest_seconds'])}, build {duration(estimate['build_seconds'])}"),
        ("processes", f"{estimate['processes']:,}"),
        ("memory", f"{size(estimate['memory_bytes'])}; hardly more for a larger log"),
        (
            "disk",
            f"{size(estimate['scratch_bytes'])} while it runs; at most {size(estimate['day_bytes'])} for the private"
            f" day and {size(estimate['shards_bytes'])} for shards",
        ),
    ]
    return Table(caption="The whole log on this machine, estimated", rows=rows)
