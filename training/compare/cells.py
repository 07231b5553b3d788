"""A comparison's tables: what stands in every cell, once for Markdown, the terminal and HTML."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from training.compare.compare_wording import (
    BM25,
    Comparison,
    Row,
    against_chosen,
    chosen,
    done,
    figure,
    in_part,
    interval,
    mark,
    part_sizes,
    side,
    signed,
    signed_interval,
    title_of,
    to_bm25,
)
from training.wording import duration, measure_name


@dataclass(frozen=True, kw_only=True, slots=True)
class Cell:
    """aside: the interval. side: above, below or alike, as against the chosen row. best: the highest of its column.
    value: the number behind the text, where there is one. lead: in a part of a slice, over the chosen row there."""

    text: str = ""
    aside: str = ""
    mark: str = ""
    side: str = ""
    best: bool = False
    value: float | None = None
    lead: float = 0.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Table:
    """header: of the cells alone, without the column of the rows' titles. rows: a row and its cells; a row that is
    not done has empty ones. groups: the same header in two lines, (name, names below it)."""

    title: str
    header: Sequence[str]
    rows: Sequence[tuple[Row, Sequence[Cell]]]
    groups: Sequence[tuple[str, Sequence[str]]] = ()


EMPTY = Cell()


def ndcg_table(comparison: Comparison) -> Table:
    """NDCG of the judged documents at each cutoff, and the difference to the chosen row at the last of them."""
    names = [name for name in comparison["measures"] if name.startswith("ndcg@")]
    header, rows = [measure_name(name) for name in names], _of_measures(comparison, names)
    if names and any(against_chosen(row, names[-1]) for row in comparison["rows"]):
        header.append(f"{header[-1]} − {title_of(comparison, comparison['against'])}")
        rows = [(row, [*cells, difference_cell(row, names[-1])]) for row, cells in rows]
    return Table(title="The judged documents, ranked", header=header, rows=rows)


def collection_table(comparison: Comparison) -> Table:
    """Recall, reciprocal rank and NDCG where every document of the collection may be found."""
    names = [name for name in comparison["measures"] if name.startswith("collection_")]
    header = [measure_name(name).removesuffix(", all documents") for name in names]
    return Table(title="The whole collection, searched", header=header, rows=_of_measures(comparison, names))


def paper_table(comparison: Comparison) -> Table:
    """The paper's figures, and each row's difference to BM25 here and there; only rows that the paper has."""
    rows = [row for row in comparison["rows"] if row.get("paper")]
    names = [name for name in comparison["measures"] if any(name in row["paper"] for row in rows)]
    groups = [("In the paper", [measure_name(name) for name in names])]
    groups += [(f"{measure_name(name)} − BM25", ["here", "paper"]) for name in names]
    return Table(
        title="Beside the paper",
        header=[f"{group}: {part}" for group, parts in groups for part in parts],
        groups=groups if names else (),
        rows=[
            (row, [
                *(_of_paper(row["paper"].get(name), figure) for name in names),
                *(cell for name in names for cell in (
                    here_cell(comparison, row, name),
                    there_cell(row, name),
                )),
            ])
            for row in rows
        ],
    )  # fmt: skip


def cost_table(comparison: Comparison) -> Table:
    """What each row costs. What a row does not have, such as parameters of BM25, is empty."""
    return Table(
        title="What it costs",
        header=["Parameters", "Dimensions", "Training", "Texts per second"],
        rows=[
            (row, [
                _count(row.get("parameters")),
                _count(row.get("dimensions")),
                _time(row.get("train_seconds")),
                _count(row.get("texts_per_second")),
            ])
            for row in done(comparison)
        ],
    )  # fmt: skip


def slice_tables(comparison: Comparison, measure: str = "ndcg@10") -> list[tuple[str, Table]]:
    """(name, table) of each slice: a row's mean in each part, and its lead over the chosen row there.

    A slice of which only one part has queries is left out: that is all queries again.
    """
    names = [name for name in comparison["slices"] if len(part_sizes(comparison, name)) > 1]
    return [(name, _slice_table(comparison, name, measure)) for name in names]


def difference_cell(row: Row, measure: str) -> Cell:
    """A row's difference to the chosen one, with its interval and its stars."""
    value = against_chosen(row, measure)
    if value is None:
        return EMPTY
    return Cell(
        text=signed(value["mean"]),
        aside=signed_interval(value),
        mark=mark(value),
        side=side(value),
        value=value["mean"],
    )


def here_cell(comparison: Comparison, row: Row, measure: str) -> Cell:
    """A row's difference to BM25 here; BM25's own is empty."""
    value = None if row["name"] == BM25 else to_bm25(comparison, row, measure)
    return EMPTY if value is None else Cell(text=signed(value), value=value)


def there_cell(row: Row, measure: str) -> Cell:
    """A row's difference to BM25 in the paper; BM25's own is empty."""
    return EMPTY if row["name"] == BM25 else _of_paper((row.get("paper_to_bm25") or {}).get(measure), signed)


def _of_measures(comparison: Comparison, names: Sequence[str]) -> list[tuple[Row, list[Cell]]]:
    rows = done(comparison)
    best = {name: max((row["values"][name]["mean"] for row in rows if name in row["values"]), default=None)
            for name in names}  # fmt: skip
    return [(row, [_value(row, name, best[name]) for name in names]) for row in comparison["rows"]]


def _value(row: Row, name: str, best: float | None) -> Cell:
    if name not in row["values"]:
        return EMPTY
    value, difference = row["values"][name], against_chosen(row, name)
    return Cell(
        text=figure(value["mean"]),
        aside=interval(value),
        mark=mark(difference),
        side=side(difference),
        best=value["mean"] == best,
        value=value["mean"],
    )


def _slice_table(comparison: Comparison, name: str, measure: str) -> Table:
    sizes, rows, base = part_sizes(comparison, name), done(comparison), chosen(comparison)
    return Table(
        title=name,
        header=[f"{part} (n = {size:,})" for part, size in sizes.items()],
        rows=[(row, [_in_part(row, rows, base, name, part, measure) for part in sizes]) for row in rows],
    )


def _in_part(row: Row, rows: Sequence[Row], base: Row | None, name: str, part: str, measure: str) -> Cell:
    found = in_part(row, name, part)
    if found is None:
        return EMPTY
    value, of_base = found[measure], in_part(base, name, part) if base else None
    others = (in_part(other, name, part) for other in rows)
    return Cell(
        text=figure(value["mean"]),
        aside=interval(value),
        best=value["mean"] == max(other[measure]["mean"] for other in others if other),
        value=value["mean"],
        lead=value["mean"] - of_base[measure]["mean"] if of_base else 0.0,
    )


def _of_paper(points: float | None, show: Callable[[float], str]) -> Cell:
    """A figure of the paper, which has points of a hundred, on the scale of ours."""
    return EMPTY if points is None else Cell(text=show(points / 100), value=points / 100)


def _count(value: float | None) -> Cell:
    return EMPTY if value is None else Cell(text=f"{value:,.0f}", value=value)


def _time(seconds: float | None) -> Cell:
    return EMPTY if seconds is None else Cell(text=duration(seconds), value=seconds)
