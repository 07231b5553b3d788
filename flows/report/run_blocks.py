"""A run's results as blocks: for its page, the terminal and its page in Prefect; and its page."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from clicktower.flows.config.commands import COMMANDS, code
from clicktower.flows.report.blocks import (
    BY_CLICKS,
    SIMULATED,
    Beside,
    Block,
    Cell,
    Code,
    Heading,
    Items,
    Page,
    Section,
    Table,
    Text,
    duration,
    grade_legend,
    measurement_blocks,
    num_compared,
    ranking_table,
    record,
)
from clicktower.flows.report.figures import interval_pictures
from clicktower.schemas.ledger import FATES, Ledger
from clicktower.schemas.release import read_decision
from clicktower.schemas.stage import open_result
from clicktower.training.ranking.ndcg import measure_name

NUM_EXAMPLES = 5  # of days
KINDS = {"kept": "Kept", "dropped": "Dropped by a rule", "unreadable": "Unreadable"}
SYSTEM_NAMES = {"model": "Ours", "vectors": "Vectors alone", "bm25": "BM25", "random": "Random"}
MEASURES_DRAWN = ("ndcg@1", "ndcg@3", "ndcg@10", "collection_ndcg@10")
HELD_OUT = {
    "dev_loss": "held-out loss {:.3f}",
    "dev_accuracy": "accuracy {:.3f}",
    "dev_area_under_roc": "area under ROC {:.3f}",
    "dev_word_repeat": "{:.3f} nats a word",
    "dev_word_reformulate": "{:.3f} reformulated",
    "dev_kl": "KL {:.2f}",
}
Results = Mapping[str, Any]  # the JSON of each stage by its name, and the rows of `drift`
Metrics = Mapping[str, Any]  # of an evaluation


def result(metrics: Metrics) -> str:
    """The outcome in a paragraph of plain words."""
    name, difference = _chosen(metrics)
    values = [metrics["systems"][system][name] for system in ("model", "bm25")]
    ours, bm25 = (f"{figures['mean']:.3f} ({figures['low']:.3f} to {figures['high']:.3f})" for figures in values)
    end = {
        "better": "which excludes zero: ours is better, and chance does not explain it.",
        "worse": "which excludes zero: BM25 is better, and chance does not explain it.",
        "open": "which includes zero: these queries cannot tell the two apart.",
    }[verdict(metrics)]
    return (
        f"Over {metrics['n']:,} judged queries, our {measure_name(name)} is {ours}, and BM25's is {bm25}. Query by"
        f" query the difference is {difference['mean']:+.3f} ({metrics['confidence']:.0%} interval"
        f" {difference['low']:+.3f} to {difference['high']:+.3f}), {end}"
    )


def notes(result: Mapping[str, Any]) -> list[str]:
    """What a person should look at: damage, late files, wrong clocks, missing dates, rows that are no documents."""
    metrics = result.get("metrics", {})
    notes = [f"was damaged and made again: {wrong}" for wrong in result.get("repaired", ())]
    if (day := result.get("day")) and day["version"] > 1:
        from clicktower.schemas.day_version import KEY_ENDED, SECOND_KEY

        if day["because"] not in (SECOND_KEY, KEY_ENDED):
            notes.append(
                f"{day['date']} is now version {day['version']} ({day['because']}); builds take it from here on,"
                f" and version {day['supersedes']} can still be read"
            )
    if share := metrics.get("later_than_ingest_share"):
        notes.append(f"{share:.2%} of the lines are of a time after this ingest began: a clock is wrong somewhere")
    notes += metrics.get("skipped_rows", ())
    key = result.get("person_key") or {}
    notes += filter(None, (key.get("notice"), key.get("overlap")))
    window = metrics.get("window") or {}
    begins = window.get("begins")
    if begins:
        before = f"; {window['other_key']:,} days before are under another key" if window.get("other_key") else ""
        notes.append(f"the window from {window['from']} begins on {begins} and grows{before}")
    if missing := [date for date in window.get("missing") or () if not begins or date > begins]:
        more = f" and {len(missing) - NUM_EXAMPLES:,} more" if len(missing) > NUM_EXAMPLES else ""
        notes.append(f"the store has nothing for {', '.join(missing[:NUM_EXAMPLES])}{more}; built without")
    if left_out := window.get("undated_left_out"):
        notes.append(f"{left_out:,} ingests without a date are not in this window")
    return notes


def verdict(metrics: Metrics) -> str:
    """better, worse, or open."""
    _, difference = _chosen(metrics)
    return "better" if difference["low"] > 0 else "worse" if difference["high"] < 0 else "open"


def _chosen(metrics: Metrics) -> tuple[str, Mapping[str, float]]:
    """The deciding measure, NDCG@10 if it was measured, and our difference to BM25 on it."""
    differences = metrics["difference"]["measures"]
    name = "ndcg@10" if "ndcg@10" in differences else next(iter(differences))
    return name, differences[name]


def promotion(decision: Mapping[str, Any], click_derived: bool) -> list[Block]:
    """Whether the release went live and why, with the slices considered."""
    live, figures = decision["live"], decision["figures"]
    text = f"{'Live.' if live else 'Kept as a candidate.'} {decision['reason']}"
    blocks: list[Block] = [Text(text=text, tone="better" if live else "open")]
    if figures.get("difference"):
        from clicktower.flows.report.guard_blocks import compared

        blocks += compared(figures, click_derived)
    return blocks


def ledger_table(ledger: Ledger) -> Table:
    """Every line's fate: kept first, then each kind's largest first, with a bar for its share."""
    rows: list[list[Cell | str]] = []
    strong = []
    for kind, name in KINDS.items():
        fates = sorted(((n, f) for f, n in ledger.lines.items() if n and FATES[f][0] == kind), reverse=True)
        if not fates:
            continue
        strong.append(len(rows))
        for lines, words in [(ledger.of_kind(kind), name), *((n, FATES[f][1]) for n, f in fates)]:
            bar = Cell(share=lines / ledger.total, tone=kind)
            rows.append([words, f"{lines:,}", percent(lines, ledger.total), bar])
    rows.append(["All lines", f"{ledger.total:,}", "100.0%", ""])
    return Table(
        caption="The fate of every line of the log", header=("Fate", "Lines", "Share", ""), rows=rows, left=(0, 3),
        strong=[*strong, len(rows) - 1],
    )  # fmt: skip


def percent(part: float, total: float) -> str:
    """A share with as many digits as it needs; never 0% for something that exists."""
    if not total:
        return "—"
    share = 100 * part / total
    if 0 < share < 0.01:
        return "< 0.01%"
    return f"{share:.1f}%" if share >= 1 or share == 0 else f"{share:.2f}%"


def gate_table(kept: Sequence[Mapping[str, Any]], k: int | None) -> Table:
    """What the privacy gate keeps at each k: rows of k, queries, clicks and pairs; k = 0 is the log without a gate."""
    rows = sorted(kept, key=lambda row: row["k"])
    most = rows[0]["clicks"]
    return Table(
        caption="What is left at each k; the bar is the share of the clicks",
        header=("k", "Queries", "Clicks", "Pairs", ""),
        rows=[[
            Cell(text=str(row["k"] or "no gate"), aside="chosen" if row["k"] == k else ""),
            f"{row['queries']:,}", Cell(text=f"{row['clicks']:,}", mark=percent(row["clicks"], most), tone="quiet"),
            f"{row['pairs']:,}", Cell(share=row["clicks"] / (most or 1), tone="kept" if row["k"] == k else ""),
        ] for row in rows],
        left=(0, 4),
        strong=[at for at, row in enumerate(rows) if row["k"] == k],
    )  # fmt: skip


def ranking(metrics: Metrics) -> list[Block]:
    """Every measure of every system with its interval, the difference to BM25, and how they were measured."""
    systems, differences = metrics["systems"], metrics["difference"]["measures"]
    rows: list[list[Cell | str]] = [
        [
            measure_name(measure),
            *(
                Cell(
                    text=f"{value['mean']:.3f}",
                    aside=f"{value['low']:.3f}–{value['high']:.3f}",
                    strong=value["mean"] == max(figures[measure]["mean"] for figures in systems.values()),
                )
                for value in (figures[measure] for figures in systems.values())
            ),
            Cell(text=f"{difference['mean']:+.3f}", aside=f"{difference['low']:+.3f} to {difference['high']:+.3f}"),
        ]
        for measure, difference in differences.items()
    ]
    drawn = interval_pictures(systems, SYSTEM_NAMES, {m: measure_name(m) for m in MEASURES_DRAWN if m in differences})
    name, difference = _chosen(metrics)
    text = f"Ours − BM25 at {measure_name(name)}: {difference['mean']:+.3f}, p = {difference['p']:.4f}."
    caption = f"Mean over {metrics['n']:,} queries, with {metrics['confidence']:.0%} interval"
    header = ["Measure", *(SYSTEM_NAMES[system] for system in systems), "Ours − BM25"]
    return [
        Beside(only="page", blocks=drawn),
        Table(caption=caption, header=header, rows=rows),
        Items(items=[text, *metrics["warnings"]]),
        *measurement_blocks(metrics),
    ]


def held_out(measured: Mapping[str, Any]) -> list[str]:
    """The last epoch of a training on held-out data, in a fixed order."""
    return [form.format(measured[name]) for name, form in HELD_OUT.items() if measured.get(name) is not None]


def headline(result: Mapping[str, Any]) -> str:
    """A stage's result in one line, as its command says it; empty for a stage without one."""
    command = COMMANDS.get(result["stage"])
    return code(command.headline)(result) if command and command.headline else ""


