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
    """Turn lines of text into vectors, one at a time.

    Each line of standard input is a text, and each line of output its vector as
    a JSON array: of length 1, so that a dot product of two is their cosine, or
    not normalised if the model compares by distance. A line without a word has
    no vector and gives null. With --raw the vectors are consecutive little-endian
    float32 values instead, and such a line gives zeros.

        clicktower encode --release release --side query < queries.txt > vectors.jsonl

    Parameters
    ----------
    side
        The tower: query or document.
    model
        The folder that `train` or `combine` printed.
    release
        Instead of a model: the folder or URI that `publish` wrote to.
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
