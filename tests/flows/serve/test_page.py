"""The page in a real browser: typing, both rankings, what carried a score, keys alone, a phone, darkness, bad days."""

import json
import re
import urllib.request
from urllib.parse import unquote

import pytest
from playwright.sync_api import expect

from clicktower.schemas.text_contract import words
from tests.flows.serve.browser import CONTRASTS, PHONE, chromium, looking
from tests.flows.serve.page_release import AWKWARD, RECIPE, TITLES, publish_page_release, write_page_release
from tests.flows.serve.page_server import serving
from tests.recipes import varied
from tests.waiting import SECONDS, wait_until

pytestmark = pytest.mark.engine
MODEL, BM25 = '[data-side="model"] .result', '[data-side="bm25"] .result'
FAILED = "#failed:not([hidden])"
SENTENCE = re.compile(r"^[A-Z][^{}]{10,}\.$")


expect.set_options(timeout=1000 * SECONDS)  # a busy machine is no fault of the page


@pytest.fixture(scope="module")
def origin(tmp_path_factory):
    with serving(write_page_release(tmp_path_factory.mktemp("page"))) as origin:
        yield origin


@pytest.fixture(scope="module")
def browser():
    with chromium() as browser:
        yield browser


def ask(origin: str, path: str, **body) -> dict:
    request = urllib.request.Request(
        f"{origin}/v1/{path}", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=SECONDS) as answer:
        return json.load(answer)


def elsewhere(hit: dict, there: int | None, other: str) -> tuple[str, str]:
    """What a hit should say of the other ranking, where it has the rank `there`, and of which kind that is."""
    if there is not None:
        moved = there - hit["rank"]
        return "moved", f"{other} {there} " + (f"▲ {moved}" if moved > 0 else f"▼ {-moved}" if moved else "=")
    if other == "BM25" and hit["bm25"] == 0:
        return "no word", "only here: it has no word of the query"
    return "scored", "only here · " + (f"BM25 {hit['bm25']:.2f}" if other == "BM25" else f"cosine {hit['cosine']:.3f}")


def test_typing_shows_both_rankings_as_the_service_gives_them(browser, origin):
    with looking(browser, origin) as page:
        page.goto(origin)
        expect(page.locator("#query")).to_be_focused()
        expect(page.locator("#start")).to_contain_text("Type what a person would type")
        page.keyboard.type("the steel bracket")
        expect(page.locator(MODEL)).to_have_count(50)
        model = ask(origin, "search", query="the steel bracket", k=100)
        bm25 = ask(origin, "search", query="the steel bracket", k=100, mode="bm25")
        for selector, hits, digits in ((MODEL, model["hits"][:50], 3), (BM25, bm25["hits"][:50], 2)):
            assert page.locator(f"{selector} .title").all_text_contents() == [hit["title"] for hit in hits]
            scores = page.locator(f"{selector} .score").all_text_contents()
            assert scores == [f"{hit['score']:.{digits}f}" for hit in hits]
        expect(page.locator(f"{MODEL}:visible")).to_have_count(10)
        page.locator('[data-side="model"] .more').click()
        expect(page.locator(f"{MODEL}:visible")).to_have_count(20)
        expect(page.locator(MODEL).nth(10)).to_be_focused()

        # Where the same document stands on the other side.
        kinds = set()
        for selector, other, here, there in ((MODEL, "BM25", model, bm25), (BM25, "model", bm25, model)):
            ranks = {hit["id"]: hit["rank"] for hit in there["hits"]}
            output = page.locator(f"{selector} .elsewhere").all_text_contents()
            for hit, text in zip(here["hits"][:50], output, strict=True):
                kind, expected = elsewhere(hit, ranks.get(hit["id"]), other)
                assert text == expected
                kinds.add((other, kind))
        assert kinds >= {("BM25", "moved"), ("BM25", "no word"), ("model", "moved")}
        assert {kind for _, kind in kinds} >= {"scored"}

        expect(page.locator("#status")).to_have_text(re.compile(r"Of the first ten, \w+ (is|are) in both rankings\."))
        expect(page.locator("#release")).to_contain_text(f"release {model['release'][:8]} · {len(TITLES)} documents")
        expect(page.locator("#compared")).to_have_text("by cosine, words and terms")
        expect(page.locator("#simulated")).to_be_visible()
        expect(page.locator('[data-side="model"] .took')).to_have_text(re.compile(r"^\d+(\.\d)? ms$"))


