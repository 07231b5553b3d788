"""clicktower publish"""

from flows import console, present
from flows.set_fields import with_fields


def publish(
    *,
    model: str,
    documents: str,
    to: str,
    evaluation: str | None = None,
    set: list[str] | None = None,
    json: bool = False,
) -> None:
    """Encode all documents into a release and make it the live one.

    The release is read back and its index checked against exact search before
    the pointer is swapped in one step; until then, and if anything fails, the
    old release stays live.

        clicktower publish --model store/train/DIGEST --documents documents.tsv --to release

    Parameters
    ----------
    model
        The folder that `train` printed.
    documents
        The documents that are searched.
    to
        Where releases live: a folder or URI. `search --release` takes the same.
    evaluation
        The folder that `evaluate` printed; its table travels with the release.
    set
        field=value for any field of the publish settings; may be repeated.
    json
        Print the result as one JSON object; progress goes to stderr.
    """
    from flows.publish import PublishConfig
    from flows.publish import publish as run

    config = with_fields(PublishConfig(), set or [])
    with console.progress_bar("publish") as progress:
        result = run(model, documents=documents, to=to, config=config, evaluation=evaluation, progress=progress)
    console.emit(result.to_json(), json, present.stage_with_details)
