"""clicktower publish: a model and documents become a release."""

from clicktower.flows.commands.options import Documents, Json, ReleaseUri, Set
from clicktower.flows.show import console


def publish(
    *,
    model: str,
    documents: Documents,
    to: ReleaseUri,
    evaluation: str | None = None,
    candidate: bool = False,
    if_better: bool = False,
    queries: str | None = None,
    qrels: str | None = None,
    frequencies: str | None = None,
    into: str | None = None,
    rule: list[str] | None = None,
    workers: int = 1,
    set: Set = None,
    json: Json = False,
) -> None:
    """Encode all documents into a release and make it the live one.

    Titles that an earlier release of the same model has encoded are reused. The
    release is read back and its index checked against exact search before the
    pointer is swapped in one step; until then, and if anything fails, the old
    release stays live.

        clicktower publish --model store/train/DIGEST --documents documents.tsv --to release

    Args:
        model: The folder that `train` printed.
        evaluation: The folder that `evaluate` printed; its table becomes part of the release.
        candidate: Make the release but leave the live one unchanged; `rollback --release` makes it live.
        if_better: Make it live only if its model is better than the live one by the rules of promotion; otherwise it is
            kept as a candidate, and the reason is printed. Needs --evaluation.
        queries: With --if-better, --qrels and --into: the queries on which the live model is evaluated again, if it was
            evaluated on other judgments or documents than this one.
        qrels: The judgments of those queries.
        frequencies: How often each query was asked, if the evaluation was given it.
        into: The store for the evaluation of the live model.
        rule: field=value for any rule of the promotion (measure=ndcg@3, max_slice_drop=0.05); may be repeated.
        workers: Workers that encode: 1 is this machine with all its cores; more are tasks of a Ray cluster, the one
            that RAY_ADDRESS names or one started here.
    """
    from clicktower.flows.config.toml_file import with_fields
    from clicktower.flows.releases import publish as publishing
    from clicktower.flows.show import present

    config = with_fields(publishing.PublishConfig(), set or [])
    with console.progress_bar("publish") as progress:
        decide = None
        if if_better:
            from clicktower.flows.guards.promotion import decide_if_better

            decide = decide_if_better(
                rule or [], to, evaluation, documents, queries, qrels, frequencies, into, progress
            )
        result = publishing.publish(
            model, documents=documents, to=to, config=config, evaluation=evaluation, candidate=candidate,
            decide=decide, workers=workers, progress=progress,
        )  # fmt: skip
    console.emit(result.to_json(), json, present.stage_with_details)
