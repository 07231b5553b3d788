"""How models read some texts -> blocks: explain.html and the terminal."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import numpy as np

from clicktower.flows.report import figures, heat_maps
from clicktower.flows.report.blocks import (
    SIMULATED,
    Beside,
    Block,
    Cell,
    Heading,
    Items,
    Page,
    Picture,
    Section,
    Table,
    Text,
    Words,
)
from clicktower.training.analysis.explanation import Explanation, called, gates_json, topics_json
from clicktower.training.analysis.keywords import CountingRule, Keywords, by_counts, most_active
from clicktower.training.analysis.printed_pairs import LSTM_TO_LEFT, LSTM_TO_RIGHT, TOP_CELLS, PrintedPair, PrintedText
from clicktower.training.analysis.traces import Trace, TracedText, overall, overlap

SCORES = {
    "cosine": "the cosine of the two texts, from −1 to 1",
    "euclidean": "minus the distance W₂ of the two texts’ distributions: 0 where they are the same",
}
Range = Literal["shared", "panel"]
PANELS = {
    "i": ("input gate", "how much of the word is let in"),
    "f": ("forget gate", "how much of the past is kept"),
    "o": ("output gate", "how much of the state shows"),
    "y_g": ("candidate", "what the word would add"),
    "c": ("cell state", "what was added up so far"),
    "y": ("output", "passed on"),
}
ARROWS = {"left to right": "→", "right to left": "←"}
TABLE_WORDS = 40  # of a text
GRID_CELLS = 10  # with columns that fit side by side
HOPS = 8  # with columns that fit side by side
SHARED = heat_maps.Scale(low=-1.0, high=1.0)  # everything but c lies within
SHADES = 5
ONE_WORD = (
    "A text of one word is read in one step: no cell moves from word to word, so nothing is counted and no word can be"
    " a keyword."
)
OF_GATES = (
    "Keywords are words at which cells move, and a cell moves by i · y_g: a part of a difference comes with the"
    " definition. Where the positions are told apart, words at the same place are compared. Whiskers: the mean ± 1.96"
    " standard errors. A word that is read first is neither."
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Readings:
    """Readings of the same texts and queries by one model or two."""

    models: tuple[Explanation, ...]
    rule: CountingRule
    colours: Range = "shared"
    label: str = ""  # a person's label for the pair
    printed: tuple[PrintedPair, ...] = ()  # the pairs that were read, where they are the paper's
    simulated: bool = False


def explain_page(readings: Readings) -> Page:
    """The page of a text, a pair, or the words of many queries."""
    texts = [text.text if len(text.text) <= 60 else text.text[:59] + "…" for text in readings.models[0].texts]
    title = "The paper’s two pairs" if readings.printed else " / ".join(texts) or "What the cells stand for"
    return Page(
        kind="what a model reads",
        title=title,
        lead=f"Read by {' and '.join(model.name for model in readings.models)}.",
        banners=[SIMULATED] * readings.simulated,
        blocks=explain_blocks(readings),
    )


def explain_blocks(readings: Readings) -> list[Block]:
    """Scores, each text word by word, cells and their words, gates, the training cost, and the rules."""
    models = readings.models
    rules = [f"{rule[0].upper()}{rule[1:]}." for rule in readings.rule.sentences.values()]
    private = "This page holds the texts as they were given, and words of the queries: it is as private as they are."
    numbers = "Cells are numbered from 0 in each direction. Two models’ cells have nothing to do with each other."
    return [
        *_scores(readings),
        *(_text(readings, number) for number in range(len(models[0].texts))),
        *(_topics(model) for model in models if model.topics),
        *_gates(models),
        *_cost(models),
        Section(title="The rules", blocks=[Items(items=rules), Items(items=[numbers, private], only="page")]),
    ]


def _scores(readings: Readings) -> list[Block]:
    blocks: list[Block] = []
    for reading in readings.models:
        for number, score in enumerate(reading.scores):
            meaning = SCORES[reading.recipe.objective.similarity]
            subject = f"“{reading.texts[2 * number].text}” and its title" if len(reading.scores) > 1 else "The pair"
            blocks.append(Text(text=f"{subject} by {reading.name}: {score:.3f}, {meaning}.", tone="unknown"))
        for number, classes in enumerate(reading.classes):
            unit = "pair" if len(reading.classes) < len(reading.texts) else called(reading, number)
            shares = ", ".join(f"{name} {share:.3f}" for name, share in classes.items())
            sentence = (
                f"Classes of the {unit} by {reading.name}: {shares}, how likely each is by the head of the model."
            )
            blocks.append(Text(text=sentence, tone="unknown"))
    if readings.label:
        blocks.append(Text(text=f"Label of the pair by a person: {readings.label}.", tone="unknown"))
    for pair in readings.printed:
        scores = ", ".join(f"{name} {score:.4f}" for name, score in pair.scores.items())
        sentence = f"“{pair.query.text}” and its title in the paper: {scores}, from 0 to 1; a person says {pair.label}."
        blocks.append(Text(text=sentence, tone="quiet"))
    return blocks


def _text(readings: Readings, number: int) -> Section:
    """Everything shown for a text: its shaded words, the table of counts, and each model's pictures."""
    counted_texts = [(reading, reading.texts[number], reading.counted[number]) for reading in readings.models]
    blocks: list[Block] = []
    for reading, text, counted in counted_texts:
        num_words = len(text.words)
        blocks.append(Text(text=f"{reading.name}, {num_words:,} word{'s' if num_words > 1 else ''}", tone="quiet"))
        blocks.append(_shaded(text, counted))
    legend = (
        f"The stronger a word’s colour, the more of the {readings.rule.top_cells} most active cells it moves; it is"
        " underlined if it is a keyword. –: the word is read first, so there is nothing to move from."
    )
    printed = [text for pair in readings.printed for text in (pair.query, pair.title)]
    blocks += [Text(text=legend, tone="quiet", only="page"), _counts(counted_texts, *printed[number : number + 1])]
    if len(counted_texts[0][1].words) == 1:
        blocks.append(Text(text=ONE_WORD, tone="quiet"))
    for reading, text, _ in counted_texts:
        if (weights := text.attention) is not None:
            look = "hops look" if len(weights) > 1 else "hop looks"
            blocks += attention_blocks(f"{reading.name}: where its {len(weights)} {look}", weights, text.words)
    for reading, text, _ in counted_texts:
        for trace in text.traces:
            blocks += _pictures(reading, text, trace, readings)
    name = f"The {called(readings.models[0], number)}"
    if printed:
        name += f" “{printed[number].text}”"
    return Section(title=f"{name}, word by word", blocks=blocks)


