"""clicktower explain, nearest-words: what a model makes of texts and words."""

from collections.abc import Mapping
from dataclasses import asdict, replace
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, Literal

from clicktower.flows.commands.options import Json, Positive, Seed, Shards
from clicktower.flows.report.blocks import Table
from clicktower.flows.show import console
from clicktower.schemas import storage
from clicktower.schemas.errors import UsageError
from clicktower.schemas.section import changed

if TYPE_CHECKING:
    from clicktower.flows.releases.search import Mode
    from clicktower.flows.report.explain_page import Readings

Side = Literal["query", "document"]


def explain(
    text: str | None = None,
    title: str | None = None,
    *,
    model: str | None = None,
    release: str | None = None,
    mode: Literal["hybrid", "vector", "bm25"] | None = None,
    lexical_share: float | None = None,
    side: Side | None = None,
    beside: str | None = None,
    printed: bool | None = None,
    queries: str | None = None,
    into: str | None = None,
    grid: int = 0,
    label: str = "",
    colours: Literal["shared", "panel"] = "shared",
    set: list[str] | None = None,
    json: Json = False,
) -> None:
    """Show why a search ranks a title as it does, or what a model reads in a text: each word's
    share of a pair's cosine or, of a recurrent model, keywords and traces of every gate.

    --release takes the score of a search apart: what vectors, words and terms contribute,
    and each word of the query. --model reads texts without the titles that weigh words and
    terms. The share of a word is what the cosine loses without it. Words of a recurrent model
    are shaded by how many of the 10 most active cells they move; a self-attentive model also
    shows where its hops look. --into writes explain.html (heat maps, lines, tables;
    self-contained), traces.arrow (every gate and state, one row per cell and word) and
    attention.arrow (one row per hop and word). docs/results.md says how to read them.
    The files contain the texts as they were given, and words of the queries.

        clicktower explain --release release "angle bracket" P119222
        clicktower explain --model store/train/DIGEST "angle bracket"
        clicktower explain --model store/train/DIGEST "angle bracket" "12 in. zinc angle" --into explained
        clicktower explain --model store/train/LSTM --beside store/train/RNN "angle bracket" "12 in. zinc angle"
        clicktower explain --model store/train/LSTM --beside store/train/RNN --printed --into explained
        clicktower explain --model store/train/DIGEST --queries queries.tsv --into explained

    Args:
        text: A query; with --side document a title.
        title: A title, to see the pair and its score; with --release also the id of a document. An id that no document
            has is read as a title, and the first line says so.
        model: The folder that `train` or `combine` printed, or a release, whose model is read. Only recurrent models
            have gates: LSTM, bidirectional LSTM (also self-attentive, max-pooled, variational) and RNN.
        release: The folder or URI of the releases, which `publish` writes to, to explain the score of a search.
        mode: Of that search: hybrid unless given, vector or bm25.
        lexical_share: Of that search: the share of the terms in a hybrid's score, instead of the model's own.
        side: The tower that reads a single text, and those of --queries; query by default.
        beside: Another model, to compare counts and scores, and the training cost of each.
        printed: Read the two pairs of the paper's tables, of ten words each as there, beside its counts and scores.
        queries: Queries, `id<TAB>text`, to show which words each cell represents, and whether the input gate closes at
            unimportant words. With --side document they are titles.
        grid: Also show the first so many of --queries, and which cell takes which of their words.
        label: What a person said of the pair, such as Good, to stand beside the scores.
        into: A folder to write explain.html and traces.arrow to.
        colours: The colour range of the heat maps: shared (one for all) or panel (one each).
        set: field=value for any field of the counting rule (`clicktower settings explain`); may be repeated.
    """
    from clicktower.flows.config.toml_file import with_fields
    from clicktower.flows.releases.word_shares import explain_pair
    from clicktower.flows.report.explain_page import Readings, explain_blocks
    from clicktower.flows.show.present import relative_path
    from clicktower.schemas.judgments import read_queries
    from clicktower.training.analysis.explanation import as_json, explain_model, training_cost
    from clicktower.training.analysis.keywords import CountingRule
    from clicktower.training.analysis.printed_pairs import MOST_WORDS, PRINTED_PAIRS
    from clicktower.training.analysis.traces import has_gates, require_traces
    from clicktower.training.model.model import load_encoder, load_model

    rule = with_fields(CountingRule(), set or [])
    texts = _printed_texts(text, label) if printed else _texts(text, title, side, queries)
    if release is not None:
        of_model = {"--model": model, "--side": side, "--beside": beside, "--printed": printed, "--queries": queries,
                    "--into": into, "--label": label, "--grid": grid, "--set": set}  # fmt: skip
        _explain_hit(release, text, title, mode or "hybrid", lexical_share, of_model, json)
        return
    if model is None:
        raise UsageError("There is neither a model nor a release to explain.", "Give --model FOLDER, or --release URI.")
    if mode is not None or lexical_share is not None:
        raise UsageError(
            "A mode and a share of the terms are of a search, and --model searches nothing.",
            "Give --release URI instead, or leave --mode and --lexical-share out.",
        )
    for option, lacks, needed in (
        ("label", label and title is None, "a query and a title"),
        ("grid", grid and not queries, "--queries"),
    ):
        if lacks:
            raise UsageError(
                f"With --{option} alone there is nothing to explain.", f"Give {needed} too, or leave --{option} out."
            )
    query_texts = list(read_queries(queries).values()) if queries else []
    paths = [model, beside] if beside else [model]
    folders, are_simulated = zip(*map(_model_folder, paths), strict=True)
    if text is not None and title is not None and not (beside or queries or into):
        encoder = load_encoder(folders[0])
        if not has_gates(encoder):
            labels = {"simulated": True} if are_simulated[0] else {}
            shares = explain_pair(encoder, text, title)
            console.emit({"stage": "explain", "model": model, **shares, "labels": labels}, json, _show_shares)
            return
        models = [encoder]
    else:
        models = [load_model(folder) for folder in folders]
    for reader in models:  # before anything is computed
        require_traces(reader.recipe)
    if printed:
        ten_words = {"max_words": MOST_WORDS, "overflow": "merge"}
        models = [replace(reader, recipe=changed(reader.recipe, ten_words)) for reader in models]
    names = [reader.recipe.name for reader in models]
    if len(models) == 2 and names[0] == names[1]:
        names[1] += " (beside)"
    with console.progress_bar("explain") as progress:
        readings_of_models = tuple(
            explain_model(
                name,
                reader,
                texts,
                query_texts,
                rule,
                side=side or "query",
                grid=grid,
                cost=training_cost(folder),
                progress=progress,
            )
            for name, reader, folder in zip(names, models, folders, strict=True)
        )
        readings = Readings(
            models=readings_of_models, rule=rule, colours=colours, label=label, simulated=any(are_simulated),
            printed=PRINTED_PAIRS if printed else (),
        )  # fmt: skip
        files = _write(into, readings) if into else {}
    result = {
        "stage": "explain",
        "rule": rule.to_json(),
        "models": [{**as_json(reader), "path": path} for reader, path in zip(readings_of_models, paths, strict=True)],
        "label": label or None,
        "printed": [asdict(pair) for pair in readings.printed],
        "labels": {"simulated": True} if readings.simulated else {},
        "files": files,
    }

    def show(_: dict) -> None:
        console.show(explain_blocks(readings))
        if readings.simulated:
            console.output.print("[bold yellow]A model of a simulated log.[/]")
        for path in files.values():
            console.output.print(console.plain(relative_path(path)), soft_wrap=True)

    console.emit(result, json, show)


