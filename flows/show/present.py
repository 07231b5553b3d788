"""Results in a terminal: a line per stage, the ledger, the NDCG table, next steps.

For what collects logs, a run is JSON lines on stderr: one object a line, with the same fields in every one.

    {"time": "2026-09-02T03:31:07.412Z", "stage": "ingest", "event": "done", "seconds": 12.4, "digest": "0f3a..."}

time      ISO 8601, UTC
stage     a stage of the chain, or "run" for the whole
event     started; progress and note (`text`); done, reused; promoted, or kept as a candidate (`text`: why); drift
          (`text`); output, a line that a library printed (`text`); failed (`problem`, `fix`); interrupted
seconds   of making a stage's output, or of the run
digest    of the stage's output

Other fields depend on the event. No field quotes the log: texts are those that the terminal shows.
"""

import io
import json
import shlex
import shutil
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TextIO

from rich.text import Text as Line

from clicktower.flows.config.commands import COMMANDS, code
from clicktower.flows.report.blocks import Block, Code, Heading, Text
from clicktower.flows.report.run_blocks import drift, headline, ledger_table, notes, num_compared, promotion, ranking
from clicktower.flows.show import console
from clicktower.flows.show.console import ended, errors, output, plain, show
from clicktower.schemas.ledger import Ledger
from clicktower.schemas.stage import StageResult

_stream: TextIO | None = None  # where the lines go; None: nobody asked for them


def write_line(event: str, stage: str = "run", **facts: Any) -> None:
    """Write a line about an event, if lines were asked for."""
    if _stream is None:
        return
    now = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    value = {"time": now, "stage": stage, "event": event, "seconds": None, "digest": None, **facts}
    _stream.write(json.dumps(value, ensure_ascii=False) + "\n")
    _stream.flush()


@contextmanager
def as_json_lines(*, json: bool) -> Iterator[None]:
    """Within, a run tells of itself in JSON lines on stderr, and of nothing else there. An error ends the process with
    its code; with `json` it is printed on stdout too, as always.
    """
    global _stream
    started, shown = time.monotonic(), console.errors.quiet
    _stream, console.errors.quiet = sys.stderr, True
    try:
        with redirect_stderr(_Lines()):
            write_line("started")
            yield
        write_line("done", seconds=_seconds_since(started))
    except KeyboardInterrupt:
        write_line("interrupted", seconds=_seconds_since(started))
        raise SystemExit(130) from None
    except Exception as error:
        from clicktower.flows.show import failures  # a run that fails

        facts = failures.explain(error)
        write_line("failed", seconds=_seconds_since(started), problem=facts.problem, fix=facts.fix)
        if json:
            failures.report_error(error, "run", json)
        raise SystemExit(facts.exit_code) from None
    except SystemExit:
        write_line("interrupted", seconds=_seconds_since(started))
        raise
    finally:
        _stream, console.errors.quiet = None, shown


def _seconds_since(started: float) -> float:
    return round(time.monotonic() - started, 3)


def write_progress(line: str) -> None:
    """Write a line of a stage's progress, `stage: activity`."""
    stage, _, text = line.partition(": ")
    write_line("progress", stage, text=text)


class _Lines(io.TextIOBase):
    """What anything else prints on stderr, line by line."""

    def __init__(self) -> None:
        self._begun = ""

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        *lines, self._begun = (self._begun + text).split("\n")
        for line in filter(str.strip, lines):
            write_line("output", text=line)
        return len(text)


def stage_line(
    stage: str, headline: str, seconds: float | None = None, state: str = "", digest: str | None = None
) -> None:
    """The line of a finished stage."""
    write_line("reused" if state == "reused" else "done", stage, seconds=seconds, digest=digest)
    time = "reused" if state == "reused" else "" if seconds is None else f"{seconds:.1f} s"
    ended("done", stage, time, headline)


def stage_result(result: dict) -> None:
    """The line of a stage, from its JSON result."""
    state = "reused" if result.get("reused") else "new"
    stage_line(result["stage"], headline(result), result.get("duration_seconds"), state, result.get("digest"))
    for text in notes(result):
        note(result["stage"], text)
    if decision := result.get("metrics", {}).get("decision"):
        write_line("promoted" if decision["promote"] else "kept", result["stage"], text=decision["reason"])
        errors.print(Line(f"  {decision['reason']}", style="dim" if decision["promote"] else "yellow"), soft_wrap=True)
    if decision and not result["metrics"]["live"]:
        place = relative_path(result["metrics"]["release"])
        errors.print(Line(f"  to make it live: {make_live(place, result['digest'])}", style="yellow"), soft_wrap=True)


