"""The page of a sweep: every trial's curve, every point's place, and nothing from elsewhere."""

import re
from typing import Any

from clicktower.flows.report.sweep_page import pages
from tests.flows.report.test_report import loads_nothing


def render(table: dict[str, Any]) -> str:
    return pages(table)["sweep.html"]


def trial(seed: int, curve: list[float | None], of_epochs: int) -> dict[str, Any]:
    measures = {"dev_ndcg@10": curve[-1]} if curve else None
    failed = "" if curve else "Its gradients are not finite."
    return {"seed": seed, "digest": f"digest-{seed}", "reused": False, "seconds": 2.0, "measures": measures,
            "failed": failed, "diverged": not curve, "epochs": len(curve), "of_epochs": of_epochs,
            "rung": 0, "curve": curve}  # fmt: skip


def row(name: str, mean: float | None, *trials: dict[str, Any]) -> dict[str, Any]:
    return {"fields": {"recipe": name}, "options": ["--recipe", name], "trials": list(trials), "mean": mean,
            "spread": 0.01, "told_apart": None, "rung": 0}  # fmt: skip


TABLE = {
    "measure": "dev_ndcg@10",
    "watched": "judgments",
    "rungs": [{"points": 3, "epochs": 1}, {"points": 1, "epochs": 3}],
    "labels": {"simulated": True},
    "rows": [
        row("lstm-96", 0.85, trial(1, [0.5, 0.7, 0.8], 3), trial(2, [0.6, None, 0.9], 3)),
        row("<script>alert(1)</script>", 0.55, trial(1, [0.5], 3), trial(2, [0.6], 3)),
        row("dssm", None, trial(1, [], 3), trial(2, [], 3)),
    ],
}


def test_every_curve_is_drawn_and_the_first_points_means_stand_out():
    output = render(TABLE)
    picture = output[output.index('<svg class="curves"') :].split("</svg>")[0]
    assert picture.count("stroke: var(--plain)") == 4  # trials that have one; those that diverged have none
    curves = re.search(r'aria-label="(dev_ndcg@10 after each epoch[^"]*)"', output)
    assert curves
    # The mean of 0.5 and 0.6, and of 0.8 and 0.9; where a seed has no value neither has the mean.
    assert curves[1] == "dev_ndcg@10 after each epoch: 1st from 0.5500 to 0.8500; 2nd from 0.5500 to 0.5500"


def test_the_ranking_shows_means_seeds_and_how_far_a_point_came():
    output = render(TABLE)
    assert "0.5500 after 1 of 3" in output
    ranking = output[output.index('<svg class="whiskers"') :].split("</svg>")[0]
    dots = re.findall(r'<use [^>]*style="fill: var\(--(\w+)\); stroke: var\(--(\w+)\); stroke-width: 1.6"', ranking)
    # Rings for seeds, full dots for means, that of the first point stands out.
    assert dots == [("card", "other")] * 2 + [("ours", "ours")] + [("card", "other")] * 2 + [("quiet", "quiet")]
    assert "diverged with seed 2: Its gradients are not finite." in output


def test_a_field_of_three_numbers_has_a_picture_of_its_own():
    rows = [
        row("r", mean, trial(1, [mean], 1)) | {"fields": {"tower.hops": hops, "tower.penalty": penalty}}
        for hops, penalty, mean in ((30, 0.0, 0.7), (1, 1.0, 0.6), (4, 0.0, 0.5), (1, 0.0, 0.4), (2, 0.0, 0.3))
    ]
    stopped = row("r", 0.9, trial(1, [0.9], 2)) | {"fields": {"tower.hops": 8, "tower.penalty": 0.0}}
    output = render(TABLE | {"rows": [*rows, stopped]})
    # By hops those with penalty 0: 1, 2, 4, 30, and not the one that was stopped; penalties are two, at most.
    assert 'aria-label="dev_ndcg@10 by tower.hops: penalty=0.0 from 0.400 to 0.700"' in output
    assert "dev_ndcg@10 by tower.penalty" not in output


def test_the_page_loads_and_runs_nothing_and_escapes_what_a_user_wrote():
    output = render(TABLE)
    loads_nothing(output)
    assert "&lt;script&gt;" in output
    assert "Simulated." in output


def test_a_sweep_of_which_nothing_came_has_a_page_too():
    output = render({**TABLE, "rungs": [], "rows": TABLE["rows"][2:], "labels": {}})
    assert "1 point by dev_ndcg@10" in output
    assert "best.toml" not in output
    assert "<svg" not in output


def test_a_table_of_which_nothing_was_trained_to_its_end_names_no_best():
    """Of three points one was stopped by halving, and those that went on diverged."""
    output = render(TABLE | {"rows": TABLE["rows"][1:]})
    assert "No point is chosen: those that went on to the end diverged." in output
    assert "0.5500 after 1 of 3" in output
    assert "best" not in output.split("<body", 1)[1].replace("best of", "")


def test_the_page_in_markdown_has_the_table_and_what_to_type_for_the_first():
    output = pages(TABLE)["sweep.md"]
    assert output.startswith("# 3 points by dev\\_ndcg@10\n")
    assert "| 1 | lstm-96 | **0.8500 ± 0.0100** |" in output
    assert "    clicktower train --recipe lstm-96 --set seed=1\n" in output
    assert "<script" not in output