def _explain_hit(
    uri: str,
    query: str | None,
    title: str | None,
    mode: "Mode",
    lexical_share: float | None,
    of_model: Mapping[str, Any],
    json: bool,
) -> None:
    """Explain the score of a search of a release. `title`: an id or a title; `of_model`: options of --model."""
    from clicktower.flows.releases.search import OpenRelease
    from clicktower.flows.releases.word_shares import explain_hit

    if unusable := [option for option, value in of_model.items() if value]:
        raise UsageError(
            f"--release explains the score of a search, and {' and '.join(unusable)} a model's reading.",
            f"Leave {' and '.join(unusable)} out, or give --model alone.",
        )
    if query is None or title is None:
        raise UsageError(
            "The score of a search is that of a query and a title.",
            'Give both: clicktower explain --release release "angle bracket" ID.',
        )
    release = OpenRelease(uri)
    document_title = release.title_of(title)
    explained = explain_hit(
        release, query, title if document_title is None else document_title, mode, lexical_share=lexical_share
    )
    labels = {"simulated": True} if release.release.labels.get("simulated") else {}
    document = None if document_title is None else title
    result = {"stage": "explain", "release": release.release.digest, "document": document, **explained,
              "labels": labels}  # fmt: skip

    def show(_: dict) -> None:
        if document is None:
            console.output.print(console.plain(f"No document has the id {title!r}: it is explained as a title."))
        _show_shares(result)

    console.emit(result, json, show)


