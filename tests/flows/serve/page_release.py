"""A release whose titles are as awkward as a page must bear: markup, accents, scripts of all kinds, very long words."""

from pathlib import Path

from clicktower.flows.releases.publish import PublishConfig, publish
from clicktower.training.model.recipe import Recipe, recipe
from tests.recipes import varied
from tests.trained_model import trained_stage

RECIPE = varied(recipe("lstm-96"), cells=8, word_share=0.375, lexical_share=0.2)

AWKWARD = [
    "Café table, ﬁne oak", "東京の金槌 16 oz.", "مطرقة فولاذية steel", "party lights 🎉 👨\u200d👩\u200d👧",
    '<script>document.title = "taken"; alert(1)</script> <img src=x onerror=alert(2)> <b>hammer</b>',
    f"plank {'x' * 300}",
]  # fmt: skip
TITLES = [
    "steel angle bracket 90 degree", "steel shelf bracket", "angle grinder disc 4 in.", *AWKWARD,
    *(f"{colour} {thing} for the {place}, {size} in."
      for colour in ("white", "black", "brass")
      for thing in ("shelf", "bracket", "hinge", "angle")
      for place in ("garden", "kitchen", "cellar")
      for size in range(2, 9)),  # more than the page asks for
]  # fmt: skip


def write_page_release(folder: Path) -> str:
    """The URI of a release of TITLES, ids d0, d1, ..., by a small model that was never trained and has one tower for
    both sides: a title as a query finds itself with the score 1."""
    return publish_page_release(folder, TITLES)


def publish_page_release(folder: Path, titles: list[str], recipe: Recipe = RECIPE) -> str:
    """A release of these titles, made live below a folder. Returns its URI."""
    model = trained_stage(str(folder / "store"), labels={"simulated": True}, recipe=recipe)
    documents = folder / "documents.tsv"
    documents.write_text("".join(f"d{at}\t{title}\n" for at, title in enumerate(titles)), encoding="utf-8")
    config = PublishConfig(num_recall_queries=10)
    return publish(model, documents=str(documents), to=str(folder / "release"), config=config).uri
