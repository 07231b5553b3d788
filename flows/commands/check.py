"""clicktower check"""

import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter
from rich.text import Text

from beam_jobs.checking.findings import FAILS, LOOK, percent
from flows.report.blocks import Cell, Items, Table
from flows.show import console, terminal
from flows.show.console import errors, output, plain
from flows.show.present import from_here, program
from schemas.ledger import FATES

if TYPE_CHECKING:
    from beam_jobs.checking.check_log import Checked


def check(
    logs: Annotated[list[str], Parameter(negative=())],
    *,
    format: str | None = None,
    mapping: str | None = None,
    documents: str | None = None,
    k: int = 5,
    sample_lines: int = 500_000,
    json: bool = False,
) -> int:
    """Report what a log contains and what looks wrong with it, from a sample, before
    it is ingested.

    Nothing is written, and no line, query, client id or user agent is shown. Exit
    code 1 means that ingest would fail; the output says why.

        clicktower check logs/*.ndjson.gz
        clicktower check clicks.csv --format delimited --mapping clicks.toml --documents documents.tsv

    Parameters
    ----------
    logs
        Files, patterns, folders or URIs (s3://, gs://) of the log, plain or compressed with gzip or zstd.
    format
        The format of the log, as in `ingest`; by default it is guessed.
    mapping
        TOML file that says what the columns are; where one is needed and none is given, one is proposed.
    documents
        The documents file, to report how many clicks are on a document with a title.
    k
        How many distinct people must have issued a query.
    sample_lines
        About how many lines to look at; a log with fewer is read whole.
    json
        Print the result as one JSON object; progress goes to stderr.
    """
    import time

    from beam_jobs.build.build_config import BuildConfig
    from beam_jobs.checking.check_log import check_log
    from beam_jobs.sources.mapping import read_mapping
    from schemas.errors import UsageError

    BuildConfig(k=k)  # says what is wrong with it
    if sample_lines < 1:
        raise UsageError(
            asked=f"a sample of {sample_lines} lines was asked for", found="that is none", do="ask for 1 or more"
        )
    begun = time.perf_counter()
    with console.progress_bar("check") as progress:
        checked = check_log(
            logs,
            log_format=format,
            mapping=read_mapping(mapping) if mapping else None,
            documents=documents,
            k=k,
            sample_lines=sample_lines,
            progress=progress,
        )
    result = as_result(checked, logs, mapping, documents, time.perf_counter() - begun)
    console.emit(result, json, show)
    return 0 if checked.can_be_ingested else 1


_MARKS = {FAILS: ("✗", "worse"), LOOK: ("!", "open"), "note": ("·", "quiet")}
_MAX_FIELDS = 16


def as_result(
    checked: "Checked", logs: Sequence[str], mapping: str | None, documents: str | None, seconds: float
) -> dict[str, Any]:
    """The JSON object of a check."""
    facts = checked.facts
    next_command = None
    if checked.can_be_ingested:
        words = ["ingest", *logs, "--into", "store"]
        words += [] if facts["format"] == "ubi" else ["--format", facts["format"]]
        words += ["--mapping", mapping] if mapping else []
        next_command = " ".join(map(shlex.quote, words))
    return {
        "stage": "check",
        "can_be_ingested": checked.can_be_ingested,
        **facts,
        "findings": [asdict(finding) for finding in checked.findings],
        "documents_file": documents,
        "next": next_command,
        "duration_seconds": round(seconds, 3),
    }