def test_the_address_holds_the_query_and_back_goes_back(browser, origin):
    with looking(browser, origin) as page:
        page.goto(f"{origin}/?q=brass%20hinge")
        expect(page.locator("#query")).to_have_value("brass hinge")
        expect(page.locator(f"{BM25} .title").first).to_contain_text("brass hinge")
        page.locator("#query").fill("cafe")  # typing alone, and a pause: one entry of the history, written over below
        expect(page).to_have_url(re.compile(r"q=cafe$"))
        page.locator("#query").fill("Café & ﬁne+oak")
        page.keyboard.press("Enter")
        expect(page.locator(f"{BM25} .title").first).to_have_text("Café table, ﬁne oak")
        shared = page.url
        page.go_back()
        expect(page.locator("#query")).to_have_value("brass hinge")
        expect(page.locator(f"{BM25} .title").first).to_contain_text("brass hinge")
        page.goto(shared)
        expect(page.locator("#query")).to_have_value("Café & ﬁne+oak")
        page.locator("#query").fill("")
        page.keyboard.press("Enter")
        expect(page.locator("#start")).to_be_visible()
        assert page.url == f"{origin}/"


def test_examples_come_from_the_catalogue_and_can_be_followed(browser, origin):
    with looking(browser, origin) as page:
        page.goto(origin)
        examples = page.locator("#examples a")
        expect(examples.first).to_be_visible()
        known = {word for title in TITLES for word in title.lower().split()}
        assert set(examples.first.text_content().split()) <= known
        examples.first.click()
        expect(page.locator(MODEL).first).to_be_visible()
        expect(page.locator("#query")).to_have_value(unquote(page.url.split("?q=")[1]))


def signed(value: float, digits: int = 3) -> str:
    return f"{value:+.{digits}f}".replace("-", "−")


def added(word: dict, part: str, digits: int) -> str:
    """What a word adds to the words or the terms of a score, as the page says it."""
    if part == "terms" and not word["terms"]:
        return "no term"
    value = word["contributions"][part]
    return signed(value, digits) if value else "–"


@pytest.mark.parametrize(("side", "mode", "digits"), [(MODEL, "hybrid", 3), (BM25, "bm25", 2)])
def test_an_opened_result_shows_what_carried_its_score(browser, origin, side, mode, digits):
    query = "ANGLE & bracket 4"
    with looking(browser, origin) as page:
        page.goto(f"{origin}/?q=ANGLE%20%26%20bracket%204")
        first = page.locator(side).first
        first.click()
        why = page.locator(f"#{first.get_attribute('aria-controls')}")
        expect(why.locator("table")).to_have_count(3)
        hit = ask(origin, "search", query=query, k=1, mode=mode)["hits"][0]
        found = ask(origin, "explain", query=query, id=hit["id"], mode=mode)
        assert found["score"] == hit["score"]
        expect(first.locator(".score")).to_have_text(f"{found['score']:.{digits}f}")
        parts = found["contributions"]
        score = (
            f"BM25 {found['score']:.2f}"
            if mode == "bm25"
            else f"score {found['score']:.3f} = cosine {parts['vectors']:.3f} + words {parts['words']:.3f}"
            f" + terms {parts['terms']:.3f}".replace("-", "−")
        )
        expect(why.locator(".facts").first).to_have_text(score)
        sums, *shares = why.locator("table").all()
        words_of_query = found["query"]["words"]
        assert sums.locator("tbody th").all_text_contents() == [word["word"] for word in words_of_query]
        of_part = ("words", "terms") if mode == "hybrid" else ("terms",)
        assert sums.locator("tbody td.number").all_text_contents() == [
            added(word, part, digits) for word in words_of_query for part in of_part
        ]
        assert "no term" in sums.text_content()
        for table, text in zip(shares, ("query", "title"), strict=True):
            of_words = found[text]["words"]
            assert table.locator("tbody th").all_text_contents() == [word["word"] for word in of_words]
            assert table.locator("tbody td.number").all_text_contents() == [signed(word["share"]) for word in of_words]
            keywords = [word["word"] for word in of_words if word["keyword"]]
            assert table.locator("th.keyword").all_text_contents() == keywords
        expect(first).to_have_attribute("aria-expanded", "true")
        first.click()
        expect(why).to_be_hidden()
        expect(first).to_have_attribute("aria-expanded", "false")


