"""Results as a person reads them in a terminal: a line per stage, the ledger, the NDCG table, what to do next."""

import shlex
import shutil
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from rich.text import Text as Line

from flows.report.blocks import Block, Cell, Items, Table, Text
from flows.report.comparison_wording import headline as comparison_headline
from flows.report.run_page import ledger_table, ranking
from flows.show import terminal
from flows.show.console import errors, output, plain
from schemas.day import newest_version, version_uri
from schemas.search_log import Ledger
from schemas.stage import StageResult
from training.wording import counted, in_full


def stage_line(stage: str, headline: str, seconds: float | None = None, state: str = "") -> None:
    """One line about a finished stage, on stderr, so that stdout stays the result's."""
    time = "reused" if state == "reused" else "" if seconds is None else f"{seconds:.1f} s"
    line = Line.assemble(("✓ ", "green"), (f"{stage:<9}", "bold"), (f"{time:>9}  ", "dim"), headline)
    errors.print(line, soft_wrap=True)


def stage_result(result: dict) -> None:
    """The line of a stage, from its JSON result."""
    state = "reused" if result.get("reused") else "new"
    stage_line(result["stage"], headline(result), result.get("duration_seconds"), state)
    for note in notes(result):
        errors.print(Line(f"  {note}", style="yellow"), soft_wrap=True)
    if decision := result.get("metrics", {}).get("decision"):
        errors.print(Line(f"  {decision['reason']}", style="dim" if decision["promote"] else "yellow"), soft_wrap=True)


def notes(result: dict) -> list[str]:
    """What there is to know beside the headline: what was damaged, and what is odd about days."""
    return [*(f"was damaged and made again: {wrong}" for wrong in result.get("repaired", ())), *notes_on_days(result)]


def stage_with_details(result: dict) -> None:
    """A single stage's result: its line, its ledger or table, and where it is."""
    stage_result(result)
    terminal.show(details(result))
    output.print(plain(result["path"]), soft_wrap=True)


def details(result: Mapping[str, Any]) -> list[Block]:
    """The ledger or the table of a stage's result."""
    metrics, blocks = result.get("metrics", {}), list[Block]()
    if "ledger" in result:
        blocks.append(ledger_table(Ledger.from_json(result["ledger"])))
    if privacy_gate := metrics.get("privacy_gate"):
        blocks.append(Text(text=f"Privacy gate: {privacy_gate}"))
    if metrics.get("systems"):
        blocks += ranking(metrics)
    if metrics.get("propensities"):
        blocks += propensities(result)
    return blocks


def simulated(result: dict) -> None:
    """What was simulated, and the command to run on it."""
    stage_result(result)
    output.print(plain(result["path"]), soft_wrap=True)


def run_results(results: dict) -> None:
    """The end of a run: ledger, table, where everything is, and what to try next."""
    for stage in ("build", "evaluate"):
        output.print()
        terminal.show(details(results[stage]))
    if results["evaluate"]["labels"].get("simulated"):
        output.print(Line("All of this comes from a simulated log.", style="bold yellow"))
    output.print()
    for line in standing(results):
        output.print(line, soft_wrap=True)
    release = from_here(results["publish"]["metrics"]["release"])
    output.print(f"\nreport   {plain(from_here(results['report']))}", soft_wrap=True)
    output.print(f"release  {plain(release)}", soft_wrap=True)
    output.print("\nTry next:", style="bold")
    for command in next_commands(release, results["evaluate"]):
        output.print(f"  {plain(command)}", soft_wrap=True)


def standing(results: Mapping[str, Any]) -> list[Line]:
    """Whether the release went live and why, and what of the run is unusual."""
    metrics, rows = results["publish"]["metrics"], results.get("drift", ())
    lines = []
    if decision := metrics.get("decision"):
        live = metrics.get("live", True)
        state = ("live      ", "green") if live else ("candidate ", "yellow")
        lines.append(Line.assemble(state, decision["reason"]))
    alarms = [row["alarm"] for row in rows if row["alarm"]]
    lines += [Line.assemble(("unusual   ", "yellow"), alarm) for alarm in alarms]
    if rows and not alarms:
        compared = sum(row["usual"] != "—" for row in rows)
        told = f"nothing, of {compared} that could be compared" if compared else "there are too few earlier runs to say"
        lines.append(Line.assemble(("unusual   ", "dim"), told))
    return lines


