"""What a documents file holds: rows that are no documents, and texts that a program on the way spoilt."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import pyarrow.compute as pc

from clicktower.schemas.documents import DocumentsBlock, RowCounts, add_up_rows, unfit_rows

_ENTITY = "&(?:#[0-9]{1,7}|#[xX][0-9a-fA-F]{1,6}|[a-zA-Z][a-zA-Z0-9]{1,30});"
_REPLACEMENT = "\ufffd"  # what a decoder writes for bytes that are no letter


@dataclass(kw_only=True, slots=True)
class CatalogueFacts:
    """What has been read of a documents file so far."""

    counts: Counter[str] = field(default_factory=Counter)
    row_counts: list[RowCounts] = field(default_factory=list)

    @property
    def rows(self) -> RowCounts:
        return add_up_rows(self.row_counts)

    def add(self, block: DocumentsBlock) -> None:
        ids, titles = block.table["id"], block.table["title"]
        self.counts.update({
            "entities": _count(pc.match_substring_regex(titles, _ENTITY)),
            "broken_letters": _count(pc.match_substring(titles, _REPLACEMENT)),
            "spaced_ids": _count(pc.match_substring_regex(ids, r"[\s\p{Z}]")),
        })  # fmt: skip
        self.row_counts.append(block.rows)

    def to_json(self, uri: str) -> dict[str, Any]:
        """`num_documents`, how many have spoilt texts, if any, and the `skipped` rows. Reads the file up to their
        places.
        """
        skipped = [
            {"reason": rows.reason, "rows": rows.count, "problem": rows.sentence, "fix": rows.fix}
            for rows in unfit_rows(uri, self.rows)
        ]
        spoilt = {name: count for name, count in self.counts.items() if count}
        return {"num_documents": self.rows.documents, **spoilt, **({"skipped": skipped} if skipped else {})}


def _count(mask: Any) -> int:
    return pc.sum(mask).as_py() or 0