def test_a_release_that_ranks_by_vectors_alone_opens_to_the_cosine(browser, tmp_path):
    recipe = varied(RECIPE, word_share=0.0, lexical_share=0.0)
    with serving(publish_page_release(tmp_path, TITLES[:3], recipe)) as origin, looking(browser, origin) as page:
        page.goto(f"{origin}/?q=steel")
        expect(page.locator("#compared")).to_have_text("by cosine")
        first = page.locator(MODEL).first
        first.click()
        expect(page.locator('[data-side="model"] .why table')).to_have_count(2)
        shown = first.locator(".score").text_content()
        expect(page.locator('[data-side="model"] .why .facts').first).to_have_text(f"cosine {shown}")


def test_awkward_titles_are_shown_and_explained_letter_for_letter(browser, origin):
    with looking(browser, origin, size=PHONE) as page:
        page.goto(origin)
        for title in AWKWARD:
            page.locator("#query").fill(title)
            first = page.locator(MODEL).first
            expect(first.locator(".title")).to_have_text(title)  # one tower for both sides: it finds itself
            expect(first.locator(".score")).to_have_text("1.000")
            first.click()
            why = page.locator('[data-side="model"] .why').first
            expect(why.locator("table")).to_have_count(3)
            for table in why.locator("table").all():
                assert table.locator("tbody th").all_text_contents() == words(title)
            assert page.locator("main :is(script, img, b)").count() == 0
            assert page.title() == f"{title} · clicktower"
            assert page.evaluate("document.documentElement.scrollWidth") == PHONE["width"]


def test_keys_alone_are_enough(browser, origin):
    with looking(browser, origin) as page:
        page.goto(origin)
        page.keyboard.type("white shelf")
        page.keyboard.press("Enter")
        expect(page.locator(MODEL).nth(1)).to_be_visible()
        page.keyboard.press("ArrowDown")
        expect(page.locator(MODEL).first).to_be_focused()
        page.keyboard.press("ArrowDown")
        second = page.locator(MODEL).nth(1)
        expect(second).to_be_focused()
        assert second.evaluate("node => getComputedStyle(node).outlineStyle") == "solid"
        page.keyboard.press("Enter")
        expect(second).to_have_attribute("aria-expanded", "true")
        controlled = page.locator(f"#{second.get_attribute('aria-controls')}")
        expect(controlled.locator("table")).to_have_count(3)
        page.keyboard.press("Escape")
        expect(controlled).to_be_hidden()
        expect(second).to_be_focused()
        page.keyboard.press("ArrowRight")  # to the same document, or the same rank
        beside = page.evaluate("document.activeElement.closest('.side').dataset.side")
        assert beside == "bm25"
        page.keyboard.press("ArrowLeft")
        page.keyboard.press("ArrowUp")
        page.keyboard.press("ArrowUp")
        if not page.locator("#query").evaluate("node => node === document.activeElement"):
            page.keyboard.press("/")
        expect(page.locator("#query")).to_be_focused()
        expect(page.locator("#query")).to_have_value("white shelf")
        page.keyboard.press("Tab")
        page.keyboard.press("Tab")
        expect(page.locator(MODEL).first).to_be_focused()
        page.keyboard.press("/")
        page.keyboard.type("brass")  # what was there is selected, so it is typed over
        expect(page.locator("#query")).to_have_value("brass")


def test_on_a_phone_one_ranking_is_seen_at_a_time_and_nothing_sticks_out(browser, origin, tmp_path):
    with looking(browser, origin, size=PHONE) as page:
        page.goto(f"{origin}/?q=steel%20angle")
        expect(page.locator(f"{MODEL}:visible").first).to_be_visible()
        expect(page.locator(f"{BM25}:visible")).to_have_count(0)
        page.get_by_role("button", name="BM25", exact=True).click()
        expect(page.locator(f"{MODEL}:visible")).to_have_count(0)
        page.locator(BM25).first.click()
        expect(page.locator('[data-side="bm25"] .why table')).to_have_count(3)
        assert page.evaluate("document.documentElement.scrollWidth") == PHONE["width"]
        assert len(page.screenshot(path=tmp_path / "phone.png", full_page=True)) > 10_000


def test_every_text_stands_out_from_its_ground_in_light_and_in_dark(browser, origin, tmp_path):
    grounds = {}
    for scheme in ("light", "dark"):
        with looking(browser, origin, scheme=scheme) as page:
            page.goto(origin)
            expect(page.locator("#examples a").first).to_be_visible()
            contrasts = page.evaluate(CONTRASTS)
            page.goto(f"{origin}/?q=steel%20angle%20garden")
            page.locator(MODEL).first.click()
            page.locator(BM25).nth(2).click()
            expect(page.locator("table.shares")).to_have_count(6)
            contrasts += page.evaluate(CONTRASTS)
            assert len(contrasts) > 100
            assert [text for ratio, text in contrasts if ratio < 4.5] == []
            grounds[scheme] = page.evaluate("getComputedStyle(document.body).backgroundColor")
            assert len(page.screenshot(path=tmp_path / f"{scheme}.png", full_page=True)) > 10_000
    assert len(set(grounds.values())) == 2


