"""What a run says of itself while it goes on: two short lines, so that a terminal of 100 columns shows all of it."""

from collections.abc import Mapping


def progress_line(
    *,
    epoch: int,
    epochs: int,
    step: int,
    steps: int,
    seconds_left: float | None,
    unit: str,
    per_second: float,
    loss: float,
    norms: Mapping[str, float],
    clipped_share: float | None,
    held_out: str,
) -> str:
    """Where the run is, a new line, and how it goes.

    epoch, step (of the epoch): from 1. unit: what is counted. loss: of one of them, of the epoch so far. norms: of the
    last step's gradient, by tower. clipped_share: of the epoch's steps so far; None where norms are not held down.
    held_out: what was measured after the epoch before (training.held_out).
    """
    place = [f"epoch {epoch}/{epochs}", f"step {step:,}/{steps:,}"]
    if seconds_left is not None:
        place.append(f"{clock(seconds_left)} left")
    course = [
        f"{per_second:,.0f} {unit}/s",
        f"loss {loss:.4g}",
        "gradient " + " ".join(f"{tower} {_three(norm)}" for tower, norm in sorted(norms.items(), reverse=True)),
    ]
    if clipped_share is not None:
        course.append(f"clipped {clipped_share:.0%}")
    if held_out:
        course.append(held_out)
    return ", ".join(place) + "\n" + ", ".join(course)


def _three(value: float) -> str:
    """Three digits, or all of a larger number: 0.0312, 9.81, 12,345."""
    return f"{value:.3g}" if value < 1000 else f"{value:,.0f}"


def clock(seconds: float) -> str:
    """0:07, 12:30, 3:05:09."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
