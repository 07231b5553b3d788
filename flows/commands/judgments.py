"""clicktower judgments"""

from typing import Annotated

from cyclopts import Parameter

from flows.config.toml_file import with_fields
from flows.show import console, present


def judgments(
    *,
    days: Annotated[list[str], Parameter(consume_multiple=True)],
    into: str,
    first: Annotated[str | None, Parameter(name="--from")] = None,
    until: Annotated[str | None, Parameter(name="--to")] = None,
    last: int | None = None,
    allow_missing_days: bool = False,
    k: int = 5,
    trained_on: str | None = None,
    min_impressions: int = 10,
    set: list[str] | None = None,
    beam_options: list[str] | None = None,
    json: bool = False,
) -> None:
    """Derive graded judgments from the clicks of a later period, corrected for where
    documents were shown.

    Writes queries.tsv and qrels.txt, which `evaluate` takes, logged.run, the ranking
    that was shown, and the propensities of ranks. They are labelled click-derived,
    and so is every evaluation with them.

        clicktower judgments --days store --from 2026-10-01 --to 2026-10-14 --trained-on store/build/DIGEST --into store

    Parameters
    ----------
    days
        A store, or folders that `ingest` printed, as in `build`: days after those of training.
    into
        The store: a folder or URI that holds the output of all stages.
    first
        First date of the window (2026-10-01); by default the store's first.
    until
        Last date of the window; by default the store's newest.
    last
        The number of dates up to the last one, instead of a first one.
    allow_missing_days
        Continue although the store has nothing for some date of the window; the manifest then names it.
    k
        How many distinct people must have issued a query.
    trained_on
        The folder of a build; days that it was made from, or that are not later, are refused.
    min_impressions
        How often a document must have been shown for a query to get a grade.
    set
        field=value for any field of the settings of judgments; may be repeated.
    beam_options
        Options of the Beam runner; write them after a bare `--`.
    json
        Print the result as one JSON object; progress goes to stderr.
    """
    from beam_jobs.ingest.windows import Window
    from beam_jobs.judgments.judgments_stage import JudgmentsConfig
    from beam_jobs.judgments.judgments_stage import judgments as run

    window = Window(first=first, until=until, last=last, allow_missing=allow_missing_days)
    config = with_fields(JudgmentsConfig(), [f"k={k}", f"min_impressions={min_impressions}", *(set or [])])
    with console.progress_bar("judgments") as progress:
        result = run(
            days,
            store=into,
            config=config,
            window=window,
            trained_on=trained_on,
            beam_options=tuple(beam_options or ()),
            progress=progress,
        )
    console.emit(result.to_json(), json, present.stage_with_details)
