"""The stage judgments: days -> click-derived judgments. judgments_job is its Beam pipeline.

derive_judgments(["store"], store="store", config=JudgmentsConfig(k=5))
"""

from collections.abc import Iterable, Sequence

from clicktower.beam_jobs.engine.beam_stage import run_beam_stage
from clicktower.beam_jobs.engine.engine_options import WORTH_PROCESSES_DAY_BYTES
from clicktower.beam_jobs.ingest.days import Window, data_date, day_bytes, day_files, inherited_labels, open_window
from clicktower.beam_jobs.ingest.erased_people import follow
from clicktower.beam_jobs.judgments.judge_clicks import JudgmentsConfig
from clicktower.schemas import manifest, storage
from clicktower.schemas.content_filters import adult_list
from clicktower.schemas.errors import StageError
from clicktower.schemas.stage import Progress, Stage, StageResult, open_result, silent

JUDGMENTS = Stage("judgments", version=4)  # 2 wrote the first logged.run, 3 the first judgment_list.json


def derive_judgments(
    days: Sequence[str],
    *,
    store: str,
    config: JudgmentsConfig,
    window: Window | None = None,
    trained_on: str | None = None,
    beam_options: Sequence[str] = (),
    progress: Progress = silent,
) -> StageResult:
    """The judgments of a window, in STORE/judgments/DIGEST: its queries, qrels, logged run, propensities.

    `days`: ingest folders, versions of days, or stores; of a store the dates of the window, or everything.
    `trained_on`: the build that a model is trained on; its days must be other, earlier ones. Raises UsageError and
    StageError (see `open_window`; no impressions, no query behind the gate, ranks that hardly vary).
    """
    opened = open_window(days, window)
    ingests = opened.ingests
    if trained_on:
        refuse_trained_days(trained_on, ingests)
    terms = adult_list(config.adult_list)
    inputs = {
        "days": sorted(day.manifest.digest for day in ingests),
        "window": opened.request_key() if window and not window.is_all else None,
        "adult_list": terms.digest,
    }
    labels = {
        **inherited_labels(ingests),
        "judgments": "click-derived",
        "click_model": config.click_model,
        "exposure_corrected": config.click_model == "pbm",
    }
    fields = {
        "config": config,
        "queries": tuple(day_files(ingests, "queries")),
        "exposures": tuple(day_files(ingests, "exposures")),
        "adult_terms": terms.terms,
        "labels": labels,
        "span": {**span(ingests), "days": opened.to_json()},
    }
    return run_beam_stage(
        store,
        JUDGMENTS.request(config, inputs),
        "clicktower.beam_jobs.judgments.judgments_job:JudgmentsJob",
        fields,
        input_bytes=day_bytes(ingests),
        worth_bytes=WORTH_PROCESSES_DAY_BYTES,
        beam_options=beam_options,
        progress=progress,
    )


# A guard: judgments must not come from the days that a model was trained on.


def span(days: Sequence[StageResult]) -> dict[str, str | None]:
    """The first and the last time of a window, from the manifests of its ingests; None if no line has a time."""
    metrics = [day.manifest.outcome.metrics for day in days]
    firsts = [each["first_time"] for each in metrics if each.get("first_time")]
    lasts = [each["last_time"] for each in metrics if each.get("last_time")]
    return {"first_time": min(firsts, default=None), "last_time": max(lasts, default=None)}


def refuse_trained_days(build: str, days: Sequence[StageResult]) -> None:
    """Raise StageError if `build` was made from one of these ingests, dates or log files, or if they do not begin after
    it; UsageError if `build` is not a build.

    Log files and times are compared for those days of the build that are still in its store, or in theirs.
    """
    built = open_result(build, "build")
    digests = set(built.manifest.request.inputs.get("days", ()))
    trained = _find(digests, [build, *(day.folder for day in days)])
    digests |= {day.manifest.digest for day in trained}
    logs = {log for day in trained for log in day.manifest.request.inputs.get("logs", ())}
    dates = {date for day in trained if (date := data_date(day.manifest.request))}
    dates.update((built.manifest.outcome.metrics.get("window") or {}).get("versions", ()))
    for day in days:
        request = day.manifest.request
        if request.digest in digests:
            raise _overlap(f"{build} was made from {day.folder} as well.")
        if logs.intersection(request.inputs.get("logs", ())):
            raise _overlap(f"{build} was made from a log file of {day.folder}.")
        if data_date(request) in dates:
            raise _overlap(f"{build} was made from {data_date(request)}, the date of {day.folder}.")
    last, first = span(trained)["last_time"], span(days)["first_time"]
    if last and first and first <= last:
        raise _overlap(f"{build} was made from lines until {last}, and the judgments would begin at {first}.")


def _find(digests: Iterable[str], folders: Sequence[str]) -> list[StageResult]:
    """The ingests with these digests, or what erasures left of them, in the stores of some folders."""
    stores = sorted({folder.rstrip("/").rsplit("/", 2)[0] for folder in folders if folder.count("/") >= 2})
    ingests = {}
    for store in stores:
        for digest in sorted(digests):
            folder = follow(storage.join(store, "ingest", digest))
            if manifest.is_finished(folder):
                ingests[digest] = open_result(folder)
    return list(ingests.values())


def _overlap(problem: str) -> StageError:
    return StageError(problem, "Build on earlier days, and take judgments from later ones.")
