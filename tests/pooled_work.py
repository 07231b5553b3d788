"""What a process of a pool does with a model: a module of its own, which loads as little as a user's would."""

import clicktower


def ask(model: clicktower.Model, texts: list[str]) -> tuple:
    """The vectors of texts, and a release's hits for them."""
    hits = model.search(texts, 3, mode="bm25") if isinstance(model, clicktower.Release) else None
    return model.encode_queries(texts).tolist(), hits
