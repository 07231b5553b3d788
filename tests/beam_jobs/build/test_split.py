import hashlib

from hypothesis import given
from hypothesis import strategies as st

from clicktower.beam_jobs.build.click_shards import held_out

QUERIES = [f"query {i}" for i in range(20_000)]


def test_the_split_is_a_keyed_hash_that_never_changes():
    # Written down once: if this list changes, held-out queries of existing models would be trained on.
    dev = held_out(QUERIES[:100], salt="clicktower", share=0.05)
    assert [QUERIES[i] for i in dev.nonzero()[0]] == ["query 4", "query 6", "query 29", "query 49", "query 66"]


def test_about_the_asked_share_is_held_out_and_other_salts_hold_out_others():
    one, other = (held_out(QUERIES, salt=salt, share=0.05) for salt in ("clicktower", "other"))
    # 1,000 expected, standard deviation 31: six of them on either side.
    assert 815 < one.sum() < 1_185
    assert 815 < other.sum() < 1_185
    assert (one & other).sum() < 120  # 50 expected if the two are independent


@given(st.sets(st.text(max_size=8), max_size=20), st.sets(st.text(max_size=8), max_size=20))
def test_a_query_stays_on_its_side_whatever_other_queries_there_are(some, more):
    alone = dict(zip(some, held_out(some, salt="s", share=0.5), strict=True))
    together = dict(zip(some | more, held_out(some | more, salt="s", share=0.5), strict=True))
    assert all(together[query] == dev for query, dev in alone.items())


def test_a_larger_share_holds_out_the_same_queries_and_more():
    small, large = (held_out(QUERIES, salt="s", share=share) for share in (0.05, 0.2))
    assert (large | ~small).all()
    assert not held_out(QUERIES, salt="s", share=0).any()


def test_the_hash_is_blake2b_keyed_with_the_salt():
    digest = hashlib.blake2b(b"screw", digest_size=8, key=b"salt", person=b"split").digest()
    at = int.from_bytes(digest, "little") / 2**64
    assert held_out(["screw"], salt="salt", share=at + 1e-9).tolist() == [True]
    assert held_out(["screw"], salt="salt", share=at - 1e-9).tolist() == [False]
