"""report.html: whole in itself, true to the results, safe against the texts of a log, complete without its parts."""

import re
from copy import deepcopy
from html.parser import HTMLParser
from itertools import pairwise
from typing import Any

import pytest

from clicktower.flows.report.blocks import duration, write_page
from clicktower.flows.report.blocks import html as page_as_html
from clicktower.flows.report.run_blocks import ledger_table, percent, result, run_page, verdict
from clicktower.flows.report.training_blocks import pictures
from clicktower.schemas.ledger import FATES, Ledger
from clicktower.training.ranking.ndcg import measure_name
from tests.flows.report.sample_run import EPOCHS, LEDGER, NASTY, RECIPE, RESULTS, STEPS, TABLE, TRAIN, sample_run

VOID = {"meta", "br", "link", "img", "hr", "input"}
SELF_CLOSED_SVG = {"path", "rect", "use", "image"}


class Page(HTMLParser):
    """What a browser would see: elements with attributes, the text, and whether every end tag closes what is open."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self.open: list[str] = []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        assert tag in SELF_CLOSED_SVG | VOID, f"<{tag}/> is not closed in HTML"
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag

    def handle_data(self, data):
        if not self.open or self.open[-1] != "style":
            self.text.append(data)

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]

    @property
    def words(self) -> str:
        return " ".join(" ".join(self.text).split())


def render(run: dict[str, Any]) -> str:
    return page_as_html(run_page(**run))


def labelled(stage: str, **labels: object) -> dict[str, Any]:
    results = deepcopy(RESULTS)
    results[stage]["labels"] = labels  # type: ignore[index]
    return sample_run() | {"results": results, "title": "t"}


@pytest.fixture(scope="module")
def html() -> str:
    return render(sample_run())


@pytest.fixture(scope="module")
def page(html) -> Page:
    return Page(html)


def test_every_element_is_closed_where_it_should_be(page):
    assert page.open == []
    assert {"main", "section", "table", "svg", "h1", "h2"} <= {name for name, _ in page.elements}


@pytest.mark.slow
def test_grades_from_clicks_are_not_called_those_of_judges(html, page):
    by_clicks = Page(render(labelled("evaluate", judgments="click-derived")))
    assert by_clicks.open == []
    assert "Judged by clicks." in by_clicks.words
    assert "Grades derived from clicks" in by_clicks.words
    assert "Grades by judges" not in by_clicks.words
    assert "Judged by clicks." not in page.words
    assert "Grades by judges" in page.words


def loads_nothing(html: str) -> None:
    """Nothing is loaded and nothing runs: what a page refers to is in it."""
    page = Page(html)
    assert page.open == []
    assert not {name for name, _ in page.elements} & {"script", "link", "iframe", "img", "object", "embed", "base"}
    for name, attributes in page.elements:
        assert not attributes.keys() & {"src", "srcset", "action", "data", "xlink:href"}, name
        assert (attributes.get("href") or "#").startswith(("#", "data:image/png;base64,")), name
        assert not [a for a in attributes if a.startswith("on")], name
    assert not re.search(r"url\((?!#)|@import|https?://", html)
    ids = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    ids = [name for name in ids if name and not re.fullmatch("f[0-9a-f]{8}[mp][0-9a-f]{10}", name)]  # of equal figures
    assert len(ids) == len(set(ids))


def test_nothing_is_loaded_and_nothing_runs(html):
    loads_nothing(html)


def test_texts_of_the_log_are_escaped(html, page):
    assert NASTY not in html
    assert "<script" not in html.lower()
    assert page.words.count(NASTY) >= 5  # title, headline of an example, rankings: as text


def test_the_ledger_is_told_in_plain_words_and_adds_up(page):
    for fate, lines in Ledger(**LEDGER).check().lines.items():
        assert f"{FATES[fate][1]} {lines:,}" in page.words
    # 15,000 + 118,000 + 18,005 + 950 = 151,955 kept; 269 unreadable; the rest of 328,728 is 176,504.
    for text in ("Kept 151,955 46.2%", "Dropped by a rule 176,504 53.7%", "Unreadable 269 0.08%", "All lines 328,728"):
        assert text in page.words


def test_numbers_of_every_part_are_there(page):
    for text in (
        "our NDCG@10 is 0.861 (0.841 to 0.881), and BM25's is 0.757 (0.737 to 0.777)",
        "the difference is +0.104 (95% interval +0.082 to +0.127), which excludes zero",
        "Measure Ours Vectors alone BM25 Random",
        "0.852 0.832–0.872",  # of the vectors alone
        "1 min 05 s",  # training took 64.9 s
        "This run worked for 1 min 11 s",  # 64.9 + 4.2 + 2.1 = 71.2; reused stages do not count
        "23,199 54.6%",  # of 42,457 clicks at k = 5
        "train 0.211",
        "clicktower verify /tmp/store/release",
        "forget_gate False",
        "25.0.1",
    ):
        assert text in page.words, text


def test_a_simulated_run_says_so_and_a_real_one_does_not(page):
    assert "Simulated." in page.words
    real = Page(render(labelled("evaluate")))
    assert "imulated" not in real.words


def test_pictures_and_tables_can_be_told_without_seeing_them(page):
    assert all(svg.get("role") == "img" and svg.get("aria-label") for svg in page.all("svg"))
    assert len(page.all("caption")) == len(page.all("table")) > 4
    levels = [int(name[1]) for name, _ in page.elements if re.fullmatch(r"h[1-6]", name)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after - before <= 1 for before, after in pairwise(levels))
    ids = {attributes["id"] for _, attributes in page.elements if "id" in attributes}
    assert {section["aria-labelledby"] for section in page.all("section")} <= ids


def test_what_was_not_asked_is_left_out():
    run = sample_run() | {"decision": None, "commands": (), "settings": {}, "versions": {}, "examples": []}
    first = {"words": "lines", "value": "10", "usual": "—", "basis": "", "alarm": ""}
    page = Page(render(run | {"results": {**RESULTS, "drift": [first]}}))
    assert page.open == []
    assert "Promotion" not in page.words
    assert "Unusual since" not in page.words
    assert "Try next" not in page.words


def test_a_candidate_that_was_kept_says_why_and_which_slice(page):
    assert "Kept as a candidate. NDCG@10 0.86" in page.words
    assert "It is a candidate; an earlier release stays live at" in page.words
    assert "1 word query length 60 0.500 0.400 -0.100 too much worse -0.020" in page.words
    assert "all words known spelling 9 0.500 0.600 +0.100 too few to decide" in page.words
    promoted = {"live": True, "reason": "Better.", "figures": {}}
    assert "Live. Better." in Page(render(sample_run() | {"decision": promoted})).words


@pytest.mark.slow
@pytest.mark.parametrize(
    ("alarm", "usual", "output"),
    [("half as many", "20", "half as many"), ("", "20", "No figure is unusual, of 1 compared with earlier runs.")],
)
def test_drift_says_what_is_unusual_or_that_nothing_is(alarm, usual, output):
    row = {"words": "lines", "value": "10", "usual": usual, "basis": "4 Mondays", "alarm": alarm}
    page = Page(render(sample_run() | {"results": {**RESULTS, "drift": [row]}}))
    assert output in page.words
    assert f"lines 10 {usual} 4 Mondays" in page.words


def test_what_a_stage_noted_is_to_be_looked_at():
    run = sample_run()
    noted = {
        **run["results"]["ingest"],
        "person_key": {"notice": "the key of people expires on 2026-12-01", "overlap": ""},
    }
    with_note = run | {"results": {**run["results"], "ingest": noted}}
    titles = [[block.title for block in run_page(**one).blocks] for one in (run, with_note)]
    assert [title for title in titles[1] if title not in titles[0]] == ["To look at"]
    assert "ingest: the key of people expires on 2026-12-01" in Page(render(with_note)).words


def test_training_is_told_with_its_curves(page):
    for text in (
        "NDCG@10 0.861 on judgments",
        "Parameters 37,943,040",
        "compiled 3, avx512, cpu, float32",
        "resumed after update 120 (2 workers)",
        "1 min 05 s for",
    ):
        assert text in page.words, text
    labels = [svg["aria-label"] for svg in page.all("svg")]
    for label in ("Loss per pair: train", "NDCG on judged queries: @10", "Norm of the gradient: query"):
        assert any(found.startswith(label) for found in labels), label


def test_only_what_was_measured_is_drawn():
    drawn = pictures(RECIPE, [{"epoch": e, "train_loss": 1 / e} for e in (1, 2)], [], TRAIN)
    assert [picture.title for picture in drawn if picture.picture()] == ["Loss per pair"]


def test_the_share_of_steps_that_were_held_down_is_told():
    norms = pictures(RECIPE, EPOCHS, STEPS, TRAIN)[-1]
    # 1 + 1/2 + ... + 1/30 = 3.995 over 30 epochs
    assert norms.remark == "held down to th_G in 13% of the steps; before re-normalisation"


@pytest.mark.parametrize(("low", "high", "expected", "words"), [
    (0.01, 0.03, "better", "excludes zero: ours is better"),
    (-0.03, -0.01, "worse", "excludes zero: BM25 is better"),
    (-0.01, 0.03, "open", "includes zero"),
])  # fmt: skip
def test_the_verdict_follows_the_interval(low, high, expected, words):
    difference = {"mean": (low + high) / 2, "low": low, "high": high, "p": 0.01}
    table = TABLE | {"difference": {"measures": {"ndcg@10": difference}}}
    assert verdict(table) == expected
    assert words in result(table)


def test_where_ndcg_at_10_was_not_measured_the_first_measure_decides():
    measures = {"ndcg@1": TABLE["difference"]["measures"]["ndcg@1"]}
    assert "our NDCG@1 is 0.801 (0.781 to 0.821)" in result(TABLE | {"difference": {"measures": measures}})


def test_times_and_shares_read_as_people_say_them():
    assert [duration(s) for s in (None, 0.04, 9.94, 12.4, 59.6, 65, 7_800)] == [
        "—", "0.0 s", "9.9 s", "12 s", "1 min 00 s", "1 min 05 s", "2 h 10 min"]  # fmt: skip
    assert [percent(*x) for x in ((1, 2), (0, 5), (1, 1_000), (1, 10**6), (1, 0))] == [
        "50.0%", "0.0%", "0.10%", "< 0.01%", "—"]  # fmt: skip
    assert measure_name("collection_ndcg@10") == "NDCG@10, all documents"


def test_a_ledger_without_a_kind_leaves_that_kind_out():
    rows = ledger_table(Ledger(total=3, lines={"search": 3})).rows
    assert [row[0] for row in rows] == ["Kept", FATES["search"][1], "All lines"]


@pytest.mark.slow
def test_a_page_replaces_an_older_one_and_can_be_written_twice(tmp_path):
    path = tmp_path / "below" / "report.html"
    for title in ("old", "new"):
        write_page(str(path), run_page(**sample_run() | {"title": title}))
    assert path.read_text(encoding="utf-8") == render(sample_run() | {"title": "new"})
    assert [p.name for p in path.parent.iterdir()] == ["report.html"]


@pytest.mark.parametrize(
    ("first", "last", "when"),
    [
        ("2026-09-01T00:00:03Z", "2026-09-02T23:10:00Z", " from 2026-09-01 to 2026-09-02"),
        (None, None, ""),  # ORCAS has no times
    ],
)
def test_a_log_without_times_is_described_without_them(first, last, when):
    ingest = RESULTS["ingest"] | {"metrics": {"first_time": first, "last_time": last}}
    page = run_page(**sample_run() | {"results": {**RESULTS, "ingest": ingest}})
    assert page.lead == f"328,728 log lines{when}: 11,058 different queries, 7,590 training pairs."