def note(stage: str, text: str) -> None:
    """A sentence about a stage."""
    write_line("note", stage, text=text)
    errors.print(Line(f"  {text}", style="yellow"), soft_wrap=True)


def alarms(sentences: Sequence[str]) -> None:
    """What is unusual about the newest stage's figures."""
    for sentence in sentences:
        write_line("drift", text=sentence)
        errors.print(Line(f"  drift: {sentence}", style="yellow"), soft_wrap=True)


def day_of(store: str, result: StageResult) -> dict:
    """{"day": the newest version of the ingest's date}, with the file that holds it; nothing for an undated ingest."""
    if not (date := result.manifest.request.config.get("date")):
        return {}
    from clicktower.schemas.day_version import newest_version, version_uri

    version = newest_version(store, date)
    return {"day": version.to_json() | {"path": version_uri(store, version)}} if version else {}


def stage_with_details(result: dict) -> None:
    """A single stage's result: its line, its ledger or table, and its path."""
    stage_result(result)
    show(details(result))
    output.print(plain(result["path"]), soft_wrap=True)


def details(result: Mapping[str, Any]) -> list[Block]:
    """The ledger or the table of a stage's result, and what its command adds."""
    metrics, blocks = result.get("metrics", {}), list[Block]()
    if "ledger" in result:
        blocks.append(ledger_table(Ledger(**result["ledger"])))
    if privacy_gate := metrics.get("privacy_gate"):
        blocks.append(Text(text=f"Privacy gate: {privacy_gate}"))
    if metrics.get("systems"):
        blocks += ranking(metrics)
    command = COMMANDS.get(result["stage"])
    return blocks + code(command.details)(result) if command and command.details else blocks


def run_results(results: dict) -> None:
    """The end of a run: ledger, table, where everything is, and next steps."""
    for stage in ("build", "evaluate"):
        output.print()
        show(details(results[stage]))
    output.print()
    show(outcome_lines(results))
    release = relative_path(results["publish"]["metrics"]["release"])
    for name, where in (("report", relative_path(results["report"])), ("release", release)):
        output.print(f"{name:<8} {plain(where)}", soft_wrap=True)
    output.print()
    show(
        [
            Heading(text="Try next:"),
            *(Code(text=command) for command in next_commands(release, results["evaluate"], results["publish"])),
        ]
    )


def outcome_lines(results: Mapping[str, Any]) -> list[Block]:
    """Whether the release went live and why, and what is unusual about the run."""
    published, rows, blocks = results["publish"]["metrics"], results["drift"], list[Block]()
    if results["evaluate"]["labels"].get("simulated"):
        blocks.append(Text(text="All of this comes from a simulated log.", tone="open"))
    if decision := published.get("decision"):
        blocks += promotion({"live": published["live"], **decision}, False)[:1]
    return blocks + drift(rows)[:1] if num_compared(rows) else blocks


def run_json(command: str, results: Mapping[str, Any]) -> dict:
    """The JSON object of a whole run: every stage's result by name, and at the top what a program needs first."""
    stages = [result for result in results.values() if isinstance(result, dict) and "reused" in result]
    return {
        "stage": command,
        "digest": results["publish"]["digest"],
        "path": results["publish"]["metrics"]["release"],
        "reused": all(result["reused"] for result in stages),
        **results,
    }


def next_commands(release: str, evaluation: Mapping[str, Any], published: Mapping[str, Any]) -> list[str]:
    """What to try after a run: a search for a judged query, the search page, a check of every byte; and first what
    makes a candidate live, since until then a search is answered by an earlier release.
    """
    query = shlex.quote((evaluation["metrics"].get("example_queries") or ["angle bracket"])[0])
    place = shlex.quote(release)
    tries = (f"search --release {place} {query}", f"serve --release {place}", f"verify {place}")
    live = [] if published["metrics"]["live"] else [make_live(release, published["digest"])]
    return [*live, *(f"{program()} {command}" for command in tries)]


def make_live(release: str, digest: str) -> str:
    """The command that makes a candidate live."""
    return f"{program()} rollback --to {shlex.quote(release)} --release {digest}"


def program() -> str:
    """What to type to run this program: its name if the shell finds it, otherwise its path."""
    return (
        "clicktower" if shutil.which("clicktower") else relative_path(str(Path(sys.executable).parent / "clicktower"))
    )


def relative_path(path: str) -> str:
    """A local path relative to the working directory if it is below it; anything else unchanged."""
    here = Path.cwd()
    return str(Path(path).relative_to(here)) if Path(path).is_relative_to(here) else path