def as_one(command: str, results: Mapping[str, Any]) -> dict:
    """The JSON object of a whole run: every stage's result by name, and at the top what a program asks for first."""
    stages = [result for result in results.values() if isinstance(result, dict)]
    return {
        "stage": command,
        "digest": results["publish"]["digest"],
        "path": results["publish"]["metrics"]["release"],
        "reused": all(result["reused"] for result in stages),
        **results,
    }


def next_commands(release: str, evaluation: Mapping[str, Any]) -> list[str]:
    """What to try after a run: a search for a query that was judged, the page to search on, a check of every byte."""
    query = shlex.quote((evaluation["metrics"].get("example_queries") or ["angle bracket"])[0])
    place = shlex.quote(release)
    tries = (f"search --release {place} {query}", f"serve --release {place}", f"verify {place}")
    return [f"{program()} {command}" for command in tries]


def program() -> str:
    """What to type for this program: its name if the shell finds it, otherwise where it is."""
    return "clicktower" if shutil.which("clicktower") else from_here(str(Path(sys.executable).parent / "clicktower"))


def from_here(path: str) -> str:
    """A local path below the working directory as it can be typed here; anything else as it is."""
    here = Path.cwd()
    return str(Path(path).relative_to(here)) if Path(path).is_relative_to(here) else path


def headline(result: Mapping[str, Any]) -> str:
    """What a stage did, in a line."""
    return _HEADLINES.get(result["stage"], lambda _: "")(result)


def _simulate(r: Mapping[str, Any]) -> str:
    c = r["counts"]
    return f"{c['lines']:,} lines of {c['searches']:,} searches over {c['documents']:,} documents, simulated"


def _ingest(r: Mapping[str, Any]) -> str:
    ledger = Ledger.from_json(r["ledger"])
    return (
        f"{ledger.total:,} lines -> {r['counts']['queries']:,} queries; {ledger.of_kind('dropped'):,} lines dropped,"
        f" {ledger.of_kind('unreadable'):,} unreadable"
    )


def _build(r: Mapping[str, Any]) -> str:
    c = r["counts"]
    return (
        f"{c['train_pairs']:,} pairs to train on, {c['dev_pairs']:,} held out, a pool of {c['pool_documents']:,} titles"
    )


def _build_labelled(r: Mapping[str, Any]) -> str:
    c, m = r["counts"], r["metrics"]
    of = f" of {c['classes']:,} classes" if c["classes"] else ""
    return f"{c['train_rows']:,} labelled {m['unit']}{of} to train on, {c['dev_rows']:,} held out"


def _train(r: Mapping[str, Any]) -> str:
    m = r["metrics"]
    refused = "".join(f"; {why}: went on from before it" for why in m.get("refused_checkpoints", ()))
    rate = f"{m['pairs_per_second']:,.0f} {counted(m)}/s"
    known = [f"vectors for {m['known_words']:,} of {m['shard_words']:,} words"] if "known_words" in m else []
    told = [f"{m['epoch']} epochs", f"training loss {m['train_loss']:.3f}", *in_full(m), rate, *known]
    return ", ".join(told) + refused


def _combine(r: Mapping[str, Any]) -> str:
    m = r["metrics"]
    return f"an ensemble of {len(m['members'])} models ({', '.join(m['members'])}), {m['dimensions']:,} dimensions"


def _sweep(r: Mapping[str, Any]) -> str:
    c, m = r["counts"], r["metrics"]
    best = m["rows"][0]["mean"]
    reused = f", {c['trials_reused']:,} of them there already" if c["trials_reused"] else ""
    diverged = f", {c['trials_diverged']:,} diverged" if c["trials_diverged"] else ""
    found = f"best {m['measure']} {best:.4f}" if best is not None else "none gave a model"
    return f"{c['trials']:,} trials of {c['points']:,} points{reused}{diverged}; {found}"


def _judgments(r: Mapping[str, Any]) -> str:
    c = r["counts"]
    return f"{c['judgments']:,} click-derived judgments of {c['queries']:,} queries, {r['metrics']['click_model_name']}"


def _evaluate(r: Mapping[str, Any]) -> str:
    systems = r["metrics"]["systems"]
    ours, bm25 = (systems[name]["ndcg@10"]["mean"] for name in ("model", "bm25"))
    return f"NDCG@10 {ours:.3f}, BM25 {bm25:.3f}, over {r['metrics']['n']:,} queries"


def _evaluate_labelled(r: Mapping[str, Any]) -> str:
    m = r["metrics"]
    ours = ", ".join(f"{name} {value['value']:.3f}" for name, value in m["systems"][m["ours"]].items())
    return f"{ours.replace('auc', 'area under ROC')}, over {m['n']:,} {m['unit']}"