def ingest_headline(result: Mapping[str, Any]) -> str:
    ledger, counts = Ledger(**result["ledger"]), result["counts"]
    lost = f"{ledger.of_kind('dropped'):,} lines dropped, {ledger.of_kind('unreadable'):,} unreadable"
    return f"{ledger.total:,} lines -> {counts['queries']:,} queries; {lost}"


def build_headline(result: Mapping[str, Any]) -> str:
    counts = result["counts"]
    pool = f"a pool of {counts['pool_documents']:,} titles"
    return f"{counts['train_pairs']:,} pairs to train on, {counts['dev_pairs']:,} held out, {pool}"


def train_headline(result: Mapping[str, Any]) -> str:
    m = result["metrics"]
    refused = "".join(f"; {why}: went on from before it" for why in m.get("refused_checkpoints", ()))
    unit = "examples" if {"dev_accuracy", "dev_kl"} & set(m) else "pairs"
    rate = f"{m['pairs_per_second']:,.0f} {unit}/s"
    words = f", vectors for {m['known_words']:,} of {m['shard_words']:,} words" if "known_words" in m else ""
    parts = [f"{m['epoch']} epochs", f"training loss {m['train_loss']:.3f}", *held_out(m), rate]
    return ", ".join(parts) + words + refused


def evaluate_headline(result: Mapping[str, Any]) -> str:
    metrics = result["metrics"]
    name, _ = _chosen(metrics)
    ours, bm25 = (metrics["systems"][system][name]["mean"] for system in ("model", "bm25"))
    return f"{measure_name(name)} {ours:.3f}, BM25 {bm25:.3f}, over {metrics['n']:,} queries"