def _show_shares(result: dict[str, Any]) -> None:
    """The score of a pair and its parts, and of each text a table of its words."""
    by = "cosine" if result["distance"] is None else "distance"
    parts = result["contributions"]
    if parts is None:
        console.output.print(f"{by} {result[by]:.3f}")
        console.output.print(
            console.plain("The titles of a release weigh words and terms: --release URI shows the score of a search.")
        )
    else:
        shown = " + ".join(f"{part} {value:.3f}" for part, value in parts.items() if value)
        console.output.print(f"score {result['score']:.3f}" + (f" = {shown}" if shown else ""))
        raw = [(by, result[by]), ("words", result["words"]), ("terms", result["terms"]), ("BM25", result["bm25"])]
        console.output.print(", ".join(f"{name} {value:.3f}" for name, value in raw if value is not None))
    query, title = result["query"]["words"], result["title"]["words"]
    columns = [("share", [_signed(word["share"]) for word in query])]
    if any(word["match"] for word in query):
        columns.append(("its match", [word["match"]["word"] for word in query]))
        columns.append(("cosine", [f"{word['match']['cosine']:.3f}" for word in query]))
    for part in ("words", "terms") if parts else ():
        if parts[part]:
            columns.append((f"+ {part}", [_part(word, part) for word in query]))
    header, cells = zip(*columns, strict=True)
    rows = [(word["word"], *row) for word, row in zip(query, zip(*cells, strict=True), strict=True)]
    console.show([Table(caption="query", header=("word", *header), rows=rows)])
    rows = [(word["word"], _signed(word["share"])) for word in title]
    console.show([Table(caption="title", header=("word", "share"), rows=rows)])
    if result["labels"]:
        console.output.print("[bold yellow]A model of a simulated log.[/]")


def _signed(share: float | None) -> str:
    return "" if share is None else f"{share:+.3f}"


def _part(word: dict[str, Any], part: str) -> str:
    """What a word contributes, or that the search reads no term in it."""
    return "no term" if part == "terms" and not word["terms"] else _signed(word["contributions"][part])


def _texts(text: str | None, title: str | None, side: Side | None, queries: str | None) -> list[tuple[str, Side]]:
    """Each text and the side that reads it: one has the side that is given; of two the first is the query."""
    if text is None and queries is None:
        raise UsageError(
            "There is neither a text nor a file of queries to explain.",
            'Give a text: clicktower explain --model store/train/DIGEST "angle bracket"; or --queries FILE.',
        )
    if title is not None and side:
        raise UsageError(
            f"Of two texts the first is the query and the second the title, so --side {side} says nothing.",
            "Leave --side out, or give one text.",
        )
    sides: list[Side] = [side or "query", "document"]
    texts = [
        (content, side_of_text)
        for content, side_of_text in zip((text, title), sides, strict=True)
        if content is not None
    ]
    for content, _ in texts:
        try:
            content.encode("utf-8")
        except UnicodeEncodeError:
            raise UsageError(
                "The text is not valid UTF-8: its letter trigrams would be those of no text.", "Convert it to UTF-8."
            ) from None
    return texts


