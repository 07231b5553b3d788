"""The part of the page that is about training: its pictures."""

from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup

from flows.report.figures import Line, line_chart
from flows.report.summary import TrainingSummary


def pictures(training: TrainingSummary) -> list[tuple[str, str, Markup]]:
    """(title, remark, picture), those of which something is known."""
    rankings = "NDCG on judged queries" if training.watched == "judgments" else "NDCG on held-out clicks"
    towers = [name.removeprefix("gradient_norm_") for name in _names(training.steps) if _is_norm(name)]
    level = ("th_G", training.clip_norm) if training.clip_norm else None
    first = 0.0 if training.steps else None
    unit, per_second = training.unit, f"{training.unit.capitalize()}s per second"
    drawn = [
        (f"Loss per {unit}", "dots: train, the mean of an epoch; held out, after it", line_chart(
            _losses(training), f"Loss per {unit}", log=_many_sizes(training), first=first)),
        (rankings, "after each epoch", line_chart(
            [Line(name=f"@{k}", points=_of_epochs(training.epochs, f"dev_ndcg@{k}")) for k in (10, 3, 1)], rankings,
            most=1.0, first=first)),
        ("Accuracy and area under ROC", "on held-out labels, after each epoch", line_chart(
            [Line(name=name, points=_of_epochs(training.epochs, key)) for name, key in (
                ("area", "dev_area_under_roc"), ("accuracy", "dev_accuracy"))],
            "Accuracy and area under ROC", most=1.0, first=first)),
        ("Cross-entropy per word", "in nats, of reconstructed held-out texts, after each epoch", line_chart(
            [Line(name=name, points=_of_epochs(training.epochs, f"dev_word_{name}")) for name in (
                "reformulate", "repeat")], "Cross-entropy per word", first=first)),
        ("KL divergence", "from N(0, I), in nats, of held-out texts, after each epoch", line_chart(
            [Line(name="KL", points=_of_epochs(training.epochs, "dev_kl"))], "KL divergence", from_zero=True,
            first=first, show="{:.2f}".format)),
        ("Norm of the gradient", f"{_clipped(training)}before re-normalisation", line_chart(
            [_of_steps(training.steps, f"gradient_norm_{t}", t) for t in sorted(towers, reverse=True)],
            "Norm of the gradient", log=True, first=first, level=level, show="{:.3g}".format)),
        (per_second, "measuring and checkpoints not counted", line_chart(
            [_of_steps(training.steps, "pairs_per_second", f"{unit}s/s")], per_second, from_zero=True,
            first=first, show="{:,.0f}".format)),
    ]  # fmt: skip
    return [(title, remark, picture) for title, remark, picture in drawn if picture]


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
