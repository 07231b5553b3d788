"""clicktower encode"""

from typing import Literal


def encode(
    *,
    side: Literal["query", "document"],
    model: str | None = None,
    release: str | None = None,
    raw: bool = False,
    json: bool = False,
) -> None:
    """Turn lines of text into vectors, as they come.

    Each line of standard input is a text, and each line of output its vector as
    a JSON array: of length 1, so that a dot product of two is their cosine, or
    as it is where the model compares by distance. A line without a word has no
    vector and gives null. With --raw the vectors are little-endian float32
    instead, one after the other, and such a line zeros.

        clicktower encode --release release --side query < queries.txt > vectors.jsonl

    Parameters
    ----------
    side
        query or document: each has a tower of its own.
    model
        The folder that `train` or `combine` printed.
    release
        Or the folder or URI that `publish` wrote to.
    raw
        Write float32 bytes instead of JSON lines.
    json
        Write {"vector": ...} objects instead of arrays.
    """
    import sys

    from flows.releases.encode_lines import encode_lines, open_encoder

    encoder = open_encoder(model, release)
    for vectors in encode_lines(encoder, sys.stdin.buffer, side):
        sys.stdout.buffer.write(vectors.raw() if raw else vectors.lines(objects=json))
        sys.stdout.buffer.flush()