def show(result: dict[str, Any]) -> None:
    """Print the whole check: the format, the content, what k would keep, the cost, the findings."""
    _headline(result)
    if not result["can_be_ingested"]:
        _findings(result["findings"])
        output.print()
    if result["fields"]:
        terminal.show([_fields(result)])
    if "lines" in result:
        output.print()
        terminal.show([_lines(result)])
        _unreadable(result)
        output.print()
        facts = [(Cell(text=name, tone="strong"), sentence) for name, sentence in _sentences(result)]
        terminal.show([Table(caption="", rows=facts)])
        output.print()
        terminal.show([_gate(result), Items(items=list(_about_gate(result)))])
        output.print()
        terminal.show([_estimate(result)])
    if result["can_be_ingested"]:
        _findings(result["findings"])
    if result["proposed_mapping"]:
        read = "; what is above was read with it" if result["read_with_proposal"] else ""
        output.print(
            f"\n[bold]A mapping to begin with[/] (--format {result['proposed_format']} --mapping FILE), made from the"
            f" names{read}:\n",
            soft_wrap=True,
        )
        for line in result["proposed_mapping"].splitlines():
            output.print(Text(f"    {line}"), soft_wrap=True)
    if result["next"]:
        output.print(f"\nNext: {plain(program())} {plain(result['next'])}", soft_wrap=True)


def _headline(result: Mapping[str, Any]) -> None:
    good = result["can_be_ingested"]
    files = result["files"]
    version = (
        f" {result['ubi_version']}" if result["ubi_version"] and not result["ubi_version"].startswith("untold") else ""
    )
    form = result["looks_like"].replace("UBI", f"UBI{version}", 1)
    kinds = ", ".join(f"{count} {kind}" if len(files["kinds"]) > 1 else kind for kind, count in files["kinds"].items())
    verdict = Text("✓ can be ingested", "bold green") if good else Text("✗ ingest would fail", "bold red")
    if not good and result["read_with_proposal"]:
        verdict.append(" as it was asked; with the mapping below it can be", "bold yellow")
    output.print(Text.assemble(verdict, f"   {form}"), soft_wrap=True)
    empty = f", {files['empty']} of them empty" if files["empty"] else ""
    output.print(
        f"{_count(files['count'], 'file')} ({kinds or 'none to read'}{empty}), {_size(files['stored_bytes'])};"
        f" {_sampled(result)}",
        soft_wrap=True,
    )
    if result.get("simulated_lines"):
        output.print(f"[bold yellow]{result['simulated_lines']:,} of these lines are of a simulated log.[/]")
    errors.print(Text(f"looked for {result['duration_seconds']:.1f} s; nothing was written", "dim"))


def _sampled(result: Mapping[str, Any]) -> str:
    sample = result.get("sample")
    if not sample:
        return "no line was read"
    if sample["is_whole"]:
        return f"all {sample['lines']:,} lines were read, so the figures are exact"
    return (
        f"{sample['lines']:,} lines from {_count(sample['places'], 'place')} were read,"
        f" {percent(sample['share_of_log'])} of the log"
    )


def _fields(result: Mapping[str, Any]) -> Table:
    parquet = result["format"] == "parquet"
    rows = [
        [row["name"], "" if parquet else percent(row["share"]), row["looks_like"]]
        for row in result["fields"][:_MAX_FIELDS]
    ]
    if (more := len(result["fields"]) - _MAX_FIELDS) > 0:
        rows.append([f"and {more} more (--json has them)", "", ""])
    caption = "Columns" if parquet else f"Fields of the first {result['fields_from_lines']:,} lines"
    return Table(caption=caption, header=("field", "share", "looks like"), rows=rows, left=(0, 2))


def _lines(result: Mapping[str, Any]) -> Table:
    """What every line of the sample is, and what would become of it."""
    total, rows = result["sample"]["lines"], list[list[Cell | str]]()
    names = {
        "search": "searches", "impression": "impressions", "click": "clicks", "other": "other actions",
        "action_lines": "bulk action lines", "unreadable": "unreadable",
    }  # fmt: skip
    for name, words in names.items():
        if count := result["lines"].get(name, 0):
            tone = "unreadable" if name == "unreadable" else "kept" if name == "click" else ""
            share = count / total
            rows.append([Cell(text=words, tone=tone), f"{count:,}", percent(share), Cell(share=share, tone=tone)])
    caption = "Lines" if result["sample"]["is_whole"] else "Lines of the sample"
    return Table(caption=caption, header=("", "lines", "share", ""), rows=rows, left=(0, 3))


