"""A RunSummary -> blocks: the parts of a run's report, which the terminal and the run's page in Prefect show too."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from flows.report import html
from flows.report.blocks import (
    BY_CLICKS,
    SIMULATED,
    Beside,
    Block,
    Cell,
    Code,
    Figures,
    Heading,
    Items,
    Page,
    Picture,
    Section,
    Table,
    Text,
    grade_legend,
    ranked,
)
from flows.report.comparison_page import comparison_blocks
from flows.report.figures import ChartRow, Line, dot_of, line_chart, row_chart
from flows.report.summary import Example, RunSummary, TrainingSummary
from schemas.search_log import FATES, Ledger
from training.wording import duration, measure_name

KINDS = {"kept": "Kept", "dropped": "Dropped by a rule", "unreadable": "Unreadable"}
SYSTEM_NAMES = {"model": "Ours", "bm25": "BM25", "random": "Random"}
MEASURES_DRAWN = ("ndcg@1", "ndcg@3", "ndcg@10", "collection_ndcg@10")
GAINS = {"exponential": "2^grade - 1", "linear": "grade"}
TAKES = {
    "build": ("ingest",), "train": ("build",), "compare": ("build",), "evaluate": ("train",),
    "publish": ("train", "evaluate"),
}  # fmt: skip
WHY = {
    "gain": "among those where we gain most",
    "loss": "among those where we lose most",
    "no shared word": "shares no word with a relevant title",
    "drawn": "drawn at random",
}


def write_report(path: str, run: RunSummary) -> None:
    """Write the report of a run; it replaces an older one as a whole. Raises OSError where it cannot be written."""
    html.write_page(path, page(run))


def page(run: RunSummary) -> Page:
    """All that is known of a run, section by section."""
    sections = [
        Section(title="Result", blocks=_result(run)) if run.table or not (run.training or run.comparison) else None,
        Section(title="Promotion", blocks=promotion(run.promotion, run.click_derived)) if run.promotion else None,
        Section(title="Unusual since the last runs", blocks=drift(run.drift)) if run.drift else None,
        Section(title="How it was made", blocks=_stages(run)) if run.stages else None,
        Section(title="What became of every line", blocks=_lines(run.ledger)) if run.ledger else None,
        Section(title="What privacy costs", blocks=_privacy(run)) if run.privacy else None,
        Section(title="Training", blocks=_training(run.training)) if run.training else None,
        Section(title="Ranking", blocks=ranking(run.table)) if run.table else None,
        *(comparison_blocks(run.comparison) if run.comparison else ()),
        Section(title="Queries to look at", blocks=_examples(run)) if run.examples else None,
        Section(title="For the record", blocks=_record(run)) if run.settings or run.versions or run.stages else None,
    ]
    banners = [BY_CLICKS] * run.click_derived + [SIMULATED] * run.simulated
    blocks = [section for section in sections if section]
    return Page(kind=run.kind, title=run.title, lead=run.description, banners=banners, blocks=blocks)


def _result(run: RunSummary) -> list[Block]:
    live = not run.promotion or run.promotion.get("live", True)
    serves = "The release that serves it" if live else "It is a candidate; an earlier release stays live at"
    return [
        Text(text=result(run), tone=verdict(run)),
        *([Text(text=f"{serves}: {run.release}")] if run.release else []),
        *([Heading(text="Try next"), *(Code(text=command) for command in run.commands)] if run.commands else []),
    ]


def result(run: RunSummary, measure: str = "ndcg@10") -> str:
    """The outcome in a paragraph of plain words; what the run did not measure is said to be missing."""
    if not run.table or measure not in run.table["systems"].get("model", {}):
        return "This run measured no ranking: there is no table of NDCG to report."
    systems = run.table["systems"]
    ours, n = systems["model"][measure], run.table.get("n")
    over = f"Over {n:,} judged queries, our" if n else "Our"
    first = f"{over} {measure_name(measure)} is {_interval(ours)}"
    if measure not in systems.get("bm25", {}):
        return f"{first}. BM25 was not measured."
    first += f", and BM25's is {_interval(systems['bm25'][measure])}."
    difference = _difference(run.table, measure)
    if difference is None:
        return first + " The two were not compared query by query, so nothing is said about chance."
    low, high = difference["low"], difference["high"]
    end = {
        "better": "which excludes zero: ours is better, and chance does not explain it.",
        "worse": "which excludes zero: BM25 is better, and chance does not explain it.",
        "open": "which includes zero: these queries cannot tell the two apart.",
    }[verdict(run, measure)]
    confidence = f"{run.table.get('confidence', 0.95):.0%}"
    return (
        f"{first} Query by query the difference is {difference['mean']:+.3f} ({confidence} interval {low:+.3f} to"
        f" {high:+.3f}), {end}"
    )


def verdict(run: RunSummary, measure: str = "ndcg@10") -> str:
    """better, worse, open, or unknown."""
    difference = _difference(run.table, measure) if run.table else None
    if difference is None:
        return "unknown"
    return "better" if difference["low"] > 0 else "worse" if difference["high"] < 0 else "open"


def promotion(found: Mapping[str, Any], click_derived: bool) -> list[Block]:
    """Whether the release went live and why, with the slices that were looked at."""
    live, figures = found.get("live", True), found["figures"]
    told = f"{'Live.' if live else 'Kept as a candidate.'} {found['reason']}"
    blocks: list[Block] = [Text(text=told, tone="better" if live else "open")]
    if click_derived and figures.get("difference"):
        blocks.append(Text(text="The two models were judged by clicks; no judge compared them."))
    if slices := figures.get("slices"):
        blocks.append(
            Table(
                caption=f"{measure_name(figures.get('measure', 'ndcg@10'))} on parts of the queries; a part that falls"
                " by more than its limit keeps the candidate",
                header=("Part", "Queries", "Live", "Candidate", "Change", "Limit"),
                rows=[[
                    Cell(text=row["part"], aside=row["slice"]), f"{row['n']:,}", f"{row['live']:.3f}",
                    f"{row['candidate']:.3f}",
                    Cell(text=f"{row['difference']:+.3f}", aside="too much worse" if row["worse"] else ""),
                    f"{-row['limit']:.3f}" if row["decides"] else Cell(text="too few to decide", tone="quiet"),
                ] for row in slices],
            )
        )  # fmt: skip
    return blocks


def usual(rows: Sequence[Mapping[str, Any]]) -> str:
    """What is said where nothing alarms."""
    compared = sum(row["usual"] != "—" for row in rows)
    return f"Nothing, of {compared} that could be compared." if compared else "There are too few earlier runs to say."


def drift(rows: Sequence[Mapping[str, Any]]) -> list[Block]:
    """The alarms, and every figure beside its usual value."""
    alarms = [row["alarm"] + (" It stopped the run." if row.get("stops") else "") for row in rows if row["alarm"]]
    return [
        Items(items=alarms, tone="alarm") if alarms else Text(text=usual(rows)),
        Table(
            caption="Figures of this run beside the median of earlier ones",
            header=("Figure", "This run", "Usual", "From"),
            rows=[[row["words"], row["value"], row["usual"], row["basis"]] for row in rows],
            left=(0, 3),
            strong=[at for at, row in enumerate(rows) if row["alarm"]],
        ),
    ]


def _stages(run: RunSummary) -> list[Block]:
    names, longest = [stage.name for stage in run.stages], max(stage.duration_seconds or 0 for stage in run.stages)
    worked = duration(sum(stage.duration_seconds or 0 for stage in run.stages if not stage.reused))
    told = f"This run worked for {worked}."
    if all(stage.reused for stage in run.stages):
        told = "Every output was there already, so this run had nothing to do."
    if any(stage.reused for stage in run.stages):
        told += " What is marked reused was finished before; its time is that of the first run."
    rows: list[list[Cell | str]] = [
        [
            stage.name,
            ", ".join(name for name in TAKES.get(stage.name, ()) if name in names),
            Cell(text=duration(stage.duration_seconds), aside="reused" if stage.reused else ""),
            Cell(share=(stage.duration_seconds or 0) / (longest or 1), tone="" if stage.reused else "kept"),
            stage.headline,
            Cell(text=stage.digest[:12], tip=stage.path, tone="code"),
        ]
        for stage in run.stages
    ]
    return [
        Text(text=told),
        Table(
            caption="Stages, what each takes from which, what it did, and the digest that names its output",
            header=("Stage", "Takes", "Time", "", "Outcome", "Digest"),
            rows=rows,
            left=(0, 1, 3, 4, 5),
        ),
    ]


def _lines(ledger: Ledger) -> list[Block]:
    told = f"The log has {ledger.total:,} lines. Each has one fate, and the fates add up to all of them."
    return [Text(text=told), ledger_table(ledger)]


def ledger_table(ledger: Ledger) -> Table:
    """Every line's fate: kept first, each kind's largest first, with a bar for its share."""
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
        caption="The fate of every line", header=("Fate", "Lines", "Share", ""), rows=rows, left=(0, 3),
        strong=[*strong, len(rows) - 1],
    )  # fmt: skip


def _privacy(run: RunSummary) -> list[Block]:
    here = f"; here k = {run.k}" if run.k is not None else ""
    return [
        Text(
            text=f"A query is learned from only if at least k people typed it{here}. This is what other values would"
            " leave to learn from."
        ),
        gate_table(run.privacy, run.k),
    ]


def gate_table(kept: Sequence[Mapping[str, Any]], k: int | None) -> Table:
    """What the privacy gate leaves at each k: rows of k, queries, clicks and pairs."""
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


def ranking(table: Mapping[str, Any]) -> list[Block]:
    """Every measure of every system with its interval, the difference to BM25, and how they were measured."""
    systems = table["systems"]
    measures = list(dict.fromkeys(measure for values in systems.values() for measure in values))
    difference = (table.get("difference") or {}).get("measures")
    header = ["Measure", *(SYSTEM_NAMES.get(name, name) for name in systems)]
    rows: list[list[Cell | str]] = []
    for measure in measures:
        best = max(values[measure]["mean"] for values in systems.values() if measure in values)
        row = [_value(values.get(measure), "{:.3f}", best) for values in systems.values()]
        if difference:
            row.append(_value(difference.get(measure), "{:+.3f}", None))
        rows.append([measure_name(measure), *row])
    over = f" over {table['n']:,} queries" if "n" in table else ""
    caption = f"Mean{over}, with {table.get('confidence', 0.95):.0%} interval"
    drawn = [
        Picture(
            title=measure_name(measure),
            picture=partial(
                row_chart,
                [
                    ChartRow(
                        name=SYSTEM_NAMES.get(name, name),
                        dots=[dot_of(values[measure])],
                        remark=f"{values[measure]['mean']:.3f}",
                        ours=name == "model",
                    )
                    for name, values in systems.items()
                    if measure in values
                ],
                measure_name(measure),
            ),
        )
        for measure in MEASURES_DRAWN
        if measure in measures
    ]
    return [
        Beside(only="page", blocks=drawn),
        Table(caption=caption, header=[*header, *(["Ours − BM25"] if difference else [])], rows=rows),
        Items(items=protocol(table)),
        Items(only="page", items=_sentences(table.get("rules"))),
    ]


def protocol(table: Mapping[str, Any]) -> list[str]:
    """How the numbers of the table were measured, and how ours differs from BM25."""
    told = []
    if "n_informative" in table:
        told.append(
            f"{table['n']:,} queries, of which {table['n_informative']:,} have judgments of more than one grade"
        )
    if "gain" in table:
        told.append(f"gain {GAINS[table['gain']]}, discount log2(rank + 1), ties as trec_eval")
    if (against := _difference(table, "ndcg@10")) and "p" in against:
        told.append(
            f"ours - BM25 at NDCG@10: {against['mean']:+.3f} [{against['low']:+.3f}, {against['high']:+.3f}],"
            f" p = {against['p']:.4f}"
        )
    return [*told, *table.get("warnings", ())]


def _value(value: Mapping[str, float] | None, form: str, best: float | None) -> Cell:
    if value is None:
        return Cell(text="—")
    between = " to " if "+" in form else "–"
    aside = between.join(form.format(value[end]) for end in ("low", "high")) if "low" in value else ""
    return Cell(text=form.format(value["mean"]), aside=aside, strong=value["mean"] == best)


def _examples(run: RunSummary) -> list[Block]:
    blocks: list[Block] = [grade_legend(run.click_derived)]
    for example in run.examples:
        blocks += [
            Heading(text=example.query),
            *([Text(text=WHY.get(example.why, example.why), tone="quiet")] if example.why else []),
            Beside(blocks=[_ranked("Ours", example, "ours"), _ranked("BM25", example, "bm25")]),
        ]
    return blocks


def _ranked(name: str, example: Example, which: str) -> Block:
    titles = getattr(example, which)
    return ranked(name, [(t.grade, t.title, "" if t.score is None else f"{t.score:.3f}") for t in titles])


def _record(run: RunSummary) -> list[Block]:
    tables = [
        ("Outputs", ("Stage", "Digest", "Path"), [[s.name, s.digest, s.path] for s in run.stages]),
        ("Settings", ("Name", "Value"), flatten(run.settings)),
        ("Versions", ("Name", "Value"), [[*row] for row in run.versions.items()]),
    ]
    return [
        Section(
            title=name, folded=True,
            blocks=[Table(caption=f"{name} of this run", header=header, rows=rows, left=range(3))],
        )
        for name, header, rows in tables
        if rows
    ]  # fmt: skip


def flatten(settings: Mapping[str, Any], prefix: str = "") -> list[list[str]]:
    """Nested settings as rows: ("train.step", "0.002")."""
    rows: list[list[str]] = []
    for name, value in settings.items():
        if isinstance(value, Mapping):
            rows += flatten(value, f"{prefix}{name}.")
        else:
            rows.append([f"{prefix}{name}", "—" if value is None else str(value)])
    return rows


def percent(part: float, whole: float) -> str:
    """A share with as many digits as it needs; never 0% of something that is there."""
    if not whole:
        return "—"
    share = 100 * part / whole
    if 0 < share < 0.01:
        return "< 0.01%"
    return f"{share:.1f}%" if share >= 1 or share == 0 else f"{share:.2f}%"


def _difference(table: Mapping[str, Any], measure: str) -> Mapping[str, float] | None:
    found = table.get("difference") or {}
    if (found.get("of", "model"), found.get("to", "bm25")) != ("model", "bm25"):
        return None
    return found.get("measures", {}).get(measure)


def _interval(value: Mapping[str, float]) -> str:
    if "low" not in value:
        return f"{value['mean']:.3f}"
    return f"{value['mean']:.3f} ({value['low']:.3f} to {value['high']:.3f})"


def _sentences(rules: Mapping[str, str] | None) -> list[str]:
    return [f"{name.replace('_', ' ')}: {text}" for name, text in (rules or {}).items()]


# Training: what was trained and how, and its curves.


def _training(training: TrainingSummary) -> list[Block]:
    drawn = pictures(training)
    smooth = (
        f"Lines of steps are smoothed over a fortieth of the {training.num_steps:,} updates; four of five steps lie"
        " within the shade."
    )
    return [
        *([Figures(figures=training.figures)] if training.figures else []),
        Beside(only="page", blocks=drawn),
        *([Text(text=smooth, tone="quiet", only="page")] if training.num_steps else []),
        *([Table(caption="What was trained, and how", rows=training.facts)] if training.facts else []),
    ]


def pictures(training: TrainingSummary) -> list[Picture]:
    """Each figure, drawn where something of it is known."""
    rankings = "NDCG on judged queries" if training.watched == "judgments" else "NDCG on held-out clicks"
    towers = [name.removeprefix("gradient_norm_") for name in _names(training.steps) if _is_norm(name)]
    level = ("th_G", training.clip_norm) if training.clip_norm else None
    first = 0.0 if training.steps else None
    unit, per_second = training.unit, f"{training.unit.capitalize()}s per second"
    drawn = [
        (f"Loss per {unit}", "dots: train, the mean of an epoch; held out, after it", partial(line_chart,
            _losses(training), f"Loss per {unit}", log=_many_sizes(training), first=first)),
        (rankings, "after each epoch", partial(line_chart,
            [Line(name=f"@{k}", points=_of_epochs(training.epochs, f"dev_ndcg@{k}")) for k in (10, 3, 1)], rankings,
            most=1.0, first=first)),
        ("Accuracy and area under ROC", "on held-out labels, after each epoch", partial(line_chart,
            [Line(name=name, points=_of_epochs(training.epochs, key)) for name, key in (
                ("area", "dev_area_under_roc"), ("accuracy", "dev_accuracy"))],
            "Accuracy and area under ROC", most=1.0, first=first)),
        ("Cross-entropy per word", "in nats, of reconstructed held-out texts, after each epoch", partial(line_chart,
            [Line(name=name, points=_of_epochs(training.epochs, f"dev_word_{name}")) for name in (
                "reformulate", "repeat")], "Cross-entropy per word", first=first)),
        ("KL divergence", "from N(0, I), in nats, of held-out texts, after each epoch", partial(line_chart,
            [Line(name="KL", points=_of_epochs(training.epochs, "dev_kl"))], "KL divergence", from_zero=True,
            first=first, show="{:.2f}".format)),
        ("Norm of the gradient", f"{_clipped(training)}before re-normalisation", partial(line_chart,
            [_of_steps(training.steps, f"gradient_norm_{t}", t) for t in sorted(towers, reverse=True)],
            "Norm of the gradient", log=True, first=first, level=level, show="{:.3g}".format)),
        (per_second, "measuring and checkpoints not counted", partial(line_chart,
            [_of_steps(training.steps, "pairs_per_second", f"{unit}s/s")], per_second, from_zero=True,
            first=first, show="{:,.0f}".format)),
    ]  # fmt: skip
    return [Picture(title=title, remark=remark, picture=picture) for title, remark, picture in drawn]


def _losses(training: TrainingSummary) -> list[Line]:
    # A mean of an epoch's steps stands in its middle: at its end it would seem late beside the steps.
    by_epoch = [(epoch - 0.5, value) for epoch, value in _of_epochs(training.epochs, "train_loss")]
    by_step = _of_steps(training.steps, "loss", "train")
    held_out = _of_epochs(training.epochs, "dev_loss")
    return [
        Line(name="train", points=by_step.points or by_epoch, band=by_step.band, dots=by_epoch),
        Line(name="held out", points=held_out, dots=held_out),
    ]


def _many_sizes(training: TrainingSummary) -> bool:
    """Whether the loss falls so far that its end could not be told from zero on a linear scale."""
    losses = [point["train_loss"] for point in training.epochs]
    return bool(losses) and 0 < 10 * min(losses) < max(losses + [step["loss"] for step in training.steps])


def _of_epochs(epochs: Sequence[Mapping[str, Any]], key: str) -> list[tuple[float, float | None]]:
    return [(float(point["epoch"]), point.get(key)) for point in epochs]


def _of_steps(steps: Sequence[Mapping[str, float]], key: str, name: str) -> Line:
    return Line(
        name=name,
        points=[(step["epoch"], step.get(key)) for step in steps],
        band=[(step["epoch"], step[f"{key}_low"], step[f"{key}_high"]) for step in steps if f"{key}_low" in step],
    )


def _names(steps: Sequence[Mapping[str, float]]) -> list[str]:
    return list(steps[0]) if steps else []


def _is_norm(name: str) -> bool:
    return name.startswith("gradient_norm_") and not name.endswith(("_low", "_high"))


def _clipped(training: TrainingSummary) -> str:
    if not training.clip_norm:
        return ""
    shares = [point["clipped_share"] for point in training.epochs if point.get("clipped_share") is not None]
    return f"held down to th_G in {sum(shares) / len(shares):.0%} of the steps; " if shares else ""