def test_what_goes_wrong_is_a_sentence(browser, origin):
    with looking(browser, origin, faults=True) as page:
        page.goto(origin)
        page.locator("#query").fill("x" * 3_000)
        expect(page.locator(FAILED)).to_have_text("The query is longer than 2,000 characters: shorten it.")
        page.goto(f"{origin}/?q=%01hammer")  # refused by the service
        expect(page.locator(FAILED)).to_have_text(re.compile(r"^The field query has a control character .*\.$"))
        page.locator("#query").fill("steel")  # the next search works as if nothing had been
        expect(page.locator(MODEL).first).to_be_visible()
        expect(page.locator(FAILED)).to_have_count(0)

        page.route("**/v1/explain", lambda route: route.continue_(post_data='{"query": "steel", "id": "gone"}'))
        page.locator(MODEL).first.click()
        expect(page.locator(".why").first).to_have_text(SENTENCE)
        page.unroute("**/v1/explain")
        page.locator(MODEL).first.click()
        page.locator(MODEL).first.click()  # asked again
        expect(page.locator(".why").first.locator("table")).to_have_count(3)

        page.route("**/v1/search", lambda route: route.abort())
        page.locator("#query").fill("steel angle")
        expect(page.locator(FAILED)).to_contain_text("The service does not answer.")
        page.unroute("**/v1/search")
        page.route("**/v1/search", lambda route: route.fulfill(status=502, body="<html>Bad gateway</html>"))
        page.locator("#query").fill("steel angles")
        expect(page.locator(FAILED)).to_contain_text("status 502")


def test_the_answer_to_an_earlier_query_is_not_shown(browser, origin):
    with looking(browser, origin) as page:
        held = []
        page.route(
            "**/v1/search",
            lambda route: held.append(route) if "black" in route.request.post_data else route.continue_(),
        )
        page.goto(f"{origin}/?q=black%20hinge")
        expect(page.locator("#status")).to_have_text("Searching…")
        page.locator("#query").fill("brass shelf")
        expect(page.locator(f"{BM25} .title").first).to_contain_text("brass shelf")
        assert len(held) == 2
        with page.expect_response(lambda response: "black" in (response.request.post_data or "")):
            for route in held:
                route.continue_()
        page.wait_for_timeout(100)
        expect(page.locator(f"{BM25} .title").first).to_contain_text("brass shelf")
        expect(page.locator("#query")).to_have_value("brass shelf")


def test_a_release_that_takes_over_is_named_and_does_not_explain_what_another_found(browser, tmp_path):
    release = write_page_release(tmp_path)
    with serving(release) as origin, looking(browser, origin) as page:
        page.goto(f"{origin}/?q=steel")
        expect(page.locator("#release")).to_contain_text(f"{len(TITLES)} documents")
        before = page.locator("#release").text_content()
        publish_page_release(tmp_path, [*TITLES, "steel anvil"])
        wait_until(lambda: ask(origin, "search", query="steel", mode="bm25")["release"][:8] not in before)
        page.locator(MODEL).first.click()
        expect(page.locator(".why").first).to_contain_text("Another release has taken over since")
        page.locator("#query").fill("anvil")
        expect(page.locator(f"{BM25} .title")).to_have_text(["steel anvil"])
        expect(page.locator("#release")).to_contain_text(f"{len(TITLES) + 1} documents")
        page.locator(BM25).click()
        expect(page.locator('[data-side="bm25"] .why table')).to_have_count(3)


def test_the_page_may_load_and_run_nothing_but_its_own(browser, origin):
    with urllib.request.urlopen(origin, timeout=SECONDS) as answer:
        policy = answer.headers["Content-Security-Policy"]
        page_text = answer.read().decode()
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert re.findall(r"(?:src|href)=\"([^\"]+)\"", page_text)
    assert not re.search(r"https?://|style=|\son\w+=", page_text)
    with looking(browser, origin, faults=True) as page:
        page.goto(origin)
        page.evaluate("""() => {
          const script = document.createElement("script");
          script.textContent = "window.taken = true";
          document.body.append(script);
          document.body.insertAdjacentHTML("beforeend", '<p onclick="window.taken = true" id="trap">trap</p>');
        }""")
        page.locator("#trap").click()
        assert page.evaluate("window.taken") is None