def _unreadable(result: Mapping[str, Any]) -> None:
    """Why lines cannot be read, and where some of them are (file:byte, or file:row for Parquet)."""
    for reason, told in result["unreadable"].items():
        places = ", ".join(map(plain, map(from_here, told["places"][:3])))
        more = ", ..." if told["lines"] > 3 else ""
        output.print(f"  [dim]{told['lines']:,}: {FATES[reason][1]}, at {places}{more}[/]", soft_wrap=True)


def _sentences(result: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
    lines = sum(result["lines"].get(kind, 0) for kind in ("search", "impression", "click", "other"))
    clients, times, fates = result["clients"], result["times"], result["fates"]
    yield "joining", _joining(result)
    if clients["lines_with"]:
        yield (
            "clients",
            f"{percent(clients['lines_with'] / lines)} of the lines have one; {clients['distinct']:,} different,"
            f" {clients['queries_per_client']:.1f} searches each",
        )
    else:
        yield "clients", "none"
    if times["first"]:
        first, last = (times[which][:16].replace("T", " ") for which in ("first", "last"))
        yield "time", f"{first} to {last} UTC, {_count(times['dates'], 'date')}"
    systems = result["writing_systems"]
    total = sum(systems.values())
    if total:
        named = ", ".join(f"{name} {percent(count / total)}" for name, count in list(systems.items())[:6])
        unspaced = result["unspaced_searches"]
        yield (
            "writing",
            f"{named} of the searches"
            + (f"; {percent(unspaced / total)} in scripts without spaces" if unspaced else ""),
        )
        yield "languages", _languages(result["languages"])
    bots = {rule: told for rule, told in result["bots"].items() if told["lines"]}
    caught = ", ".join(f"{rule.replace('_', ' ')} {percent(told['lines'] / lines)}" for rule, told in bots.items())
    part = " in the sample; what pace and hours tell takes whole days, and catches more in the whole log"
    part = "" if result["sample"]["is_whole"] else part
    yield "bots", (f"{caught} of the lines" if caught else "none") + part
    left_out = ", ".join(
        f"{FATES[fate][1]} {percent(fates[fate] / lines)}"
        for fate in ("repeat", "query_empty", "query_adult", "query_spam", "search_repeated", "document_missing")
        if fates.get(fate)
    )
    yield "left out", left_out or "nothing else"
    if documents := result["documents"]:
        share = documents["clicks_titled"] / documents["clicks"] if documents["clicks"] else 0.0
        yield (
            "documents",
            f"{documents['num_documents']:,}; {percent(share)} of the clicks are on one with a title"
            f" ({documents['clicked_titled']:,} of {documents['clicked']:,} clicked documents)",
        )


def _languages(told: Mapping[str, Any]) -> str:
    """The shares in whole points: they are not known any better."""
    if told["why_not"]:
        return f"unknown: {told['why_not']}"
    of = f"of {told['queries']:,} different queries"
    if not told["told"]:
        return f"unsure: no language has enough {of}"
    named = [f"{language['name']} {_points(language['share'])}" for language in told["told"]]
    named += [f"unsure {_points(told['unsure'])}"] if told["unsure"] >= 0.01 else []
    points = round(100 * told["error"])
    sure = (
        f"give or take {points} points"
        if len(told["told"]) > 1
        else "another with a tenth of them would show, but for a near relative"
    )
    return f"{', '.join(named)} {of}, from all of them together; {sure}"


def _points(share: float) -> str:
    return "over 99%" if share > 0.99 else f"{share:.0%}"


def _joining(result: Mapping[str, Any]) -> str:
    joins, sample = result["joins"], result["sample"]
    carrying = f"{joins['carrying']:,} events carry their query" if joins["carrying"] else ""
    if not joins["events"]:
        return carrying or "there are no events to join"
    also = f"; {carrying}" if carrying else ""
    found = f"{percent(joins['share'])} of {joins['events']:,} events find their search"
    if sample["is_whole"]:
        return found + also
    if joins["same_stretch"] > 0.9 * joins["joined"] and joins["settled_share"] > 0.5:
        return (
            f"{found} in the sample, a lower bound since the sample cuts searches from their events; far from the cuts"
            f" {percent(joins['settled_share'])} do{also}"
        )
    return (
        f"{found} in the sample, a lower bound: it holds {percent(sample['share_of_log'])} of the log, and in a log in"
        f" random order, or with searches and events in files of their own, no more can meet{also}"
    )


def _gate(result: Mapping[str, Any]) -> Table:
    everything, rows = result["kept"][0]["clicks"], list[list[Cell | str]]()
    for row in result["kept"]:
        share = row["clicks"] / everything if everything else 0.0
        counts = [f"{row[name]:,}" for name in ("queries", "clicks", "pairs")]
        rows.append([str(row["k"] or "no gate"), *counts, percent(share), Cell(share=share, tone="kept")])
    return Table(
        caption=f"What k keeps{'' if result['sample']['is_whole'] else ' of the sample'}",
        header=("k", "queries", "clicks", "pairs", "of clicks", ""),
        rows=rows,
        left=(0, 5),
        strong=[at for at, row in enumerate(result["kept"]) if row["k"] == result["k"]],
    )


def _about_gate(result: Mapping[str, Any]) -> Iterable[str]:
    growth = result["growth"]
    shares = ", ".join(f"{percent(part['share_of_clicks'])} of {_part(part['part'])}" for part in growth)
    if 0 < growth[-1]["share_of_clicks"] < 1:
        yield f"The share grows with the log, as more people ask the same: k = {result['k']} keeps {shares}."
        if not result["sample"]["is_whole"]:
            yield "The whole log keeps more than its sample; how much more, no part of it can tell for sure."
    if result["documents"] is None:
        yield "Without --documents each clicked document counts as one that has a title of its own."


def _part(share: float) -> str:
    return {0.125: "an eighth", 0.25: "a quarter", 0.5: "a half"}.get(share, "all that was read")


def _estimate(result: Mapping[str, Any]) -> Table:
    """What the whole log takes on this machine."""
    told = result["estimate"]
    about = "" if result["sample"]["is_whole"] else "about "
    processes = _count(told["processes"], "process", "processes")
    rows = [
        ("lines", f"{about}{told['lines']:,} ({_size(told['text_bytes'])} of text)"),
        (
            "time",
            f"ingest {_duration(told['ingest_seconds'])}, build {_duration(told['build_seconds'])}, in {processes}"
            f" (measured now: {told['sample_lines_per_second']:,.0f} lines/s in one)",
        ),
        ("memory", f"{_size(told['memory_bytes'])}; hardly more for a larger log"),
        (
            "disk",
            f"{_size(told['scratch_bytes'])} while it runs; at most {_size(told['day_bytes'])} for the private day and"
            f" {_size(told['shards_bytes'])} or a little more for shards",
        ),
    ]
    return Table(caption="The whole log on this machine, estimated", rows=rows)


def _findings(findings: Sequence[Mapping[str, str]]) -> None:
    if not findings:
        output.print("\n[bold green]Nothing looks wrong.[/]")
        return
    output.print("\nWhat looks wrong" if any(f["level"] != "note" for f in findings) else "\nTo know", style="bold")
    for finding in findings:
        mark, tone = _MARKS[finding["level"]]
        rows: list[list[Cell | str]] = [[Cell(text=mark, tone=tone), _sentence(finding["found"])]]
        if finding["follows"]:
            rows.append(["", Cell(text=_sentence(finding["follows"]), tone="quiet")])
        rows.append(["", f"→ {_sentence(finding['do'])}"])
        terminal.show([Table(caption="", rows=rows)])


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:] + ("" if text.endswith((".", "!", "?")) else ".")


def _count(number: int, one: str, many: str = "") -> str:
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def _size(num_bytes: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if num_bytes < 1000:
            return f"{num_bytes:.0f} {unit}" if num_bytes >= 10 or unit == "B" else f"{num_bytes:.1f} {unit}"
        num_bytes /= 1000
    return f"{num_bytes:.1f} TB"


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