def _compare(r: Mapping[str, Any]) -> str:
    return comparison_headline(r["metrics"])


def _publish(r: Mapping[str, Any]) -> str:
    m = r["metrics"]
    encoded, reused = (m.get("encoded", {}).get(name, 0) for name in ("encoded", "reused"))
    taken = f" ({encoded:,} titles encoded, {reused:,} reused)" if reused and not r["reused"] else ""
    end = "live" if m.get("live", True) else "kept as a candidate"
    return f"{m['num_documents']:,} documents{taken}, recall@10 of the index {m['recall']:.3f}, {end}"


def _rollback(r: Mapping[str, Any]) -> str:
    m = r["metrics"]
    return f"{r['digest']} is live, of {m['num_documents']:,} documents; before it {m['previous'] or 'none'}"


def _export(r: Mapping[str, Any]) -> str:
    form, counts = r["metrics"]["form"], r["counts"]
    told = ", ".join(f"{count:,} {name.replace('_', ' ')}" for name, count in counts.items())
    return f"{form} of {r['digest']}: {told}"


_HEADLINES: dict[str, Callable[[Mapping[str, Any]], str]] = {
    "simulate": _simulate,
    "ingest": _ingest,
    "build": _build,
    "build-labelled": _build_labelled,
    "train": _train,
    "combine": _combine,
    "sweep": _sweep,
    "judgments": _judgments,
    "evaluate": _evaluate,
    "evaluate-labelled": _evaluate_labelled,
    "compare": _compare,
    "publish": _publish,
    "rollback": _rollback,
    "export": _export,
}


def propensities(result: Mapping[str, Any]) -> list[Block]:
    """How probably each rank is looked at, relative to the most looked at, with its relative standard error; how
    judgments came out of clicks, and what they are not."""
    metrics, counts = result["metrics"], result["counts"]
    grades = ", ".join(f"{counts[name]:,} of grade {name[6:]}" for name in sorted(counts) if name.startswith("grade_"))
    told = [
        f"click-derived, {metrics['click_model_name']}; {grades}",
        f"prior of {metrics['prior']['of'].replace('_', ' ')}, worth"
        f" {metrics['prior']['strength_examined_impressions']:g} examined impressions",
        f"the ranking that was shown: logged.run, {counts['logged_results']:,} results",
    ]
    if unmeasured := metrics["unmeasured_ranks"]:
        told.append(f"left out, too little is known of them: ranks {', '.join(map(str, unmeasured))}")
    rows: list[list[Cell | str]] = [
        [str(row["rank"]), f"{row['propensity']:.3f}", f"{row['relative_error']:.1%}", Cell(share=row["propensity"])]
        for row in metrics["propensities"]
    ]
    return [
        Table(caption="Propensities", header=("rank", "looked at", "error", ""), rows=rows, left=(3,)),
        Items(items=told),
    ]


# What a person or a program is told about the days that an ingest makes and a build takes.


NUM_EXAMPLES = 5


def day_of(store: str, result: StageResult) -> dict:
    """{"day": the newest version of the ingest's date}, with the file that holds it; nothing for an undated ingest."""
    date = result.manifest.request.config.get("date")
    version = newest_version(store, date) if date else None
    return {"day": version.to_json() | {"path": version_uri(store, version)}} if version else {}


def notes_on_days(result: Mapping[str, Any]) -> list[str]:
    """What of a stage's JSON result somebody should look at: late files, wrong clocks, dates that are missing."""
    metrics, notes = result.get("metrics", {}), list[str]()
    if (day := result.get("day")) and day["version"] > 1:
        notes.append(
            f"{day['date']} is now version {day['version']} ({day['because']}); builds take it from here on,"
            f" and version {day['supersedes']} can still be read"
        )
    if share := metrics.get("later_than_ingest_share"):
        notes.append(f"{share:.2%} of the lines are of a time after this ingest began: a clock is wrong somewhere")
    window = metrics.get("window") or {}
    if missing := window.get("missing"):
        more = f" and {len(missing) - NUM_EXAMPLES:,} more" if len(missing) > NUM_EXAMPLES else ""
        notes.append(f"the store has nothing for {', '.join(missing[:NUM_EXAMPLES])}{more}; built without")
    if left_out := window.get("undated_left_out"):
        notes.append(f"{left_out:,} ingests without a date are not in this window")
    return notes
