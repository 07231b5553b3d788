"""A simulated log: the same from the same seed, hard at the stated rates, and its truth adds up."""

import dataclasses
import gzip
import hashlib
import json
import math
import tracemalloc
from collections import Counter, defaultdict
from pathlib import Path

import bm25s
import numpy as np
import pyarrow.parquet as pq
import pytest

from clicktower.flows.simulation.simulated_searches import Population
from clicktower.flows.simulation.simulated_shop import document_id, draw_catalogue, near_types, phrase, shop_vocabulary
from clicktower.flows.simulation.simulation_config import SimulationConfig
from clicktower.flows.simulation.write_simulation import simulate, simulate_block
from clicktower.schemas.documents import read_documents
from clicktower.schemas.errors import StageError, UsageError
from clicktower.schemas.judgments import read_qrels, read_queries
from clicktower.schemas.ledger import Ledger
from clicktower.schemas.search_log import SIMULATED_APPLICATION
from clicktower.schemas.text_contract import normalise, words

CONFIG = SimulationConfig(num_searches=12_000, seed=7, searches_per_bot=200)


@pytest.fixture(scope="module")
def shop(tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("simulation") / "shop"
    simulate(str(out), config=CONFIG)
    return out


@pytest.fixture(scope="module")
def raw_lines(shop) -> dict[tuple[int, int], bytes]:
    """Every line by (file, line number)."""
    found = {}
    for number, path in enumerate(sorted((shop / "log").iterdir())):
        for line, raw in enumerate(gzip.decompress(path.read_bytes()).split(b"\n")[:-1], start=1):
            found[number, line] = raw
    return found


@pytest.fixture(scope="module")
def fate_of(shop) -> dict[tuple[int, int], str]:
    table = pq.read_table(shop / "truth" / "lines.parquet")
    places = zip(table["file"].to_pylist(), table["line"].to_pylist(), strict=True)
    return dict(zip(places, table["fate"].to_pylist(), strict=True))


@pytest.fixture(scope="module")
def readable(raw_lines, fate_of) -> dict[tuple[int, int], dict]:
    return {place: json.loads(raw) for place, raw in raw_lines.items() if not fate_of[place].startswith("unreadable")}


def _tree(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.rglob("*")
        if path.is_file()
    }


@pytest.mark.slow
def test_the_same_seed_gives_the_same_bytes_and_another_seed_does_not(tmp_path, monkeypatch):
    monkeypatch.setattr("clicktower.flows.simulation.write_simulation.BLOCK_SEARCHES", 2_000)
    config = SimulationConfig(num_searches=3_000, num_judged_queries=40)  # more than one block
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        simulate(str(tmp_path / name), config=dataclasses.replace(config, seed=seed))
    first, same, other = (_tree(tmp_path / name) for name in "abc")
    assert first == same
    assert not [name for name in first if first[name] == other[name]]


def test_a_search_is_the_same_whatever_slice_it_is_drawn_in():
    catalogue = draw_catalogue(3, 600, 0.04)
    config = SimulationConfig(num_searches=500, seed=3)

    def lines(*slices: range) -> list[str]:
        phrase.cache_clear()
        drawn = []
        for numbers in slices:
            _, made = simulate_block(config, catalogue, Population(config), np.array(numbers))
            drawn += made.text
        return sorted(drawn)

    assert lines(range(500)) == lines(range(17), range(17, 300), range(300, 500)) == lines(range(300, 500), range(300))


def test_a_document_does_not_depend_on_how_many_there_are():
    few, many = (draw_catalogue(5, number, 0.04) for number in (400, 1_000))
    for name in ("source", "type", "attributes", "is_part", "popularity"):
        np.testing.assert_array_equal(getattr(few, name), getattr(many, name)[:400])


@pytest.mark.slow
def test_every_line_has_one_fate_at_its_place_and_the_ledger_adds_up(shop, raw_lines, fate_of):
    made = json.loads((shop / "SIMULATED.json").read_text())
    ledger = Ledger(**made["ledger"]).check()
    assert fate_of.keys() == raw_lines.keys()
    assert len(raw_lines) == ledger.total == made["counts"]["lines"]
    assert dict(Counter(fate_of.values())) == dict(ledger.lines)
    for name in ("unreadable_not_utf8", "unreadable_not_json", "unreadable_no_query_id", "search_repeated", "repeat",
                 "search_unknown", "document_missing", "other_action", "bot_user_agent", "bot_behaviour",
                 "query_empty"):  # fmt: skip
        assert ledger.lines[name] > 0, name


def test_lines_are_read_as_their_fate_says(raw_lines, fate_of):
    for place, raw in raw_lines.items():
        assert _reading(raw) == (fate_of[place] if fate_of[place].startswith("unreadable") else "readable")


def _reading(raw: bytes) -> str:
    try:
        value = json.loads(raw.decode("utf-8"))
    except UnicodeDecodeError:
        return "unreadable_not_utf8"
    except ValueError:
        return "unreadable_not_json"
    if not isinstance(value, dict):
        return "unreadable_not_json"
    if "query_id" not in value:
        return "unreadable_no_query_id"
    return "readable" if isinstance(value.get("user_query", ""), str) else "unreadable_field"


@pytest.mark.slow
def test_every_readable_line_is_labelled_simulated(readable):
    assert {line["application"] for line in readable.values()} == {SIMULATED_APPLICATION}


def test_fates_follow_from_the_lines_themselves(raw_lines, readable, fate_of):
    """Repeats, lost searches, declared bots and empty queries, told again from nothing but the log."""
    copies = Counter(raw_lines.values())
    repeats = Counter(raw_lines[place] for place, fate in fate_of.items() if fate == "repeat")
    assert repeats == {raw: count - 1 for raw, count in copies.items() if count > 1 and _reading(raw) == "readable"}
    searches = {line["query_id"]: line for line in readable.values() if "user_query" in line}
    for place, line in readable.items():
        fate = fate_of[place]
        if fate in ("repeat", "other_action", "document_missing", "search_repeated"):
            continue
        assert (line["query_id"] not in searches) == (fate == "search_unknown")
        if fate == "search_unknown":
            continue
        search = searches[line["query_id"]]
        agent = search["query_attributes"]["user_agent"].lower()
        assert any(mark in agent for mark in ("bot", "curl", "python")) == (fate == "bot_user_agent")
        if fate not in ("bot_user_agent", "bot_behaviour"):
            assert (not words(search["user_query"])) == (fate == "query_empty")


def _searches(shop: Path) -> list[dict]:
    return pq.read_table(shop / "truth" / "searches.parquet").to_pylist()


def _clients(shop: Path, *roles: str) -> dict[str, str]:
    """Client -> role, of these roles."""
    return {row["client_id"]: row["role"] for row in _searches(shop) if row["role"] in roles}


def test_private_queries_are_typed_by_one_person_even_if_often(shop, readable):
    ids = {row["query_id"] for row in _searches(shop) if row["what"] == "private"}
    private = {normalise(line["user_query"]) for line in readable.values()
               if line["query_id"] in ids and "user_query" in line}  # fmt: skip
    assert len(private) > 50
    people, times = defaultdict(set), Counter()
    for line in readable.values():
        if "user_query" in line and normalise(line["user_query"]) in private:
            people[normalise(line["user_query"])].add(line["client_id"])
            times[normalise(line["user_query"])] += 1
    assert {len(clients) for clients in people.values()} == {1}
    assert max(times.values()) >= 5  # counting searches instead of people would publish it


def test_undeclared_bots_hurry_and_heavy_people_do_not(shop, readable):
    bots, heavy = _clients(shop, "declared_bot", "undeclared_bot"), _clients(shop, "heavy_person")
    assert heavy
    assert not heavy.keys() & bots.keys()
    assert set(bots.values()) == {"declared_bot", "undeclared_bot"}
    times = defaultdict(list)
    for line in readable.values():
        if "user_query" in line and "client_id" in line:
            times[line["client_id"]].append(np.datetime64(line["timestamp"].rstrip("Z")))
    for client, kind in bots.items():
        if kind == "undeclared_bot":
            span = (max(times[client]) - min(times[client])) / np.timedelta64(1, "s")
            assert span / len(times[client]) < 2  # a search every other second at least
    for client in heavy:
        assert len(times[client]) >= CONFIG.searches_per_heavy_person * 0.9
        by_hour = Counter(str(time)[:13] for time in times[client])
        assert max(by_hour.values()) < 15


@pytest.mark.slow
def test_bots_of_every_kind_can_be_asked_for_and_do_what_they_are_for(tmp_path):
    config = SimulationConfig(
        num_searches=12_000, seed=4, num_judged_queries=40, slow_bots=0.1, clicking_bots=0.03, crowds=0.02,
        professionals=0.06, declared_bots=0, undeclared_bots=0,
    )  # fmt: skip
    simulate(str(tmp_path / "shop"), config=config)
    kinds = _clients(tmp_path / "shop", "slow_bot", "clicking_bot", "crowd_bot")
    assert Counter(kinds.values()) == {"slow_bot": 3, "clicking_bot": 6, "crowd_bot": 120}
    assert len(_clients(tmp_path / "shop", "heavy_person", "professional")) == 4 + 3
    searches, clicks, shown = defaultdict(list), Counter(), Counter()
    for path in (tmp_path / "shop/log").iterdir():
        for raw in gzip.decompress(path.read_bytes()).splitlines():
            try:
                line = json.loads(raw)
            except ValueError:
                continue
            if "client_id" in line and "user_query" in line and isinstance(line["user_query"], str):
                when = np.datetime64(line["timestamp"].rstrip("Z"))
                searches[line["client_id"]].append((when, normalise(line["user_query"])))
            elif "client_id" in line:
                clicks[line["client_id"]] += line.get("action_name") == "click"
                shown[line["client_id"]] += line.get("action_name") == "impression"
    crowds = defaultdict(set)
    for client, kind in kinds.items():
        times = sorted(when for when, _ in searches[client])
        if kind == "slow_bot":
            gaps = np.diff(times) / np.timedelta64(60, "s")
            assert clicks[client] == 0
            assert 3 < np.median(gaps) < 14
            assert max(Counter(str(when)[:13] for when in times).values()) < 30  # too slow for a rule of pace
        elif kind == "clicking_bot":
            assert clicks[client] >= 0.95 * min(shown[client], len(times))
            assert max(Counter(str(when)[:13] for when in times).values()) < 10
        else:
            crowds[searches[client][0][1] if len(searches[client]) == 1 else min(searches[client])[1]].add(client)
    assert len(crowds) == 10
    for query, clients in crowds.items():
        assert len(clients) >= 11  # twelve, unless a line of one is broken
        times = [when for client in clients for when, asked in searches[client] if asked == query]
        assert max(times) - min(times) <= np.timedelta64(46, "m")


def test_difficulties_come_at_their_rates(shop):
    counts = json.loads((shop / "SIMULATED.json").read_text())
    found, ledger = counts["counts"], counts["ledger"]["lines"]
    human = found["searches_by_person"] + found["searches_by_heavy_person"]
    lines = found["lines"]
    broken = sum(number for fate, number in ledger.items() if fate.startswith("unreadable"))
    for number, rate, among in (
        (found["searches_by_undeclared_bot"], CONFIG.undeclared_bots, CONFIG.num_searches),
        (found["searches_by_declared_bot"], CONFIG.declared_bots, CONFIG.num_searches),
        (found["searches_adult"], CONFIG.adult, human),
        (found["searches_spam"], CONFIG.spam, human),
        (found["searches_empty"], CONFIG.empty, human),
        (found["misspelled_at_random"], CONFIG.random_misspelling, human),
        (found["odd_case"], CONFIG.odd_case, human),
        (found["odd_spaces"], CONFIG.odd_spaces, human),
        (ledger["repeat"], CONFIG.repeated_lines, lines),
        (broken, CONFIG.broken_lines, lines),
    ):
        expected = rate * among
        assert abs(number - expected) < 5 * math.sqrt(expected) + 0.06 * expected


def test_clicks_fall_with_the_rank(readable, fate_of):
    shown, clicked = Counter(), Counter()
    for place, line in readable.items():
        if fate_of[place] in ("day_impression", "day_click"):
            counted = clicked if fate_of[place] == "day_click" else shown
            counted[line["event_attributes"]["position"]["ordinal"]] += 1
    rates = [clicked[rank] / shown[rank] for rank in (1, 3, 10)]
    assert rates[0] > 1.5 * rates[1] > 2.25 * rates[2] > 0


def test_the_gate_at_five_people_keeps_a_fair_part_of_the_clicks(readable, fate_of):
    query_of, people = {}, defaultdict(set)
    for place, line in readable.items():
        if fate_of[place] == "day_search":
            query_of[line["query_id"]] = normalise(line["user_query"])
            people[query_of[line["query_id"]]].add(line.get("client_id"))
    clicks = [query_of[line["query_id"]] for place, line in readable.items()
              if fate_of[place] == "day_click" and line["query_id"] in query_of]  # fmt: skip
    kept = sum(len(people[query] - {None}) >= 5 for query in clicks) / len(clicks)
    assert 0.3 < kept < 0.65


def test_judged_sets_are_disjoint_and_graded_over_known_documents(shop):
    documents = set(read_documents(str(shop / "documents.tsv")).ids)
    texts = {}
    for name in ("dev", "test"):
        queries = read_queries(str(shop / "judgments" / f"queries.{name}.tsv"))
        qrels = read_qrels(str(shop / "judgments" / f"qrels.{name}.txt"))
        assert queries.keys() == qrels.keys()
        assert len(queries) == CONFIG.num_judged_queries
        assert {grade for grades in qrels.values() for grade in grades.values()} == {0, 1, 2, 3}
        assert all(grades.keys() <= documents and len(set(grades.values())) > 1 for grades in qrels.values())
        assert np.mean([len(grades) for grades in qrels.values()]) > 14
        texts[name] = {normalise(text) for text in queries.values()}
        assert len(texts[name]) == len(queries)
    assert not texts["dev"] & texts["test"]


@pytest.mark.slow
def test_words_alone_rank_between_chance_and_what_clicks_teach(shop, readable, fate_of):
    """Random < BM25 < word translations learned from the clicks (IBM model 1) < the truth, by NDCG@10.

    The last shows that there is something to learn which no word count sees: a quarter of the judged queries share no
    word with any document of grade 3.
    """
    documents = read_documents(str(shop / "documents.tsv"))
    queries = read_queries(str(shop / "judgments" / "queries.dev.tsv"))
    qrels = read_qrels(str(shop / "judgments" / "qrels.dev.txt"))
    title_words = {i: words(title) for i, title in zip(documents.ids, documents.titles, strict=True)}
    bm25 = bm25s.BM25(k1=1.2, b=0.75)
    bm25.index(list(title_words.values()), show_progress=False)
    row_of = {i: row for row, i in enumerate(title_words)}
    translation = _translations(_clicked_pairs(readable, fate_of, title_words))
    rng = np.random.default_rng(0)
    scores, strangers = defaultdict(list), 0
    for query_id, text in queries.items():
        asked, grades = words(text), qrels[query_id]
        lexical = bm25.get_scores(asked)
        systems = {
            "random": {d: rng.random() for d in grades},
            "bm25": {d: float(lexical[row_of[d]]) for d in grades},
            "clicks": {d: _translated(asked, title_words[d], translation) for d in grades},
        }
        for name, scored in systems.items():
            scores[name].append(_ndcg([grades[d] for d in sorted(grades, key=lambda d, s=scored: (s[d], d))][::-1]))
        best = {word for d, grade in grades.items() if grade == 3 for word in title_words[d]}
        strangers += not best & set(asked)
    mean = {name: float(np.mean(values)) for name, values in scores.items()}
    assert 0.3 < mean["random"] < mean["bm25"] - 0.1 < mean["clicks"] - 0.15 < 0.85
    assert 0.15 < strangers / len(queries) < 0.5


def _clicked_pairs(readable, fate_of, title_words) -> set[tuple[str, str]]:
    query_of = {line["query_id"]: normalise(line["user_query"]) for place, line in readable.items()
                if fate_of[place] == "day_search"}  # fmt: skip
    pairs = set()
    for place, line in readable.items():
        if fate_of[place] == "day_click" and line["query_id"] in query_of:
            pairs.add((query_of[line["query_id"]], line["event_attributes"]["object"]["object_id"]))
    return {(query, " ".join(title_words[document])) for query, document in pairs if document in title_words}


def _translations(pairs: set[tuple[str, str]]) -> dict[tuple[str, str], float]:
    """P(query word | title word) by five rounds of expectation maximisation (Brown et al., 1993, model 1)."""
    sides = [(query.split(), set(title.split())) for query, title in sorted(pairs)]
    chance: dict[tuple[str, str], float] = {}
    for _ in range(5):
        counts, totals = Counter(), Counter()
        for query, title in sides:
            for word in query:
                shares = {other: chance.get((word, other), 1e-3) for other in title}
                whole = sum(shares.values())
                for other, share in shares.items():
                    counts[word, other] += share / whole
                    totals[other] += share / whole
        chance = {pair: count / totals[pair[1]] for pair, count in counts.items()}
    return chance


def _translated(asked: list[str], title: list[str], chance: dict[tuple[str, str], float]) -> float:
    return sum(
        math.log(
            1e-4 + 0.9 * sum(chance.get((word, other), 0) for other in set(title)) / len(title) + 0.1 * (word in title)
        )
        for word in asked
    )


def _ndcg(ranked: list[int]) -> float:
    def gain(grades: list[int]) -> float:
        return sum((2**grade - 1) / math.log2(rank + 2) for rank, grade in enumerate(grades[:10]))

    return gain(ranked) / gain(sorted(ranked, reverse=True))


@pytest.mark.slow
def test_memory_does_not_grow_with_the_log(tmp_path, monkeypatch):
    """Four times the searches over the same catalogue: the peak of allocations stays, save for what is capped."""
    monkeypatch.setattr("clicktower.flows.simulation.write_simulation.BLOCK_SEARCHES", 500)

    def peak(num_searches: int) -> int:
        config = SimulationConfig(num_searches=num_searches, num_documents=1_000, num_judged_queries=5, num_files=2)
        tracemalloc.start()
        try:
            simulate(str(tmp_path / str(num_searches)), config=config)
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    small, large = peak(1_000), peak(4_000)  # two blocks and eight
    assert large < 1.3 * small


def test_the_same_config_is_reused_unless_a_file_is_damaged(tmp_path):
    out = tmp_path / "shop"
    config = SimulationConfig(num_searches=300, num_judged_queries=5)
    assert simulate(str(out), config=config)["reused"] is False
    assert simulate(str(out), config=config)["reused"] is True
    documents = out / "documents.tsv"
    documents.write_bytes(documents.read_bytes()[:-10])
    with pytest.raises(UsageError, match="There is something else in"):
        simulate(str(out), config=config)


def test_what_is_there_is_never_overwritten(tmp_path):
    (tmp_path / "mine.txt").write_text("precious")
    with pytest.raises(UsageError):
        simulate(str(tmp_path), config=SimulationConfig(num_searches=300))
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


def test_a_failure_while_writing_leaves_nothing_behind(tmp_path, monkeypatch):
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("clicktower.flows.simulation.write_simulation.LogFiles.write", full)
    with pytest.raises(StageError, match="No space left"):
        simulate(str(tmp_path / "shop"), config=SimulationConfig(num_searches=300, num_judged_queries=5))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "wrong", [{"num_searches": 0}, {"adult": -0.1}, {"undeclared_bots": 0.6}, {"num_documents": 20}]
)
def test_a_config_that_cannot_be_is_refused(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        SimulationConfig(**wrong)


@pytest.mark.parametrize("config", [
    SimulationConfig(num_searches=1, num_judged_queries=1),
    SimulationConfig(num_searches=200, num_documents=200, num_judged_queries=3, num_files=1, days=1),
    SimulationConfig(num_searches=200, undeclared_bots=0, declared_bots=0, heavy_people=0, private=0),
])  # fmt: skip
def test_extreme_configs_still_add_up(tmp_path, config):
    made = simulate(str(tmp_path / "shop"), config=config)
    Ledger(**made["ledger"]).check()
    assert made["counts"]["searches"] == config.num_searches
    assert made["labels"] == {"simulated": True}


def test_vocabulary_is_wide_and_its_types_stand_in_pairs():
    vocabulary = shop_vocabulary()
    assert len(vocabulary.types) >= 120
    assert len({t.category for t in vocabulary.types}) >= 15
    assert sum(len(values) for values in vocabulary.values.values()) >= 60
    assert len({t.name.title for t in vocabulary.types}) == len(vocabulary.types)
    for number, product_type in enumerate(vocabulary.types):
        assert vocabulary.types[near_types()[number]].category == product_type.category
        assert product_type.name.synonyms
        assert all(kind in vocabulary.values for kind in product_type.kinds)


def test_document_ids_are_those_of_the_catalogue_but_for_the_unknown(readable, shop):
    known = set(read_documents(str(shop / "documents.tsv")).ids)
    assert document_id(0) in known
    named = [line["event_attributes"]["object"].get("object_id") for line in readable.values()
             if "event_attributes" in line]  # fmt: skip
    unknown = sum(name not in known for name in named if name)
    assert 0 < unknown < 3 * CONFIG.unknown_documents * len(named)
