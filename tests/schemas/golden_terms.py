"""The golden file of the lexical contract, which ships with the package."""

from importlib import resources


def golden_terms() -> list[tuple[str, str, list[str]]]:
    """(language, text, its terms)."""
    content = (resources.files("clicktower.schemas") / "golden" / "terms.tsv").read_text(encoding="utf-8")
    rows = (line.split("\t") for line in content.splitlines() if not line.startswith("# "))
    return [(language, text, terms.split()) for language, text, terms in rows]
