"""`check_log`: a sample of a log in any supported format -> its content, the fate of its lines, and possible problems.

It writes nothing, and no result contains a line, a query, a client id, a user agent, or a name of a field that may be
one of them.

A documents file has its problems named too, each with a remedy.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from functools import partial
from typing import Any

from clicktower.beam_jobs.checking import log_sample
from clicktower.beam_jobs.checking.fields import Fields, read_fields, suggest_mapping
from clicktower.beam_jobs.checking.findings import (
    FAILS,
    LOOK,
    NOTE,
    LogFinding,
    damaged,
    lacks_mapping,
    odd_values,
    order_findings,
    unknown_events,
    unknown_form,
    unreadable_lines,
    useless_result,
    wrong_clients,
    wrong_events,
    wrong_in_ubi,
    wrong_time_unit,
)
from clicktower.beam_jobs.ingest.ingest_stage import IngestConfig, open_source
from clicktower.beam_jobs.sources.log_files import find_files
from clicktower.beam_jobs.sources.mapping import UTF8, Events, Mapping
from clicktower.beam_jobs.sources.read_lines import ReadingPlan, empty_input_error
from clicktower.beam_jobs.sources.source import file_by_file, form_of
from clicktower.schemas import storage
from clicktower.schemas.errors import StageError
from clicktower.schemas.stage import Progress, silent

_MAX_FIELDS = 30


@dataclass(frozen=True, kw_only=True, slots=True)
class Checked:
    """The result of a check: `facts` as JSON, and `findings`, worst first."""

    facts: dict[str, Any]
    findings: tuple[LogFinding, ...]

    @property
    def can_be_ingested(self) -> bool:
        return not any(finding.level == FAILS for finding in self.findings)


def check_log(
    logs: Sequence[str],
    *,
    log_format: str | None = None,
    mapping: Mapping | None = None,
    documents: str | None = None,
    k: int = 5,
    sample_lines: int = log_sample.SAMPLE_LINES,
    progress: Progress = silent,
) -> Checked:
    """What a sample of about `sample_lines` lines says about a log. By default its first lines determine the format.

    Raises UsageError for a missing file, an invalid format or mapping, or a missing documents file.
    """
    log_files = find_files(logs)
    sizes = {file: storage.size_bytes(file) or 0 for file in log_files.paths}
    findings: list[LogFinding] = []
    of_log = Fields()
    try:
        of_files = (read_fields(file, mapping.encoding if mapping else UTF8) for file, size in sizes.items() if size)
        of_log = next((fields for fields in of_files if fields.paths or fields.num_other), of_log)
    except StageError as error:
        findings.append(damaged(error))
    if mapping:
        of_log.typed = tuple(column for column in mapping.columns.named().values() if isinstance(column, str))
    config = _config(log_format, mapping, of_log)
    names = _column_names(config.mapping if config else None, of_log)
    suggested = None if mapping else suggest_mapping(of_log)
    sample: log_sample.Sample | None = None
    plan: ReadingPlan | None = None
    if config is None and of_log.format:
        findings.append(lacks_mapping(of_log, suggested is not None))
    elif config is None and not findings:
        findings.append(unknown_form() if of_log.num_other else damaged(empty_input_error(logs)))
    elif config:
        source = open_source(config)
        try:
            plan = source.plan(logs)
            checked = file_by_file(source, plan, config.max_unreadable_share)
            sample = log_sample.draw_sample(checked, plan, sample_lines=sample_lines, progress=progress)
            findings += [*map(damaged, sample.errors), *unreadable_lines(sample, config.max_unreadable_share)]
        except StageError as error:
            findings.append(damaged(error))
        findings += _field_findings(config, names, of_log)

    has_wrong_names = {"near_miss", "time_unit"} & {finding.code for finding in findings}
    proposed = suggested if config is None or has_wrong_names else None
    facts: dict[str, Any] = {
        "format": config.format if config else of_log.format or None,
        "looks_like": of_log.description if of_log.format or not config else f"a log in the format {config.format}",
        "files": {
            "count": len(sizes),
            "empty": sum(not size for size in sizes.values()),
            "skipped": len(log_files.skipped),
            "stored_bytes": sum(sizes.values()),
        },
        **_common_fields(of_log),
        "proposed_mapping": mapping_toml(proposed) if proposed else None,
        "proposed_format": ("jsonl" if of_log.format == "ubi" else of_log.format) if proposed else None,
    }
    if config and plan and sample and any(batch.num_rows for batch in sample.batches):
        facts |= _facts_of_lines(config, plan, sample, documents, k, progress)
        client_column = of_log.name_of(names.get("client_id", ""))
        findings += wrong_clients(facts["clients"], sum(facts["lines"].values()), client_column)
        findings += wrong_events(facts)
        findings += useless_result(facts)
        findings += wrong_documents(facts["documents"]) if facts["documents"] else ()
        findings += odd_values(facts)
    return Checked(facts=facts, findings=order_findings(findings))


def _config(log_format: str | None, mapping: Mapping | None, of_log: Fields) -> IngestConfig | None:
    """How ingest would read the log; None if neither the options nor its first lines say how."""
    name = log_format or of_log.format
    if mapping and mapping.columns.named() and not log_format:
        name = "jsonl" if name == "ubi" else name
    if mapping:
        return IngestConfig(format=name or "ubi", mapping=mapping)
    if not name or (not log_format and form_of(name).mapping == "columns"):
        return None
    return IngestConfig(format=name)


def _field_findings(config: IngestConfig, names: dict[str, str], of_log: Fields) -> Iterator[LogFinding]:
    """Problems with the fields of a log that is read with this config."""
    mapping = config.mapping or Mapping()
    if config.format == "ubi":
        names = {"time": "timestamp", "event": "action_name"}
        if of_log.format in ("ubi", "jsonl"):
            yield from wrong_in_ubi(of_log)
    yield from wrong_time_unit(of_log, names.get("time", ""), mapping.time_format)
    yield from unknown_events(of_log, names.get("event", ""), mapping)


def _column_names(mapping: Mapping | None, of_log: Fields) -> dict[str, str]:
    """Our column -> the name that the log's fields have for it, by the mapping."""
    columns = mapping.columns.named() if mapping else {}
    names = dict(enumerate(of_log.header, start=1))
    return {
        ours: names.get(column, f"column {column}") if isinstance(column, int) else column
        for ours, column in columns.items()
    }


