"""How the most active cells change from word to word, as lines (Fig. 6, 11, 12)."""

from markupsafe import Markup

from flows.report.svg import WordColumns, label_marks, scale, spread, svg, ticks_around
from training.analysis.topics import Evolution

LEFT, RIGHT, TOP, HEIGHT, LEAST, MOST = 46, 92, 12, 220, 260, 720
COLOURED = 4  # the most active cells, which have colours; the others are drawn thin


def word_lines(found: Evolution, columns: WordColumns, name: str) -> Markup:
    """The picture; what is read first is on the left, whichever way the tower reads."""
    values = columns.means(found.values.T).T  # [cells, columns]
    num_columns = values.shape[1]
    plot = min(MOST, max(LEAST, 54 * num_columns))
    width = LEFT + plot + RIGHT
    ticks = ticks_around(min(0.0, float(values.min())), max(0.0, float(values.max())))
    y_of = scale(ticks[0], ticks[-1], TOP + HEIGHT, TOP)
    x_of = scale(0, max(1, num_columns - 1), LEFT + 18, LEFT + plot)
    marks = [
        f'<line class="{"level" if t == 0 else "grid"}" x1="{LEFT}" x2="{LEFT + plot}"'
        f' y1="{y_of(t):.1f}" y2="{y_of(t):.1f}"/>'
        f'<text class="tick" x="{LEFT - 8}" y="{y_of(t) + 4:.1f}" text-anchor="end">{t:g}</text>'
        for t in ticks
    ]
    last = found.values[:, -1]  # of the last word itself, also where the last column is a mean
    ends = spread(
        [(y_of(float(y)), str(cell)) for cell, y in zip(found.cells, last, strict=True)], least=14, lowest=TOP + HEIGHT
    )
    for rank in reversed(range(len(found.cells))):  # the most active above all others
        cell, row = found.cells[rank], values[rank]
        kind, radius = (f"cell{rank}", 2.6) if rank < COLOURED else ("thin", 1.6)
        points = " ".join(f"{x_of(k):.1f},{y_of(float(v)):.1f}" for k, v in enumerate(row))
        marks.append(f'<polyline class="line {kind}" points="{points}"/>')
        if num_columns <= 40:
            marks += [
                f'<circle class="dot {kind}" cx="{x_of(k):.1f}" cy="{y_of(float(v)):.1f}" r="{radius}"/>'
                for k, v in enumerate(row)
            ]
        marks.append(
            f'<text class="end {kind}" x="{LEFT + plot + 8}" y="{ends[str(cell)] + 4:.1f}">{cell}'
            f' <tspan class="tick">{last[rank]:+.2f}</tspan></text>'
        )
    labels, room = label_marks(columns, [x_of(k) for k in range(num_columns)], TOP + HEIGHT + 2)
    told = ", ".join(f"cell {cell} ends at {y:+.2f}" for cell, y in zip(found.cells, last, strict=True))
    return svg("curves words", width, TOP + HEIGHT + room + 6, f"{name}: {told}", marks + labels, fixed=True)
