"""The paper's table on one's own data: every baseline and every tower, under one protocol and one set of judgments."""
