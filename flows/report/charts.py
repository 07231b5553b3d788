"""The pictures of a run: the DAG of its stages, means with whiskers."""

from collections.abc import Mapping, Sequence
from itertools import pairwise

from markupsafe import Markup, escape

from flows.report.row_chart import ChartRow, dot_of, row_chart
from flows.report.summary import StageSummary
from flows.report.svg import svg
from training.wording import duration

EDGES = (
    ("ingest", "build"), ("build", "train"), ("train", "evaluate"), ("evaluate", "publish"), ("train", "publish"),
    ("build", "compare"),
)  # fmt: skip
_BOX_WIDTH, _BOX_HEIGHT, _GAP = 148, 78, 40


def dag(stages: Sequence[StageSummary], *, upright: bool) -> Markup:
    """The stages as boxes and what each takes from another as arrows; upright for narrow screens."""
    top = 8 if upright else 34
    at = {
        stage.name: (60, top + i * (_BOX_HEIGHT + _GAP)) if upright else (4 + i * (_BOX_WIDTH + _GAP), top)
        for i, stage in enumerate(stages)
    }
    edges = [edge for edge in EDGES if edge[0] in at and edge[1] in at]
    if not edges:
        edges = [(a.name, b.name) for a, b in pairwise(stages)]
    longest = max((stage.duration_seconds or 0 for stage in stages), default=0) or 1
    marks = [_arrow(at[a], at[b], upright) for a, b in edges]
    marks += [_stage_box(stage, *at[stage.name], longest) for stage in stages]
    width = 60 + _BOX_WIDTH + 12 if upright else len(stages) * (_BOX_WIDTH + _GAP) - _GAP + 8
    height = top + len(stages) * (_BOX_HEIGHT + _GAP) - _GAP + 8 if upright else top + _BOX_HEIGHT + 8
    told = ", then ".join(f"{s.name} ({'reused' if s.reused else duration(s.duration_seconds)})" for s in stages)
    return svg(f"dag {'upright' if upright else 'level'}", width, height, f"Stages in order: {told}", marks)


def _stage_box(stage: StageSummary, x: float, y: float, longest: float) -> str:
    share = (stage.duration_seconds or 0) / longest
    state = "reused" if stage.reused else "new"
    length = max(2, share * (_BOX_WIDTH - 28))
    bar = f'<rect class="time" x="{x + 14}" y="{y + 62}" width="{length:.1f}" height="5" rx="2.5"/>'
    return (
        f'<g class="{state}"><rect class="box" x="{x}" y="{y}" width="{_BOX_WIDTH}" height="{_BOX_HEIGHT}" rx="10"/>'
        f'<text class="name" x="{x + 14}" y="{y + 27}">{escape(stage.name)}</text>'
        f'<text class="state" x="{x + _BOX_WIDTH - 14}" y="{y + 50}" text-anchor="end">{state}</text>'
        f'<text class="seconds" x="{x + 14}" y="{y + 50}">{duration(stage.duration_seconds)}</text>'
        f"{bar if stage.duration_seconds else ''}</g>"
    )


def _arrow(start: tuple[float, float], end: tuple[float, float], upright: bool) -> str:
    """A straight arrow between neighbours, a bow past the boxes between others."""
    (x1, y1), (x2, y2) = start, end
    if upright:
        near = y2 - y1 <= _BOX_HEIGHT + _GAP
        if near:
            middle = x1 + _BOX_WIDTH / 2
            return _arrow_path(f"M{middle} {y1 + _BOX_HEIGHT} V{y2 - 7}", (middle, y2), "down")
        path = f"M{x1} {y1 + 50} C{x1 - 56} {y1 + 60} {x1 - 56} {y2 + 20} {x2 - 7} {y2 + 28}"
        return _arrow_path(path, (x2, y2 + 28), "right")
    if x2 - x1 <= _BOX_WIDTH + _GAP:
        middle = y1 + _BOX_HEIGHT / 2
        return _arrow_path(f"M{x1 + _BOX_WIDTH} {middle} H{x2 - 7}", (x2, middle), "right")
    begin, finish = x1 + _BOX_WIDTH * 0.7, x2 + _BOX_WIDTH * 0.3
    path = f"M{begin} {y1} C{begin + 30} {y1 - 34} {finish - 30} {y1 - 34} {finish} {y2 - 7}"
    return _arrow_path(path, (finish, y2), "down")


def _arrow_path(path: str, tip: tuple[float, float], towards: str) -> str:
    x, y = tip
    head = f"M{x} {y} l-8 -4.5 v9 z" if towards == "right" else f"M{x} {y} l-4.5 -8 h9 z"
    return f'<path class="edge" d="{path}"/><path class="head" d="{head}"/>'


def whiskers(systems: Sequence[tuple[str, str, Mapping[str, float]]], measure: str) -> Markup:
    """A dot at each mean with its interval. systems: (key, name, {"mean", "low", "high"}), top to bottom."""
    rows = [
        ChartRow(name=name, dots=[dot_of(value)], remark=f"{value['mean']:.3f}", ours=key == "model")
        for key, name, value in systems
    ]
    return row_chart(rows, measure)
