"""Models by where they are, texts as they were typed -> what `clicktower explain` shows and writes."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import zip_longest

from flows.report.explain_page import Range, Readings, write_explain_page
from schemas import storage
from schemas.errors import StageError, UsageError
from schemas.judgments import read_queries
from schemas.release import MODEL, POINTER, read_release
from schemas.stage import Progress, open_result, silent
from training.analysis.attention import write_attention
from training.analysis.explained import Explained, explained, training_cost
from training.analysis.keywords import CountingRule
from training.analysis.traces import Side, require_traces, write_traces
from training.models.model import DESCRIPTION, Model, load_model

PAGE, TRACES = "explain.html", ("traces.arrow", "traces-beside.arrow")
ATTENTION = ("attention.arrow", "attention-beside.arrow")


@dataclass(frozen=True, kw_only=True, slots=True)
class Asked:
    """What was asked for.

    One text, and those of `queries`, have the side that is given; of two the first is the query, the second the title.
    """

    models: tuple[str, ...]
    text: str | None = None
    title: str | None = None
    side: Side | None = None
    queries: str | None = None
    rule: CountingRule = field(default_factory=CountingRule)

    @property
    def texts(self) -> list[tuple[str, Side]]:
        if self.text is None:
            return []
        if self.title is None:
            return [(self.text, self.side or "query")]
        return [(self.text, "query"), (self.title, "document")]


def explain(asked: Asked, progress: Progress = silent) -> tuple[list[Explained], bool]:
    """(each model's reading, whether any of the models is of a simulated log). Raises UsageError or StageError."""
    _require_something(asked)
    queries = list(read_queries(asked.queries).values()) if asked.queries else []
    folders, simulated = zip(*(model_folder(where) for where in asked.models), strict=True)
    models = [load_model(folder) for folder in folders]
    for model in models:  # before anything is computed
        require_traces(model.recipe)
    found = [
        explained(
            name,
            model,
            asked.texts,
            queries,
            asked.rule,
            side=asked.side or "query",
            cost=training_cost(folder),
            progress=progress,
        )
        for name, model, folder in zip(_names(models), models, folders, strict=True)
    ]
    return found, any(simulated)


def write(into: str, asked: Asked, found: Sequence[Explained], *, colours: Range, simulated: bool) -> dict[str, str]:
    """Write the page, and the traces and the attention of each model; where each file is."""
    files = {}
    storage.make_folder(into)
    for traces, attention, one in zip_longest(TRACES, ATTENTION, found):
        texts = one.texts if one else ()
        attentive = [text for text in texts if text.attention is not None]
        for name, has_any, write_it in (
            (traces, bool(texts), write_traces),
            (attention, bool(attentive), write_attention),
        ):
            path = storage.join(into, name)
            if has_any:
                files[name] = path
                write_it(path, texts)
            else:
                storage.remove(path)  # of another text, explained into the same folder
    files[PAGE] = storage.join(into, PAGE)
    write_explain_page(
        files[PAGE], Readings(models=tuple(found), rule=asked.rule, colours=colours, simulated=simulated)
    )
    return files


def model_folder(where: str) -> tuple[str, bool]:
    """(the folder of a model, whether its log was simulated), given that of a train stage, a release or a model.

    Raises StageError where there is none.
    """
    if storage.exists(storage.join(where, DESCRIPTION)):
        return where, False
    if storage.exists(storage.join(where, POINTER)):
        folder, release = read_release(where)
        return storage.join(folder, MODEL), bool(release.labels.get("simulated"))
    result = open_result(where)
    stage = result.manifest.request.stage
    if stage != "train":
        raise StageError(
            asked=f"the model in {where} was to be explained",
            found=f"this is the output of the stage {stage}",
            do="give the folder that `clicktower train` printed, or a release",
        )
    return result.data, bool(result.manifest.outcome.labels.get("simulated"))


def _names(models: Sequence[Model]) -> list[str]:
    """The recipes' names, told apart where they are the same."""
    first, *others = (model.recipe.name for model in models)
    return [first, *(f"{name} (beside)" if name == first else name for name in others)]


def _require_something(asked: Asked) -> None:
    if asked.text is None and asked.queries is None:
        raise UsageError(
            asked="a model was to be explained",
            found="neither a text nor a file of queries was given",
            do='give a text: clicktower explain --model store/train/DIGEST "angle bracket"; or --queries FILE',
        )
    if asked.title is not None and asked.side:
        raise UsageError(
            asked=f"two texts were to be explained on the side {asked.side}",
            found="of two texts the first is the query and the second the title",
            do="leave --side out, or give one text",
        )
    for text, _ in asked.texts:
        try:
            text.encode("utf-8")
        except UnicodeEncodeError:
            raise UsageError(
                asked="a text was to be explained",
                found="it is not valid UTF-8",
                follows="its letter trigrams would be those of no text",
                do="convert it to UTF-8",
            ) from None