def publish_headline(result: Mapping[str, Any]) -> str:
    m = result["metrics"]
    encoded, reused = (m["encoded"].get(name, 0) for name in ("encoded", "reused"))
    taken = f" ({encoded:,} titles encoded, {reused:,} reused)" if reused and not result["reused"] else ""
    index, end = m["index"], "live" if m["live"] else "kept as a candidate"
    search = "searched exactly"
    if index["kind"] != "none":
        search = f"recall@{index['recall_at']} of the index {m['recall']:.3f}"
    return f"{m['num_documents']:,} documents{taken}, {search}, {end}"


# The report.

WHY = {
    "gain": "among those where we gain most",
    "loss": "among those where we lose most",
    "no shared word": "shares no word with a relevant title",
    "drawn": "drawn at random",
}


def report_page(title: str, results: Results, commands: Sequence[str]) -> Page:
    """The report of a run, from its results and the files that they name. commands: what to try next."""
    # NumPy and the recipes take long to load.
    from clicktower.flows.report.training_blocks import read_json, training_blocks
    from clicktower.schemas.section import flat

    build, train, release = results["build"], results["train"], results["publish"]
    manifest = open_result(train["path"]).manifest
    return run_page(
        title,
        results,
        k=open_result(build["path"]).manifest.request.config["k"],
        training=training_blocks(train),
        examples=read_json(results["evaluate"], "examples.json"),
        decision=_promotion_of(release),
        commands=commands,
        settings=flat(manifest.request.config["recipe"]) | {"release": release["digest"]},
        versions=manifest.software,
    )


def _promotion_of(release: Mapping[str, Any]) -> dict[str, Any] | None:
    """The decision about a run's release, now or when it went live; None without one."""
    metrics = release["metrics"]
    decision = metrics.get("decision")
    if (
        decision is None
        and release["reused"]
        and (earlier_decision := read_decision(metrics["release"], release["digest"]))
    ):
        decision = asdict(earlier_decision)
    return decision and {"live": metrics["live"], **decision}


