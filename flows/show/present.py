"""Results in a terminal: a line per stage, the ledger, the NDCG table, next steps."""

import shlex
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.text import Text as Line

from clicktower.flows.report.blocks import Block, Code, Heading, Text, num_compared
from clicktower.flows.report.run_blocks import headline, ledger_table, notes, promotion, ranking
from clicktower.flows.show.console import ended, errors, output, plain, show
from clicktower.schemas.ledger import Ledger

# Hears of the events of a run, as json_lines has them; None: nobody asked for them.
listener: Callable[..., None] | None = None


def tell(event: str, stage: str = "run", **facts: Any) -> None:
    """Tell the listener of an event, if there is one."""
    if listener:
        listener(event, stage, **facts)


def stage_line(
    stage: str, headline: str, seconds: float | None = None, *, reused: bool = False, digest: str | None = None
) -> None:
    """The line of a finished stage."""
    tell("reused" if reused else "done", stage, seconds=seconds, digest=digest)
    time = "reused" if reused else "" if seconds is None else f"{seconds:.1f} s"
    ended("done", stage, time, headline)


def stage_result(result: dict) -> None:
    """The line of a stage, from its JSON result."""
    stage, reused = result["stage"], bool(result.get("reused"))
    seconds, digest = result.get("duration_seconds"), result.get("digest")
    stage_line(stage, headline(result), seconds, reused=reused, digest=digest)
    for text in notes(result):
        note(stage, text)
    metrics = result.get("metrics", {})
    if decision := metrics.get("decision"):
        tell("promoted" if decision["promote"] else "kept", stage, text=decision["reason"])
        _below(decision["reason"], "dim" if decision["promote"] else "yellow")
        if not metrics["live"]:
            _below(f"to make it live: {make_live(relative_path(metrics['release']), result['digest'])}")


def note(stage: str, text: str) -> None:
    """A sentence about a stage."""
    tell("note", stage, text=text)
    _below(text)


def alarms(sentences: Sequence[str]) -> None:
    """What is unusual about the newest stage's figures."""
    for sentence in sentences:
        tell("drift", text=sentence)
        _below(f"drift: {sentence}")


def _below(text: str, style: str = "yellow") -> None:
    errors.print(Line(f"  {text}", style), soft_wrap=True)


def stage_with_details(result: dict, more: Sequence[Block] = ()) -> None:
    """A single stage's result: its line, its ledger or table, what its command adds, and its path."""
    stage_result(result)
    show([*details(result), *more])
    output.print(plain(result["path"]), soft_wrap=True)


def details(result: Mapping[str, Any]) -> list[Block]:
    """The ledger or the table of a stage's result."""
    metrics, blocks = result.get("metrics", {}), list[Block]()
    if "ledger" in result:
        blocks.append(ledger_table(Ledger(**result["ledger"])))
    if privacy_gate := metrics.get("privacy_gate"):
        blocks.append(Text(text=f"Privacy gate: {privacy_gate}"))
    if metrics.get("systems"):
        blocks += ranking(metrics)
    return blocks


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
    commands = next_commands(release, results["evaluate"], results["publish"])
    show([Heading(text="Try next:"), *(Code(text=command) for command in commands)])


def outcome_lines(results: Mapping[str, Any]) -> list[Block]:
    """Whether the release went live and why, and what is unusual about the run."""
    published, rows, blocks = results["publish"]["metrics"], results["drift"], list[Block]()
    if results["evaluate"]["labels"].get("simulated"):
        blocks.append(Text(text="All of this comes from a simulated log.", tone="open"))
    if decision := published.get("decision"):
        blocks += promotion({"live": published["live"], **decision}, False)[:1]
    if num_compared(rows):
        from clicktower.flows.report.guard_blocks import drift

        blocks += drift(rows)[:1]
    return blocks


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
    if shutil.which("clicktower"):
        return "clicktower"
    return relative_path(str(Path(sys.executable).parent / "clicktower"))


def relative_path(path: str) -> str:
    """A local path relative to the working directory if it is below it; anything else unchanged."""
    here = Path.cwd()
    return str(Path(path).relative_to(here)) if Path(path).is_relative_to(here) else path
