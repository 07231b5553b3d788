"""clicktower explain"""

from typing import Literal

from flows.show import console


def explain(
    text: str | None = None,
    title: str | None = None,
    *,
    model: str,
    side: Literal["query", "document"] | None = None,
    beside: str | None = None,
    queries: str | None = None,
    into: str | None = None,
    colours: Literal["shared", "panel"] = "shared",
    set: list[str] | None = None,
    json: bool = False,
) -> None:
    """Show what a recurrent model reads in a text: keywords, traces of every gate, and the
    score of a pair.

    Each word is shaded by how many of the 10 most active cells it moves; a self-attentive
    model also shows where its hops look. --into writes explain.html (heat maps, lines,
    tables; self-contained), traces.arrow (every gate and state, one row per cell and word)
    and attention.arrow (one row per hop and word). docs/explain.md says how to read them.
    The files contain the texts as they were given, and words of the queries.

        clicktower explain --model store/train/DIGEST "angle bracket"
        clicktower explain --model store/train/DIGEST "angle bracket" "12 in. zinc angle" --into explained
        clicktower explain --model store/train/LSTM --beside store/train/RNN "angle bracket" "12 in. zinc angle"
        clicktower explain --model store/train/DIGEST --queries queries.tsv --into explained

    Parameters
    ----------
    text
        A query; with --side document a title.
    title
        A title, to see the pair and its score.
    model
        The folder that `train` printed, or a release, of a recurrent model: LSTM,
        bidirectional LSTM (also self-attentive, max-pooled, variational) or RNN.
    side
        The tower that reads a single text, and those of --queries; query by default.
    beside
        Another model, to compare counts and scores, and the training cost of each.
    queries
        Queries, id<TAB>text, to show which words each cell represents, and whether the
        input gate closes at unimportant words. With --side document they are titles.
    into
        A folder to write explain.html and traces.arrow to.
    colours
        The colour range of the heat maps: shared (one for all) or panel (one each).
    set
        field=value for any field of the counting rule: top_cells, threshold, share; may
        be repeated.
    json
        Print the result as one JSON object; progress goes to stderr.
    """
    from flows import explain_texts
    from flows.config.toml_file import with_fields
    from flows.report.explain_page import Readings, explain_blocks
    from flows.show import terminal
    from flows.show.present import from_here
    from training.analysis.explained import as_json
    from training.analysis.keywords import CountingRule, rule_json

    asked = explain_texts.Asked(
        models=(model, beside) if beside else (model,),
        text=text,
        title=title,
        side=side,
        queries=queries,
        rule=with_fields(CountingRule(), set or []),
    )
    with console.progress_bar("explain") as progress:
        found, simulated = explain_texts.explain(asked, progress)
        files = explain_texts.write(into, asked, found, colours=colours, simulated=simulated) if into else {}
    result = {
        "stage": "explain",
        "rule": rule_json(asked.rule),
        "models": [{**as_json(one), "path": where} for one, where in zip(found, asked.models, strict=True)],
        "labels": {"simulated": True} if simulated else {},
        "files": files,
    }

    def show(_: dict) -> None:
        terminal.show(explain_blocks(Readings(models=tuple(found), rule=asked.rule)))
        if simulated:
            console.output.print("[bold yellow]A model of a simulated log.[/]")
        for path in files.values():
            console.output.print(console.plain(from_here(path)), soft_wrap=True)

    console.emit(result, json, show)