def run_page(
    title: str,
    results: Results,
    *,
    k: int,
    training: Sequence[Block],
    examples: Sequence[Mapping[str, Any]],
    decision: Mapping[str, Any] | None,
    commands: Sequence[str],
    settings: Mapping[str, Any],
    versions: Mapping[str, str],
) -> Page:
    """The report, section by section.

    k: of the privacy gate. examples: examples.json of the evaluation. decision: {"live", "reason", "figures"}, None
    without one. commands: what to try next.
    """
    evaluation, build, compared = results["evaluate"], results["build"], results.get("compare")
    by_clicks = evaluation["labels"].get("judgments") == "click-derived"
    stages = [result for result in results.values() if isinstance(result, Mapping)]
    text = f"A query is learned from only if at least k people typed it; here k = {k}."
    rows = results["drift"]
    unusual = list[Block]()
    if num_compared(rows):
        from clicktower.flows.report.guard_blocks import drift

        unusual = drift(rows)
    noted = [f"{stage['stage']}: {note}" for stage in stages for note in notes(stage)]
    outputs = [[stage["stage"], stage["digest"], stage["path"]] for stage in stages]
    comparison = list[Section]()
    if compared:
        from clicktower.flows.report.comparison_page import comparison_blocks

        comparison = comparison_blocks(compared["metrics"])
    blocks = [
        Section(title="Result", blocks=_result(results, commands)),
        Section(title="Ranking", blocks=ranking(evaluation["metrics"])),
        *([Section(title="Promotion", blocks=promotion(decision, by_clicks))] if decision else []),
        *([Section(title="To look at", blocks=[Items(items=noted)])] if noted else []),
        *([Section(title="Unusual since the last runs", blocks=unusual)] if unusual else []),
        Section(title="How it was made", blocks=_stages(stages)),
        Section(title="What became of every line", blocks=[ledger_table(Ledger(**build["ledger"]))]),
        Section(title="What privacy costs", blocks=[Text(text=text), gate_table(build["metrics"]["left_at_k"], k)]),
        Section(title="Training", blocks=training),
        *comparison,
        Section(title="Queries to look at", blocks=_examples(examples, by_clicks)),
        record(settings, versions, outputs),
    ]
    simulated = bool(evaluation["labels"].get("simulated"))
    banners = [BY_CLICKS] * by_clicks + [SIMULATED] * simulated
    return Page(kind="report of a run", title=title, lead=_lead(results), banners=banners, blocks=blocks)


def _lead(results: Results) -> str:
    ingest, build = results["ingest"], results["build"]
    first, last = ingest["metrics"]["first_time"], ingest["metrics"]["last_time"]
    when = f" from {first[:10]} to {last[:10]}" if first and last else ""  # a log may have no times (ORCAS)
    queries, pairs = ingest["counts"]["queries"], build["counts"]["train_pairs"]
    return f"{build['ledger']['total']:,} log lines{when}: {queries:,} different queries, {pairs:,} training pairs."


def _result(results: Results, commands: Sequence[str]) -> list[Block]:
    metrics, release = results["evaluate"]["metrics"], results["publish"]["metrics"]
    serves = "The release that serves it" if release["live"] else "It is a candidate; an earlier release stays live at"
    return [
        Text(text=result(metrics), tone=verdict(metrics)),
        Text(text=f"{serves}: {release['release']}"),
        *([Heading(text="Try next"), *(Code(text=command) for command in commands)] if commands else []),
    ]


def _stages(stages: Sequence[Mapping[str, Any]]) -> list[Block]:
    longest = max(stage["duration_seconds"] or 0 for stage in stages)
    worked = duration(sum(stage["duration_seconds"] or 0 for stage in stages if not stage["reused"]))
    text = f"This run worked for {worked}."
    if all(stage["reused"] for stage in stages):
        text = "Every output was there already, so this run had nothing to do."
    if any(stage["reused"] for stage in stages):
        text += " What is marked reused was finished before; its time is that of the first run."
    rows: list[list[Cell | str]] = [
        [
            stage["stage"],
            Cell(text=duration(stage["duration_seconds"]), aside="reused" if stage["reused"] else ""),
            Cell(share=(stage["duration_seconds"] or 0) / (longest or 1), tone="" if stage["reused"] else "kept"),
            headline(stage),
        ]
        for stage in stages
    ]
    header = ("Stage", "Time", "", "Outcome")
    return [Text(text=text), Table(caption="Stages and what each did", header=header, rows=rows, left=(0, 2, 3))]


def _examples(examples: Sequence[Mapping[str, Any]], click_derived: bool) -> list[Block]:
    blocks: list[Block] = [grade_legend(click_derived)]
    for example in examples:
        rankings = [ranking_table(SYSTEM_NAMES[system], example["rankings"][system]) for system in ("model", "bm25")]
        blocks += [
            Heading(text=example["query"]), Text(text=WHY[example["why"]], tone="quiet"), Beside(blocks=rankings),
        ]  # fmt: skip
    return blocks
