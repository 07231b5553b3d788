"""The connected components of sentences that pairs link, and which of them are held out.

Pairs link sentences: if (a, b) is held out and (b, c) is not, b is on both sides. So what the split moves is a whole
component: all sentences that a chain of pairs connects. A component is held out if the keyed hash of its
representative, the sentence with the smallest id, is below the share; the id does not know the key, so every component
is held out with the same probability, however large. One that holds more than the share of all rows by itself trains:
data that hang together cannot be parted, and most of them must be trained on.

Held in memory by the one worker that does this: ids and places, up to 140 bytes for each row (measured at a million),
and no text. A hundred million pairs take some 14 GB.
"""

import numpy as np

from beam_jobs.split import held_out


def components(first: np.ndarray, second: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(the distinct ids ascending, uint64 [S]; the representative of each one's component as its place there, int64).

    first, second: ids that a row links, uint64 [rows]; a row of one sentence links it with itself.

    By rounds until nothing changes: both sentences of a row, and their representatives of the round before, take the
    smaller of these; then every sentence takes its representative's own.
    """
    ids, places = np.unique(np.concatenate([first, second]), return_inverse=True)
    a, b = np.split(places.reshape(-1), 2)
    smallest = np.arange(len(ids))
    while True:
        before = smallest.copy()
        joined = np.minimum(smallest[a], smallest[b])
        # The representatives learn of it too, or a chain would take about as many rounds as it has links.
        for end in (a, b):
            np.minimum.at(smallest, before[end], joined)
            np.minimum.at(smallest, end, joined)
        smallest = smallest[smallest]
        if np.array_equal(smallest, before):
            return ids, smallest


def held_out_sentences(
    first: np.ndarray, second: np.ndarray, *, salt: str, share: float
) -> tuple[np.ndarray, dict[str, int]]:
    """(the ids of the held-out sentences, uint64 ascending; counts of the components), as the module says."""
    ids, representative = components(first, second)
    present, of_sentence = np.unique(representative, return_inverse=True)
    of_row = of_sentence[np.searchsorted(ids, first)]
    num_rows = np.bincount(of_row, minlength=len(present))
    is_out = held_out((f"{each:016x}" for each in ids[present].tolist()), salt=salt, share=share)
    is_whole = num_rows > share * len(first)
    counts = {
        "components": len(present),
        "largest_component_rows": int(num_rows.max(initial=0)),
        "components_too_large_to_hold_out": int((is_whole & is_out).sum()),
    }
    return ids[(is_out & ~is_whole)[of_sentence]], counts
