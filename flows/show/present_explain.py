"""What a model reads in a text, for a terminal: words shaded by how many cells they move, and small tables."""

from collections.abc import Mapping, Sequence
from itertools import zip_longest
from typing import Any

from rich.table import Table
from rich.text import Text

from flows.show import present
from flows.show.console import output, plain
from training.wording import visible

SHADES = ("", "black on #d5ecea", "black on #9fd6d1", "black on #5cb8b0", "#ffffff on #258b84", "#ffffff on #0b5f5a")
ARROWS = {"left to right": "→", "right to left": "←"}
SCORES = {"cosine": "the cosine", "euclidean": "minus the distance W₂"}
SHOWN_WORDS = 400  # of a text
TABLE_WORDS = 40
HOPS = 8  # whose columns fit beside each other
TOPIC_CELLS, TOPIC_WORDS = 8, 8


def show(result: Mapping[str, Any]) -> None:
    """Everything that was asked for."""
    models = result["models"]
    for number, text in enumerate(models[0]["texts"]):
        _text([model["texts"][number] for model in models], [model["name"] for model in models], text["called"])
    if models[0]["score"] is not None:
        for model in models:
            what = SCORES[model["similarity"]]
            output.print(f"score of the pair, {what} of {plain(model['name'])}: [bold]{model['score']:.3f}[/]")
    for model in models:
        for number, classes in enumerate(model["classes"]):
            of = "pair" if len(model["classes"]) < len(model["texts"]) else model["texts"][number]["called"]
            said = ", ".join(f"{plain(name)} [bold]{share:.3f}[/]" for name, share in classes.items())
            output.print(f"classes of the {of}, {plain(model['name'])}: {said}")
    for model in models:
        _attenuation(model)
        if model["topics"]:
            _topics(model)
    if len(models) > 1:
        _cost(models)
    rule = result["rule"]["sentences"]
    output.print(Text("\n" + "; ".join(rule.values()) + ".", style="dim"))
    if result["labels"].get("simulated"):
        output.print(Text("A model of a simulated log.", style="bold yellow"))
    for path in result["files"].values():
        output.print(plain(present.from_here(path)), soft_wrap=True)


def _text(readings: Sequence[Mapping[str, Any]], names: Sequence[str], called: str) -> None:
    for name, reading in zip(names, readings, strict=True):
        num_words = len(reading["words"])
        of = f"{num_words:,} word{'s' if num_words > 1 else ''}"
        output.print(Text(f"{called}, {of}, {name}", "dim"))
        output.print(Text("  ").append(_shaded(reading)))
    longest = max(readings, key=lambda reading: len(reading["words"]))
    most = [max(of) for of in zip_longest(*(_most(reading) for reading in readings), fillvalue=0)]
    chosen = sorted(sorted(range(len(most)), key=lambda at: (-most[at], at))[:TABLE_WORDS])
    table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 2, 0, 0))
    table.add_column("", justify="right", style="dim")
    table.add_column("word", overflow="fold")
    for name, reading in zip(names, readings, strict=True):
        for one in reading["directions"]:
            prefix = f"{plain(name)} " if len(names) > 1 else "cells "
            table.add_column(f"{prefix}{ARROWS[one['direction']]}", justify="right")
        table.add_column("", style="bold green")
    for at in chosen:
        row = [f"{at + 1}", plain(longest["words"][at])]
        for reading in readings:
            inside = at < len(reading["words"])
            row += [_count(one["counts"][at]) if inside else "" for one in reading["directions"]]
            row.append("keyword" if at in reading["keywords"] else "")
        table.add_row(*row)
    output.print(table)
    if len(most) > TABLE_WORDS:
        output.print(Text(f"the {TABLE_WORDS} words with the largest counts, of {len(most):,}", "dim"))
    for name, reading in zip(names, readings, strict=True):
        if reading["attention"]:
            _attention(name, reading["words"], reading["attention"])
    output.print()