def _shaded(text: TracedText, marks: Keywords) -> Words:
    num_cells = max(len(direction.cells) for direction in marks.counted)
    keywords = set(marks.keywords)
    tips = [
        ", ".join(
            f"{ARROWS[way.direction]} {'no count' if count is None else f'{count} of {len(way.cells)} cells'}"
            for way, count in zip(marks.counted, counts, strict=True)
        )
        for counts in zip(*(direction.counts for direction in marks.counted), strict=True)
    ]
    words = enumerate(zip(text.words, marks.most, strict=True))
    return Words(words=[(word, -(-most * SHADES // num_cells), at in keywords, tips[at]) for at, (word, most) in words])


def _counts(readings: Sequence[tuple[Explanation, TracedText, Keywords]], printed: PrintedText | None = None) -> Table:
    """Counts side by side: a row for each word, a column for each model and direction, as in Tables I and V to VIII,
    and those of the paper.
    """
    longest = max((text for _, text, _ in readings), key=lambda text: len(text.words))
    most: Counter[int] = Counter()
    for _, _, counted in readings:
        for at, count in enumerate(counted.most):
            most[at] = max(most[at], count)
    chosen = sorted(sorted(most, key=lambda at: (-most[at], at))[:TABLE_WORDS])
    header, rows = ["", "Word"], [[f"{at + 1}", longest.words[at]] for at in chosen]
    table: list[list[Cell | str]] = [[*row] for row in rows]
    for reading, _, counted in readings:
        header += [f"{reading.name} {ARROWS[way.direction]} of {len(way.cells)}" for way in counted.counted] + [""]
        for row, at in zip(table, chosen, strict=True):
            inside = at < len(counted.most)
            row += [_count(way.counts[at], len(way.cells)) if inside else "" for way in counted.counted]
            row.append(Cell(text="keyword" if at in counted.keywords else "", tone="above"))
    if printed:
        both_ways = [printed.counts[LSTM_TO_RIGHT], printed.counts[LSTM_TO_LEFT]]
        keywords = by_counts(both_ways, [TOP_CELLS] * 2)
        for network, counts in printed.counts.items():
            header += [f"paper, {network} of {TOP_CELLS}", *([""] if network == LSTM_TO_LEFT else [])]
            for row, at in zip(table, chosen, strict=True):
                row.append(_count(counts[at], TOP_CELLS))
                if network == LSTM_TO_LEFT:  # both directions together say what is a keyword
                    row.append(Cell(text="keyword" if at in keywords else "", tone="above"))
    cut = f": the {TABLE_WORDS} words with the largest counts, of {len(longest.words):,}"
    return Table(
        caption=f"How many of the most active cells each word moves{cut if len(most) > TABLE_WORDS else ''}",
        header=header, rows=table, left=[0, 1, *(at for at, name in enumerate(header) if not name)],
    )  # fmt: skip


def _count(count: int | None, total: int) -> Cell:
    return Cell(text="–" if count is None else str(count), shade=(count or 0) / total)


def _pictures(explanation: Explanation, text: TracedText, trace: Trace, readings: Readings) -> list[Block]:
    """The gates and states of one direction, and y of the most active cells alone (Fig. 6, 11, 12)."""
    cells, shared = readings.rule.top_cells, readings.colours == "shared"
    columns, active, panels = heat_maps.word_columns(text.words), most_active(trace, cells), []
    for name, (title, meaning) in PANELS.items():
        if name not in trace.states:
            continue
        values = trace.states[name]
        scale = SHARED if shared else heat_maps.panel_scale(values)
        sentence = meaning
        if shared:
            beyond = "; beyond ±1 as ±1" if abs(values).max() > SHARED.high else ""
            sentence += f"; {values.min():.2f} to {values.max():.2f}{beyond}"
        picture = partial(heat_maps.heat_map, values, columns, active, scale, f"{title} {name}(t)")
        panels.append(Picture(picture=picture, remark=sentence, legend=[] if shared else _scale(scale)))
    y = trace.states["y"][:, active]
    scale = heat_maps.panel_scale(y)
    names = [f"{cell}  {value:+.2f}" for cell, value in zip(active, trace.vector[[*active]], strict=True)]
    apart = Picture(
        title="The most active cells alone",
        remark="y(t) on a scale of its own; beside a cell’s number the value by which it is one of them",
        picture=partial(heat_maps.heat_map, y, columns, range(len(active)), scale, "output y(t)", names),
        legend=_scale(scale),
    )  # fmt: skip
    of_all = f"Every gate and state: a column is a word, a row a cell, the {cells} most active on top in that order."
    notes = [f"{of_all} Colours: −1 orange, 0 none, 1 green." if shared else of_all]
    if columns.words_each > 1:
        notes.append(
            f"The text has more than {heat_maps.MOST} words, so a column is the mean over {columns.words_each} "
            "consecutive words. Every word is in traces.arrow."
        )
    return [
        Heading(text=f"{explanation.name}, read {trace.direction}", only="page"), apart,
        Text(text=" ".join(notes), tone="quiet", only="page"), Beside(blocks=panels, natural=True, only="page"),
    ]  # fmt: skip


def _scale(scale: heat_maps.Scale) -> list[tuple[str, str]]:
    return [("both" if scale.around_zero else "scale", f"{scale.low:.2g} to {scale.high:.2g}")]


def attention_blocks(title: str, weights: Any, words: Sequence[str]) -> list[Block]:
    """Where the hops of a self-attentive tower look in a text: a row for each hop, and one for all of them.

    weights: [hops, words].
    """
    weights_rT = np.asarray(weights)
    together, shared, several = overall(weights_rT), overlap(weights_rT), len(weights_rT) > 1
    shown = np.vstack([weights_rT, *([together] if several else [])])
    scale = heat_maps.Scale(low=0.0, high=float(shown.max()))
    numbers = [*map(str, range(1, len(weights_rT) + 1)), *(["overall"] if several else [])]
    picture = partial(
        heat_maps.heat_map, shown.T, heat_maps.word_columns(words), range(len(shown)), scale, "hops", numbers
    )
    shades = np.rint(SHADES * together / together.max()).astype(int).tolist()
    text = Words(words=[(words[at], shade, False, f"{together[at]:.1%}") for at, shade in enumerate(shades)])
    sentence = "The weights of each hop add up to 1; overall, which shades the words, is their mean"
    sentence += "." if shared is None else f"; overlap {shared:.3f}, the mean of A Aᵀ off its diagonal."
    chosen = sorted(sorted(range(len(words)), key=lambda at: (-together[at], at))[:TABLE_WORDS])
    hops = [*weights_rT[:HOPS], *([together] if several else [])]
    names = [*(f"hop {at + 1}" for at in range(len(weights_rT[:HOPS]))), *(["overall"] if several else [])]
    remark = f" The first {HOPS} hops of {len(weights_rT)}; overall is of all." if len(weights_rT) > HOPS else ""
    table = Table(
        caption=f"% of each hop.{remark}", header=["word", *names], only="terminal",
        rows=[[words[at], *(Cell(text=f"{100 * hop[at]:.0f}", shade=float(hop[at])) for hop in hops)] for at in chosen],
    )  # fmt: skip
    return [
        Heading(text=title), text, Text(text=sentence, tone="quiet"),
        Picture(picture=picture, legend=_scale(scale)), table,
    ]  # fmt: skip


def _topics(explanation: Explanation) -> Section:
    topics = topics_json(explanation.topics)  # type: ignore[arg-type]
    sentence = (
        f"Over {topics['queries']:,} queries. Of each query the {topics['cells_per_query']} most active cells take the"
        f" keywords that move them. {topics['cells_with_words']} cells took any; these took most. A number says in how"
        " many queries the cell took the word, of how many in which it was a keyword; words taken from fewer than"
        f" {topics['least_queries']} queries are not named."
    )
    rows: list[list[Cell | str]] = [
        [
            f"{cell['cell']} {ARROWS[cell['direction']]}",
            Cell(text=f"{cell['keywords']:,}", aside=f"{cell['distinct']:,} different"),
            ", ".join(f"{w['word']} {w['queries']}/{w['of']}" for w in cell["words"]),
        ]
        for cell in topics["cells"]
    ]
    table = Table(caption="Keywords by cell", header=("Cell", "Keywords", "Most frequent"), rows=rows, left=(0, 2))
    blocks = [Text(text=sentence), table, *_grid(topics["grid"])]
    return Section(title=f"Which words which cells stand for: {explanation.name}", blocks=blocks)


def _grid(queries: Sequence[Mapping[str, Any]]) -> list[Block]:
    """A row per query, a column per cell that took a word of any, cells with most queries first (Table III)."""
    taken = [
        {f"{query['cell']} {ARROWS[query['direction']]}": ", ".join(query["words"]) for query in q["cells"]}
        for q in queries
    ]
    cells = [cell for cell, _ in Counter(cell for row in taken for cell in row).most_common()]
    tables: list[Block] = []
    for start in range(0, len(cells), GRID_CELLS):
        shown = cells[start : start + GRID_CELLS]
        rows = [
            [query["query"], *(Cell(text=row.get(cell, ""), shade=0.2 * (cell in row)) for cell in shown)]
            for query, row in zip(queries, taken, strict=True)
        ]
        caption = f"Words by query and cell, columns {start + 1} to {start + len(shown)} of {len(cells)}"
        left = range(1 + len(shown))
        tables.append(Table(caption=caption, header=("Query", *shown), rows=rows, left=left, only="page"))
    folded = [Section(title="The other cells", blocks=tables[1:], folded=True, only="page")] if tables[1:] else []
    lines = ["; ".join(f"{cell} {words}" for cell, words in row.items()) for row in taken]
    rows = [[query["query"], line] for query, line in zip(queries, lines, strict=True)]
    terminal = Table(
        caption="Words by query and cell", header=("Query", "Cells"), rows=rows, left=(0, 1), only="terminal"
    )
    return [*tables[:1], *folded, terminal] if queries else []


def _gates(models: Sequence[Explanation]) -> list[Block]:
    blocks: list[Block] = []
    for reading in models:
        for gates in gates_json(reading.gates):
            if gates["keywords"]["n"] and gates["others"]["n"]:
                blocks += [
                    Picture(
                        title=f"{reading.name}, read {gates['direction']}",
                        remark="mean of i(t) over all cells",
                        picture=partial(figures.row_chart, _means(gates), "Mean input gate"),
                        legend=[("ours", "keywords"), ("dropped", "other words")],
                    ),
                    Text(text=_gate(reading.name, gates)),
                ]
    blocks += [Text(text=OF_GATES, tone="quiet", only="page")] * bool(blocks)
    return [Section(title="Does the input gate close at unimportant words?", blocks=blocks)] if blocks else []


def _means(gates: Mapping[str, Any]) -> list[figures.ChartRow]:
    """The mean input gate at keywords and at other words: overall, and by the position of the word."""
    rows = [("all positions", gates), *((f"position {at['position']}", at) for at in gates["by_position"])]
    return [
        figures.ChartRow(name=name, dots=[_mean(gate["keywords"], "ours"), _mean(gate["others"], "others")])
        for name, gate in rows
    ]


def _mean(means: Mapping[str, Any], kind: str) -> figures.Dot:
    error = 1.96 * (means["sd"] or 0) / means["n"] ** 0.5
    return figures.Dot(value=means["mean"], low=means["mean"] - error, high=means["mean"] + error, kind=kind)


def _gate(name: str, figures_of_gate: Mapping[str, Any]) -> str:
    def spread(kind: str, words: str) -> str:
        part = figures_of_gate[kind]
        sd = "" if part["sd"] is None else f" (standard deviation {part['sd']:.3f})"
        return f"{part['mean']:.3f} at {part['n']:,} {words}{sd}"

    sentence = f"Input gate of {name} {ARROWS[figures_of_gate['direction']]}: {spread('keywords', 'keywords')},"
    sentence += f" {spread('others', 'other words')}."
    if d := figures_of_gate["difference"]:
        end = "these texts cannot tell the two apart"
        if d["low"] > 0 or d["high"] < 0:
            end = f"the gate is wider open at {'keywords' if d['low'] > 0 else 'the other words'}"
        sentence += (
            f" Within the {d['texts']:,} texts that have both, keywords have {d['mean']:+.3f} ({d['confidence']:.0%}"
            f" interval {d['low']:+.3f} to {d['high']:+.3f}): {end}."
        )
    means = (f"{figures_of_gate['candidate'][kind]['mean']:.3f}" for kind in ("keywords", "others"))
    return "{} What the words would add, |y_g|, is {} at keywords and {} at other words.".format(sentence, *means)


def _cost(models: Sequence[Explanation]) -> list[Block]:
    """The training loss of each model by epoch, on a logarithmic scale; empty unless two models have it."""
    with_cost = [reading for reading in models if reading.cost]
    if len(with_cost) < 2:
        return []
    lines = [
        figures.Line(name=reading.name, points=_points(reading.cost), dots=_points(reading.cost))
        for reading in with_cost
    ]
    rows = [
        [reading.name, f"{len(reading.cost)}", *(f"{_points(reading.cost)[at][1]:.4f}" for at in (0, -1))]
        for reading in with_cost
    ]
    picture = Picture(
        title="Training loss per pair, by epoch",
        remark="after an epoch where that was measured, otherwise its mean, at its middle; logarithmic scale;"
        " each model’s own shards, negatives and γ",
        picture=partial(figures.line_chart, lines, "Training loss per pair", log=True),
    )
    header = ("Model", "Epochs", "First epoch", "Last epoch")
    table = Table(caption="Training loss per pair", header=header, rows=rows)
    return [Section(title="What training cost", blocks=[picture, table])]


def _points(cost: Sequence[Mapping[str, Any]]) -> list[tuple[float, float | None]]:
    """The loss at each epoch's end, or, where it was not measured, the epoch's mean loss at its middle."""
    return [
        (point["epoch"], point["train_loss_after"])
        if "train_loss_after" in point
        else (point["epoch"] - 0.5, point["train_loss"])
        for point in cost
    ]
