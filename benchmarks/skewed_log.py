"""A simulated log made uneven, line by line: the same number of lines, and one hot query, client or document.

    python -m benchmarks.skewed_log --log simulated/log --documents simulated/documents.tsv --skew query --out skewed

query     half of the searches, with all their events, are for one query: 50% of the lines
client    20% of the lines are events under one client id, of other people's searches: a shared account that browses;
          it makes no search, so it has no rate that a rule could catch
document  30% of the events are of one document

Which lines change is decided by a hash of their query id or their text, so exact repeats stay exact repeats. Broken
lines stay broken. Memory holds one line.
"""

import argparse
import gzip
import json
import re
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from zlib import crc32

SHARES = {"query": 0.5, "client": 0.2, "document": 0.3}
HOT_QUERY = b"angle bracket"
HOT_CLIENT = b"u-shared-account"
EVENTS_PER_LINE = 0.909  # a simulated search has about ten events
_QUERY_ID = re.compile(rb'"query_id": "([^"]*)"')
_USER_QUERY = re.compile(rb'"user_query": "(?:[^"\\]|\\.)*"')
_CLIENT_ID = re.compile(rb'"client_id": "[^"]*"')
_OBJECT_ID = re.compile(rb'"object_id": "[^"]*"')


def skew_log(log: Path, documents: Path, skew: str, out: Path) -> int:
    """The number of lines, once OUT holds as many files with as many lines as LOG. An `out` that is there is kept."""
    made = out / "SKEWED.json"
    if made.exists():
        return json.loads(made.read_text())["lines"]
    out.mkdir(parents=True, exist_ok=True)
    with documents.open("rb") as lines:
        hot_document = next(lines).split(b"\t")[0]
    change = partial(changed_line, skew=skew, hot_document=hot_document)
    files = sorted(log.glob("*.ndjson.gz"))
    with ProcessPoolExecutor() as pool:
        counts = list(pool.map(partial(_write_file, change=change, out=out), files))
    made.write_text(json.dumps({"skew": skew, "lines": sum(counts)}))
    return sum(counts)


def changed_line(line: bytes, *, skew: str, hot_document: bytes) -> bytes:
    """A line of a simulated log as it is in the skewed one."""
    if skew == "query":
        found = _QUERY_ID.search(line)
        if found and _unit(found[1]) < SHARES["query"]:
            return _USER_QUERY.sub(b'"user_query": "%s"' % HOT_QUERY, line, count=1)
        return line
    if b'"event_attributes"' not in line:
        return line
    if skew == "client":
        if _unit(line) < SHARES["client"] / EVENTS_PER_LINE:
            return _CLIENT_ID.sub(b'"client_id": "%s"' % HOT_CLIENT, line, count=1)
    elif _unit(line) < SHARES["document"]:
        return _OBJECT_ID.sub(b'"object_id": "%s"' % hot_document, line, count=1)
    return line


def _write_file(source: Path, change: Callable[[bytes], bytes], out: Path) -> int:
    count = 0
    with gzip.open(source, "rb") as lines, gzip.open(out / source.name, "wb", compresslevel=1) as changed:
        for count, line in enumerate(lines, start=1):  # noqa: B007
            changed.write(change(line))
    return count


def _unit(text: bytes) -> float:
    return crc32(text) / 2**32


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--log", type=Path, required=True, help="the log folder of `clicktower simulate`")
    parser.add_argument("--documents", type=Path, required=True)
    parser.add_argument("--skew", choices=SHARES, required=True)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    print(f"{skew_log(options.log, options.documents, options.skew, options.out):,} lines")


if __name__ == "__main__":
    main()