def _attention(name: str, words: Sequence[str], attention: Mapping[str, Any]) -> None:
    """Where the hops look, in percent, each weight on a ground that is the stronger, the larger it is."""
    hops, overall, overlap = attention["hops"], attention["overall"], attention["overlap"]
    told = f"attention of {name}, % of each hop" + ("" if overlap is None else f"; overlap {overlap:.3f}")
    output.print(Text(visible(told), "dim"))
    table = Table(box=None, header_style="dim", pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("word", overflow="fold")
    for at in range(min(len(hops), HOPS)):
        table.add_column(f"hop {at + 1}", justify="right")
    if len(hops) > 1:
        table.add_column("overall", justify="right", header_style="bold")
    chosen = sorted(sorted(range(len(words)), key=lambda at: (-overall[at], at))[:TABLE_WORDS])
    columns = [*hops[:HOPS], *([overall] if len(hops) > 1 else [])]
    for at in chosen:
        table.add_row(plain(words[at]), *(_weight(weights[at]) for weights in columns))
    output.print(table)
    if len(hops) > HOPS:
        output.print(Text(f"the first {HOPS} hops of {len(hops)}; overall is of all", "dim"))


def _weight(weight: float) -> Text:
    return Text(f" {100 * weight:.0f} ", SHADES[min(round(weight * len(SHADES)), len(SHADES) - 1)])


def _shaded(reading: Mapping[str, Any]) -> Text:
    """The text, each word on a ground that is the stronger, the more of the cells declare it; keywords are bold."""
    of = max(len(one["cells"]) for one in reading["directions"])
    line, keywords = Text(), set(reading["keywords"])
    for at, (word, most) in enumerate(list(zip(reading["words"], _most(reading), strict=True))[:SHOWN_WORDS]):
        shade = SHADES[-(-most * (len(SHADES) - 1) // of)]
        line.append(f" {visible(word)} ", f"{shade} bold underline" if at in keywords else shade)
    left_out = len(reading["words"]) - SHOWN_WORDS
    return line.append(f" … and {left_out:,} words more", "dim") if left_out > 0 else line


def _most(reading: Mapping[str, Any]) -> list[int]:
    return [max(n or 0 for n in of) for of in zip(*(one["counts"] for one in reading["directions"]), strict=True)]


def _count(count: int | None) -> str:
    return "–" if count is None else str(count)


def _attenuation(model: Mapping[str, Any]) -> None:
    for found in model["attenuation"]:
        key, other, apart = found["keywords"], found["others"], found["difference"]
        if not (key["n"] and other["n"]):
            continue
        line = (
            f"input gate {ARROWS[found['direction']]} of {plain(model['name'])}: {_spread(key)} keywords,"
            f" {_spread(other)} other words"
        )
        if apart:
            line += (
                f"; within {apart['texts']:,} texts {apart['mean']:+.3f} [{apart['low']:+.3f}, {apart['high']:+.3f}]"
            )
        candidate = found["candidate"]
        line += f"; candidate |y_g| {candidate['keywords']['mean']:.3f} and {candidate['others']['mean']:.3f}"
        output.print(line, soft_wrap=True)


def _spread(of: Mapping[str, Any]) -> str:
    sd = "" if of["sd"] is None else f" (sd {of['sd']:.3f})"
    return f"{of['mean']:.3f}{sd} at {of['n']:,}"


def _topics(model: Mapping[str, Any]) -> None:
    topics = model["topics"]
    table = Table(
        title=f"Keywords by cell, {plain(model['name'])}, over {topics['queries']:,} queries",
        title_justify="left", box=None, header_style="dim", pad_edge=False,
    )  # fmt: skip
    for name in ("cell", "keywords", "most frequent, in how many queries"):
        table.add_column(name, justify="right" if name != "most frequent, in how many queries" else "left")
    for cell in topics["cells"][:TOPIC_CELLS]:
        words = ", ".join(f"{plain(w['word'])} [dim]{w['queries']}[/]" for w in cell["words"][:TOPIC_WORDS])
        table.add_row(f"{cell['cell']} {ARROWS[cell['direction']]}", f"{cell['keywords']:,}", words)
    output.print(table)


def _cost(models: Sequence[Mapping[str, Any]]) -> None:
    for model in models:
        if model["cost"]:
            first, last = model["cost"][0], model["cost"][-1]
            output.print(
                f"training loss per pair of {plain(model['name'])}: {first['train_loss']:.3f} after epoch"
                f" {first['epoch']}, {last['train_loss']:.3f} after epoch {last['epoch']}",
                soft_wrap=True,
            )
