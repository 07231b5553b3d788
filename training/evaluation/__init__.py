"""The paper's table on one's own data: every baseline and every tower, under one protocol and one set of judgments."""

from typing import Literal, get_args

Table = Literal["as printed", "tuned"]  # of the rows that the paper has
TABLES: tuple[Table, ...] = get_args(Table)
