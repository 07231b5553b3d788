"""Whether judgments come from the days that a model was trained on, which they must not."""

from collections.abc import Iterable, Sequence

from beam_jobs.day_versions import data_date
from beam_jobs.erased_days import follow
from schemas import manifest, storage
from schemas.errors import StageError, UsageError
from schemas.stage import StageResult, open_result


def span(days: Sequence[StageResult]) -> dict[str, str | None]:
    """The first and the last time of a window, as its ingests tell them; None where none does."""
    told = [day.manifest.outcome.metrics for day in days]
    firsts = [metrics["first_time"] for metrics in told if metrics.get("first_time")]
    lasts = [metrics["last_time"] for metrics in told if metrics.get("last_time")]
    return {"first_time": min(firsts, default=None), "last_time": max(lasts, default=None)}


def refuse_trained_days(build: str, days: Sequence[StageResult]) -> None:
    """Nothing. Raises StageError where one of these ingests, its date or one of its log files is one that `build` was
    made from, or where they do not begin after it; UsageError where `build` is no output of that stage.

    Dates, log files and times are compared for those days of the build that are still in its store, or in theirs.
    """
    built = open_result(build)
    if built.manifest.request.stage != "build":
        raise UsageError(
            asked=f"the days that a model is trained on were to be read from {build}",
            found=f"it is the output of {built.manifest.request.stage}",
            do="give the folder that `clicktower build` printed",
        )
    digests = set(built.manifest.request.inputs.get("days", ()))
    trained = _find(digests, [build, *(day.folder for day in days)])
    digests |= {day.manifest.digest for day in trained}
    logs = {log for day in trained for log in day.manifest.request.inputs.get("logs", ())}
    dates = {date for day in trained if (date := data_date(day.manifest.request))}
    asked = f"judgments were to be derived from {len(days)} days that {build} was not made from"
    for day in days:
        request = day.manifest.request
        if request.digest in digests:
            raise _overlap(asked, f"it was made from {day.folder} as well")
        if logs.intersection(request.inputs.get("logs", ())):
            raise _overlap(asked, f"{day.folder} holds a log file that it was made from as well")
        if data_date(request) in dates:
            raise _overlap(asked, f"{day.folder} is of {data_date(request)}, and it was made from that date as well")
    last, first = span(trained)["last_time"], span(days)["first_time"]
    if last and first and first <= last:
        raise _overlap(asked, f"it was made from lines until {last}, and the judgments would begin at {first}")


def _find(digests: Iterable[str], beside: Sequence[str]) -> list[StageResult]:
    """The ingests of these digests, or what erasures left of them, in the stores that hold some folders."""
    stores = sorted({folder.rstrip("/").rsplit("/", 2)[0] for folder in beside if folder.count("/") >= 2})
    found = {}
    for store in stores:
        for digest in sorted(digests):
            folder = follow(storage.join(store, "ingest", digest))
            if storage.exists(storage.join(folder, manifest.FILE_NAME)):
                found[digest] = open_result(folder)
    return list(found.values())


def _overlap(asked: str, found: str) -> StageError:
    return StageError(
        asked=asked,
        found=found,
        follows="the model would be judged by clicks that it was trained on",
        do="build on earlier days, and take judgments from later ones",
    )