def _printed_texts(text: str | None, label: str) -> list[tuple[str, Side]]:
    """The paper's two queries, each followed by its title, and the sides that read them."""
    from clicktower.training.analysis.printed_pairs import PRINTED_PAIRS

    if text is not None or label:
        raise UsageError(
            "--printed reads the paper's two pairs, which have texts and labels of their own.",
            "Leave --printed out, or the texts and the label.",
        )
    texts: list[tuple[str, Side]] = []
    for pair in PRINTED_PAIRS:
        texts += [(pair.query.text, "query"), (pair.title.text, "document")]
    return texts


def _model_folder(path: str) -> tuple[str, bool]:
    """(the folder of a model, whether its log was simulated), given that of a train stage, a release or a model."""
    from clicktower.training.model.model_folder import DESCRIPTION, model_source

    if storage.exists(storage.join(path, DESCRIPTION)):
        return path, False
    source = model_source(path)
    return source.folder, bool(source.labels.get("simulated"))


def _write(into: str, readings: "Readings") -> dict[str, str]:
    """Write the page, and the traces and the attention of each model; where each file is."""
    from clicktower.flows.report.blocks import write_page
    from clicktower.flows.report.explain_page import explain_page
    from clicktower.training.analysis.traces import attention_table, trace_table, write_table

    files = {}
    storage.make_folder(into)
    for suffix, reading in zip_longest(("", "-beside"), readings.models):
        texts = reading.texts if reading else ()
        attentive = [text for text in texts if text.attention is not None]
        for name, make, has_any in (("traces", trace_table, texts), ("attention", attention_table, attentive)):
            file = f"{name}{suffix}.arrow"
            path = storage.join(into, file)
            if has_any:
                files[file] = path
                write_table(path, make(texts))
            else:
                storage.remove(path)  # from another text explained into the same folder
    files["explain.html"] = storage.join(into, "explain.html")
    write_page(files["explain.html"], explain_page(readings))
    return files


def nearest_words(
    *words: str,
    shards: Shards,
    model: str | None = None,
    side: Side = "query",
    k: Positive = 10,
    epochs: Positive = 30,
    seed: Seed = 0,
    json: Json = False,
) -> None:
    """List the nearest words of each word, with scores: by Doc2Vec (Appendix F of the paper),
    or by a trained tower.

    Without --model, Doc2Vec is trained on all texts of the shards as the paper describes it
    (PV-DM, windows of 5, 100 dimensions), and the score is the cosine of word vectors: words
    that occur in similar contexts are near. With --model a word's vector is the tower's
    embedding of that word alone: words that lead to the same clicks or share letters are near.

        clicktower nearest-words pizza infection --shards store/build/DIGEST
        clicktower nearest-words bracket brakcet --shards store/build/DIGEST --model store/train/DIGEST

    Args:
        words: Single words. Doc2Vec knows those of the shards; a tower reads any.
        model: The folder that `train` or `combine` printed, or a release.
        side: The tower that reads the words.
        k: How many words to list.
        epochs: Of Doc2Vec: how often it reads all texts.
        seed: Of Doc2Vec.
    """
    from clicktower.schemas.stage import open_result
    from clicktower.training.analysis import nearest_words as by_vectors
    from clicktower.training.model.model import load_encoder
    from clicktower.training.model.model_folder import model_source

    source = model_source(model) if model else None
    encoder = load_encoder(source.folder) if source else None
    with console.progress_bar("nearest-words") as progress:
        neighbours, num_words = by_vectors.nearest_words(
            words, shards, encoder, side=side, k=k, epochs=epochs, seed=seed, progress=progress
        )
    labels = (source or open_result(shards).manifest.outcome).labels
    result = {
        "stage": "nearest-words",
        "vectors": model or "doc2vec",
        "similarity": encoder.similarity if encoder else "cosine",
        "vocabulary": num_words,
        "words": neighbours,
        "labels": {"simulated": True} if labels.get("simulated") else {},
    }
    console.emit(result, json, _show_words)


def _show_words(result: dict[str, Any]) -> None:
    score = "cosine" if result["similarity"] == "cosine" else "minus the distance"
    for entry in result["words"]:
        rows = [(near["word"], f"{near['score']:.4f}") for near in entry["nearest"]]
        console.show([Table(caption=entry["word"], header=("word", score), rows=rows)])
    if result["labels"]:
        console.output.print("[bold yellow]The words of a simulated log.[/]")
