"""What sections of a pipeline.toml that few have must fit: dates of a log and its window, and the comparison."""

from clicktower.beam_jobs.ingest.days import parse_date
from clicktower.flows.config.pipeline_config import CompareSection, PipelineConfig, WindowSection, is_dated
from clicktower.schemas.errors import UsageError


def check_dates(config: PipelineConfig, path: str) -> None:
    """Raise UsageError for a date, a window or [keep] that does not fit the log of a pipeline in this file."""
    if config.log.date is not None:
        parse_date(config.log.date)
    if config.window != WindowSection() and not is_dated(config):
        raise UsageError(
            f"The pipeline in {path} has a window, and its log has no date.",
            'Write {date} into log.files, or set log.date = "2026-09-01".',
        )
    if is_dated(config) and config.ingest.date not in (None, config.log.date):
        raise UsageError(
            f"{path}, [ingest]: date fixes the day of a log whose date is another, or that of each run.",
            "Leave it out; log.date is the place for it.",
        )
    if config.keep and config.window.last and config.keep.days < config.window.last:
        raise UsageError(
            f"{path}, [keep]: days = {config.keep.days} removes days that the window of the last {config.window.last}"
            " takes.",
            f"Set days to at least {config.window.last}.",
        )


def check_comparison(section: CompareSection) -> None:
    """Raise UsageError for unknown rows, and for two ways of setting the towers' seed."""
    from clicktower.training.evaluation.rows import all_rows, select_rows  # take long to load

    if section.seeds and "seed" in section.set:
        raise UsageError("the towers' seed is set by seeds and by set.seed.", "Leave out one of the two.")
    names = [row.name for row in select_rows(all_rows(logged=section.logged), section.rows)]
    if section.against not in names:
        raise UsageError(
            f"there is no row {section.against} to test the others against.",
            f"Set against to one of {', '.join(names)}.",
        )
