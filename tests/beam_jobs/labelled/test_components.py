from collections import deque

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from clicktower.beam_jobs.labelled.labelled_rows import components, held_out_sentences, sentence_ids

LINKS = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), min_size=1, max_size=60)


def _walked(links: list[tuple[int, int]]) -> dict[int, set[int]]:
    """The component of each sentence, found by walking from it."""
    beside: dict[int, set[int]] = {}
    for a, b in links:
        beside.setdefault(a, set()).add(b)
        beside.setdefault(b, set()).add(a)
    found = {}
    for start in beside:
        seen, waiting = {start}, deque([start])
        while waiting:
            for near in beside[waiting.popleft()] - seen:
                seen.add(near)
                waiting.append(near)
        found[start] = seen
    return found


def _columns(links: list[tuple[int, int]]) -> tuple[np.ndarray, np.ndarray]:
    return np.array([a for a, _ in links], np.uint64), np.array([b for _, b in links], np.uint64)


@given(LINKS)
def test_components_are_those_that_walking_along_the_pairs_finds(links):
    ids, representative = components(*_columns(links))
    walked = _walked(links)
    assert ids.tolist() == sorted(walked)
    assert {i: int(ids[r]) for i, r in zip(ids.tolist(), representative.tolist(), strict=True)} == {
        start: min(seen) for start, seen in walked.items()
    }


def test_a_chain_of_ten_thousand_pairs_is_one_component_in_any_order():
    order = np.random.default_rng(0).permutation(10_001).astype(np.uint64)
    _, representative = components(order[:-1], order[1:])
    assert (representative == 0).all()


@given(LINKS, st.sampled_from([0.1, 0.5, 0.9]))
def test_no_pair_has_one_sentence_held_out_and_the_other_not(links, share):
    first, second = _columns(links)
    held_out, counts = held_out_sentences(first, second, salt="s", share=share)
    out = set(held_out.tolist())
    assert all((a in out) == (b in out) for a, b in links)
    assert counts["components"] == len({frozenset(seen) for seen in _walked(links).values()})
    # The largest component that is held out has at most the share of all rows.
    rows_of = {min(seen): sum(a in seen for a, _ in links) for seen in _walked(links).values()}
    assert all(rows <= share * len(links) for start, rows in rows_of.items() if start in out)


@given(LINKS, st.randoms(use_true_random=False))
def test_the_order_of_the_rows_and_of_the_texts_in_them_changes_nothing(links, rng):
    turned = [(b, a) if rng.random() < 0.5 else (a, b) for a, b in links]
    rng.shuffle(turned)
    one, other = (held_out_sentences(*_columns(each), salt="s", share=0.5)[0] for each in (links, turned))
    assert one.tolist() == other.tolist()


def test_about_the_asked_share_of_the_components_is_held_out_whatever_their_size():
    # 10,000 pairs of two sentences and 2,000 stars of six: 10% of each kind, four standard deviations around.
    ids = sentence_ids(map(str, range(20_000 + 12_000)))
    pairs, stars = ids[:20_000].reshape(-1, 2), ids[20_000:].reshape(-1, 6)
    first = np.concatenate([pairs[:, 0], np.repeat(stars[:, 0], 5)])
    second = np.concatenate([pairs[:, 1], stars[:, 1:].ravel()])
    held_out, _ = held_out_sentences(first, second, salt="clicktower", share=0.1)
    assert 880 < np.isin(pairs[:, 0], held_out).sum() < 1_120
    assert 146 < np.isin(stars[:, 0], held_out).sum() < 254
