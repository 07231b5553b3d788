"""`check_log`: a sample of any supported log -> what it holds, what would become of it, what looks wrong.

Nothing is written anywhere, and no result holds a line, a query, a client id or a user agent.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from functools import partial
from typing import Any

from beam_jobs.checking import looks_wrong
from beam_jobs.checking.guess import Guess, guess_form, look_at, needs_mapping
from beam_jobs.checking.languages import find_languages
from beam_jobs.checking.log_sample import (
    SAMPLE_LINES,
    Sample,
    clients_of,
    count_simulated,
    day_of_sample,
    draw_sample,
    estimate_whole,
    joins_of,
    kept_at_k,
    ledger_of,
    lines_of,
    times_of,
    titled_clicks,
)
from beam_jobs.checking.looks_wrong import FAILS, LEVELS, LogFinding
from beam_jobs.ingest.ingest_stage import IngestConfig, open_source
from beam_jobs.sources.mapping import Events, Mapping
from beam_jobs.sources.read_lines import ReadingPlan
from schemas.errors import StageError
from schemas.stage import Progress, silent

_MOSTLY = 0.5  # where more of the lines cannot be read, the log is of another form
_MAX_FIELDS = 30


@dataclass(frozen=True, kw_only=True, slots=True)
class Read:
    """A sample of a log, and as what it was read."""

    config: IngestConfig
    plan: ReadingPlan
    sample: Sample


@dataclass(frozen=True, kw_only=True, slots=True)
class Checked:
    """A check: `facts` as JSON, and `findings`, worst first."""

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
    sample_lines: int = SAMPLE_LINES,
    progress: Progress = silent,
) -> Checked:
    """What a sample of about `sample_lines` lines says of a log. Without a format it is guessed.

    Raises UsageError: no such file, a format or mapping that cannot be, documents that are not there.
    """
    looks = look_at(logs)
    guess = guess_form(looks)
    findings = [looks_wrong.failed(look.error) for look in looks if look.error]
    asked = _as_asked(log_format, mapping, guess)
    read = None
    if asked:
        read = _read(logs, asked, sample_lines, findings, progress)
        findings += looks_wrong.unreadable_lines(read.sample, asked.max_unreadable_share) if read else []
    elif needs_mapping(guess.format):
        findings.append(looks_wrong.lacks_mapping(guess))
    elif not guess.format and not findings:
        findings.append(looks_wrong.unknown_form(guess))
    with_proposal = False
    if read is None or read.sample.unreadable_share > _MOSTLY:
        if log_format and guess.format not in ("", log_format):
            findings.append(looks_wrong.other_format(log_format, guess))
        proposal = _proposal(guess, asked)
        again = _read(logs, proposal, sample_lines, [], progress) if proposal else None
        if again and again.sample.unreadable_share <= again.config.max_unreadable_share:
            read, with_proposal = again, True
    config = asked or (read.config if read else None)
    findings += _about_fields(config, guess) if config else []

    facts = {
        "format": read.config.format if read else guess.format or None,
        "looks_like": guess.what,
        "files": {
            "count": len(looks),
            "empty": sum(not look.size for look in looks),
            "stored_bytes": sum(look.size for look in looks),
        },
        **_about_names(guess),
    }
    is_wrong = asked is None or with_proposal or {"near_miss", "time_unit"} & {finding.code for finding in findings}
    suggested = guess.mapping if is_wrong and not mapping else None
    facts["proposed_mapping"] = mapping_toml(suggested) if suggested else None
    facts["proposed_format"] = _mapped_format(guess) if suggested else None
    facts["read_with_proposal"] = suggested is not None and with_proposal
    if read and any(batch.num_rows for batch in read.sample.batches):
        facts |= _facts_of_lines(read, documents, k, progress)
        column = _column_names(read.config.mapping, guess).get("client_id", "")
        findings += looks_wrong.wrong_clients(facts["clients"], sum(facts["lines"].values()), column)
        findings += looks_wrong.wrong_events(facts)
        findings += looks_wrong.useless_result(facts)
    return Checked(facts=facts, findings=_in_order(findings))


def _as_asked(log_format: str | None, mapping: Mapping | None, guess: Guess) -> IngestConfig | None:
    """How ingest would read the log; None where neither what was given nor the guess says how."""
    if mapping:
        guessed = _mapped_format(guess) if mapping.columns.named() else guess.format
        return IngestConfig(format=log_format or guessed or "ubi", mapping=mapping)
    wanted = log_format or guess.format
    return IngestConfig(format=wanted) if wanted and not needs_mapping(wanted) else None


def _proposal(guess: Guess, asked: IngestConfig | None) -> IngestConfig | None:
    """How the log might be read where it cannot be as it was asked."""
    if guess.format and not needs_mapping(guess.format) and (asked is None or asked.format != guess.format):
        return IngestConfig(format=guess.format)
    if guess.mapping is None or (asked is not None and asked.mapping is not None):
        return None
    return IngestConfig(format=_mapped_format(guess), mapping=guess.mapping)


def _mapped_format(guess: Guess) -> str:
    """The format that a mapping is given with; UBI with other names is JSON lines."""
    return guess.format if needs_mapping(guess.format) else "jsonl"


def _read(
    logs: Sequence[str], config: IngestConfig, sample_lines: int, findings: list[LogFinding], progress: Progress
) -> Read | None:
    """A sample; None, and a finding, where there is nothing to read."""
    source = open_source(config)
    try:
        plan = source.plan(logs)
    except StageError as error:
        findings.append(looks_wrong.failed(error))
        return None
    sample = draw_sample(source, plan, sample_lines=sample_lines, progress=progress)
    findings += map(looks_wrong.failed, sample.errors)
    return Read(config=config, plan=plan, sample=sample)


def _about_fields(config: IngestConfig, guess: Guess) -> Iterator[LogFinding]:
    """What is wrong with the fields for a log that is read like this."""
    mapping = config.mapping or Mapping()
    names = _column_names(mapping, guess)
    if config.format == "ubi":
        names = {"time": "timestamp", "event": "action_name"}
        if guess.format in ("ubi", "jsonl"):
            yield from looks_wrong.wrong_in_ubi(guess.fields)
    yield from looks_wrong.wrong_time_unit(guess.fields, names.get("time", ""), mapping.time_format)
    yield from looks_wrong.unknown_events(guess.fields, names.get("event", ""), mapping)


def _column_names(mapping: Mapping | None, guess: Guess) -> dict[str, str]:
    """Ours -> the name, in the fields that were looked at, of the column that a mapping gives it."""
    columns = mapping.columns.named() if mapping else {}
    names = dict(enumerate(guess.header, start=1))
    return {
        ours: names.get(column, f"column {column}") if isinstance(column, int) else column
        for ours, column in columns.items()
    }


def _about_names(guess: Guess) -> dict[str, Any]:
    """The fields that more than a few lines have: name, share of the lines, what the values look like."""
    found = guess.fields
    few = min(5, max(1, found.num_lines // 2))
    shown = [path for path in found.leaves() if found.paths[path] >= few][:_MAX_FIELDS]
    fields_of_log = [
        {"name": path, "share": round(found.share(path), 4), "looks_like": found.shape(path)} for path in shown
    ]
    return {"fields": fields_of_log, "fields_from_lines": found.num_lines}


def _facts_of_lines(read: Read, documents: str | None, k: int, progress: Progress) -> dict[str, Any]:
    """What the sample holds, and what ingest and build would make of it."""
    plan, sample, rows = read.plan, read.sample, read.sample.rows()
    progress("joining, detecting bots, counting people", 0, None)
    day = day_of_sample(rows, read.config.bots)
    titled, of_documents = titled_clicks(documents, day.exposures, progress) if documents else (None, None)
    kept = kept_at_k(day, titled, k)
    progress("detecting languages", 0, None)
    share_of_log = sample.stored_bytes / max(plan.stored_bytes, 1)
    pairs = next(row["pairs"] for row in kept if row["k"] == k)
    return {
        "sample": {
            "lines": sample.num_lines,
            "places": len(sample.places),
            "is_whole": sample.is_whole,
            "share_of_log": share_of_log,
        },
        "lines": lines_of(rows),
        "simulated_lines": count_simulated(rows),
        "ledger": ledger_of(sample, day).to_json(),
        "joins": joins_of(rows),
        "clients": clients_of(rows),
        "times": times_of(rows),
        "languages": find_languages(day.queries["query"].to_pylist()),
        "k": k,
        "kept": kept,
        "documents": of_documents,
        "estimate": estimate_whole(sample, day, pairs, plan),
    }


def _in_order(findings: Sequence[LogFinding]) -> tuple[LogFinding, ...]:
    """The worst first; about one field only that another looks like it, if one does."""
    elsewhere = {finding.about for finding in findings if finding.code == "near_miss"}
    kept = [finding for finding in findings if finding.code == "near_miss" or finding.about not in elsewhere]
    return tuple(sorted(dict.fromkeys(kept), key=lambda finding: LEVELS.index(finding.level)))


def mapping_toml(mapping: Mapping) -> str:
    """The file that a mapping is read from; what is as it would be without it is left out."""
    usual, value = Mapping(), partial(json.dumps, ensure_ascii=False)  # such values are in TOML as they are in JSON
    settings = [name for name in ("time_format", "delimiter") if getattr(mapping, name) != getattr(usual, name)]
    lines = [f"{name} = {value(getattr(mapping, name))}" for name in settings]
    lines += [*([""] if lines else []), "[columns]"]
    lines += [f"{ours} = {value(column)}" for ours, column in mapping.columns.named().items()]
    events = [f.name for f in fields(Events) if getattr(mapping.events, f.name) != getattr(usual.events, f.name)]
    lines += ["", "[events]"] if events else []
    lines += [f"{kind} = {value(getattr(mapping.events, kind))}" for kind in events]
    return "\n".join(lines) + "\n"