def _common_fields(of_log: Fields) -> dict[str, Any]:
    """The fields of more than a few lines: name, share of the lines, what the values look like; and how many fields
    have names that may be text of the log.
    """
    few = min(5, max(1, of_log.num_lines // 2))
    shown = [path for path in of_log.leaves() if of_log.paths[path] >= few][:_MAX_FIELDS]
    rows = [{"name": path, "share": round(of_log.share(path), 4), "looks_like": of_log.shape(path)} for path in shown]
    num_others = len(of_log.paths_of_values()) - len(of_log.leaves())
    return {"fields": rows, "fields_not_shown": num_others, "fields_from_lines": of_log.num_lines}


def _facts_of_lines(
    config: IngestConfig,
    plan: ReadingPlan,
    sample: log_sample.Sample,
    documents: str | None,
    k: int,
    progress: Progress,
) -> dict[str, Any]:
    """What the sample contains, and what ingest and build would do with it."""
    rows = sample.rows()
    progress("joining, detecting bots, counting people", 0, None)
    day = log_sample.day_of_sample(rows, config.bots)
    titled, of_documents = log_sample.titled_clicks(documents, day.exposures, progress) if documents else (None, None)
    kept, kept_pairs = log_sample.kept_at_k(day, titled, k)
    pairs = next(row["pairs"] for row in kept if row["k"] == k)
    return {
        "sample": {
            "lines": sample.num_lines,
            "places": len(sample.places),
            "is_whole": sample.is_whole,
            "share_of_log": sample.stored_bytes / max(plan.stored_bytes, 1),
        },
        "lines": log_sample.lines_of(rows),
        "simulated_lines": log_sample.count_simulated(rows),
        "ledger": asdict(log_sample.ledger_of(sample, day)),
        "joins": log_sample.joins_of(rows),
        "clients": log_sample.clients_of(rows),
        "times": log_sample.times_of(rows),
        "has_hours": log_sample.has_hours(rows),
        "shared_query_ids": day.shared_query_ids,
        "wrong_values": dict(sample.wrong_values.most_common()),
        "k": k,
        "kept": kept,
        "kept_at_pair_k": kept_pairs,
        "documents": of_documents,
        "estimate": log_sample.estimate_whole(sample, day, pairs, plan),
    }


def mapping_toml(mapping: Mapping) -> str:
    """The mapping as a TOML file, without settings that have their default values."""
    usual, value = Mapping(), partial(json.dumps, ensure_ascii=False)  # such values are in TOML as they are in JSON
    settings = [name for name in ("time_format", "delimiter") if getattr(mapping, name) != getattr(usual, name)]
    lines = [f"{name} = {value(getattr(mapping, name))}" for name in settings]
    lines += [*([""] if lines else []), "[columns]"]
    lines += [f"{ours} = {value(column)}" for ours, column in mapping.columns.named().items()]
    events = [f.name for f in fields(Events) if getattr(mapping.events, f.name) != getattr(usual.events, f.name)]
    lines += ["", "[events]"] if events else []
    lines += [f"{kind} = {value(getattr(mapping.events, kind))}" for kind in events]
    return "\n".join(lines) + "\n"


_SHARE_TO_LOOK_AT = 0.01


def wrong_documents(documents: dict[str, Any]) -> Iterator[LogFinding]:
    """Skipped rows, HTML in titles, broken letters, ids with white space inside (log_sample.titled_clicks)."""
    skipped = documents.get("skipped", ())
    total = documents["num_documents"] + sum(rows["rows"] for rows in skipped)
    for rows in skipped:
        yield LogFinding(
            level=LOOK if rows["rows"] > _SHARE_TO_LOOK_AT * total else NOTE,
            code=f"documents_{rows['reason']}",
            problem=f"{rows['problem']}.",
            fix=rows["fix"],
        )
    if documents.get("entities"):
        yield LogFinding(
            level=LOOK,
            code="documents_entities",
            problem=f"{documents['entities']:,} titles hold HTML, such as `&amp;` or `&#39;`: the model learns it as"
            " words, and people see it.",
            fix="Unescape the titles where they are exported (Python: html.unescape).",
        )
    if documents.get("broken_letters"):
        yield LogFinding(
            level=LOOK,
            code="documents_broken_letters",
            problem=f"{documents['broken_letters']:,} titles hold the mark U+FFFD, which a program wrote where it could"
            " not read a letter.",
            fix="Export the titles again, read in the encoding that they were written in.",
        )
    if documents.get("spaced_ids"):
        yield LogFinding(
            level=NOTE,
            code="documents_spaced_ids",
            problem=f"{documents['spaced_ids']:,} ids have white space inside, which TREC's qrels cannot hold; the runs"
            " of `evaluate` write it as %20.",
            fix="Leave it if no qrels name these documents, or write the ids without it in the documents and the log.",
        )
