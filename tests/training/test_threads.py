"""Work shared out to threads: each item once, whoever takes it, and no error is lost."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from training.compute.threads import share_out


@pytest.mark.parametrize("num_threads", [1, 2, 5])
def test_each_item_is_taken_once_and_all_are_done_at_the_end(num_threads):
    done, lock = [], threading.Lock()

    def do(item: int) -> None:
        with lock:
            done.append(item)

    with ThreadPoolExecutor(num_threads) as threads:
        share_out(do, range(3_000), threads, num_threads)
        assert sorted(done) == list(range(3_000))
        share_out(do, [], threads, num_threads)
    assert len(done) == 3_000


def test_this_thread_works_too_and_others_beside_it():
    met, who = threading.Barrier(3), set()

    def do(_: int) -> None:
        who.add(threading.get_ident())
        met.wait(30)  # comes back only where three threads are here at once

    with ThreadPoolExecutor(2) as threads:
        share_out(do, range(3), threads, 3)
    assert threading.get_ident() in who
    assert len(who) == 3


@pytest.mark.parametrize("bad", [0, 7, 39])
def test_an_error_of_any_thread_is_raised_here_after_the_others_have_ended(bad):
    running = []

    def do(item: int) -> None:
        running.append(item)
        if item == bad:
            raise ArithmeticError(item)
        running.remove(item)

    with ThreadPoolExecutor(3) as threads, pytest.raises(ArithmeticError):
        share_out(do, range(40), threads, 3)
    assert running == [bad]
