"""Numbers, names and foreign text as a person reads them, alike in the terminal, in Markdown and in HTML."""


def duration(seconds: float | None) -> str:
    """A time as people say it: 0.4 s, 12 s, 3 min 05 s, 2 h 10 min."""
    if seconds is None:
        return "—"
    if seconds < 10:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if not minutes:
        return f"{rest} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min {rest:02d} s"


def measure_name(key: str) -> str:
    """ndcg@10 -> NDCG@10; collection_ndcg@10 -> NDCG@10, all documents."""
    name = key.removeprefix("collection_").replace("ndcg", "NDCG").replace("mrr", "MRR").replace("_", " ")
    name = name[0].upper() + name[1:] if name else key
    return f"{name}, all documents" if key.startswith("collection_") else name


def visible(text: str) -> str:
    """Foreign text without what is not seen and does something: control characters, and marks that turn the
    direction of writing. Joiners stay: scripts and emoji are written with them."""
    return "".join(char if char.isprintable() or char in "\u200c\u200d" else "�" for char in text)
