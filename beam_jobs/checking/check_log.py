"""`check_log`: a sample of any supported log -> what it holds, what would become of it, what looks wrong.

Nothing is written anywhere, and of what is told nothing is a line, a query, a client id or a user agent.
"""

import json
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

from beam_jobs.checking import looks_wrong
from beam_jobs.checking.findings import FAILS, LEVELS, LOOK, LogFinding
from beam_jobs.checking.guess import Guess, guess_form, needs_mapping
from beam_jobs.checking.languages import MAX_ERROR, Languages, find_languages, name_of, writing_systems
from beam_jobs.checking.log_sample import SAMPLE_LINES, FileLook, Sample, draw_sample, look_at
from beam_jobs.checking.sampled_day import (
    PARTS,
    ClickedDocuments,
    SampledDay,
    clients_of,
    count_simulated,
    day_of_sample,
    estimate_whole,
    find_clicked,
    joins_of,
    kept_at_k,
    kinds_of,
    times_of,
    values_of_k,
    without_position,
)
from beam_jobs.ingest.content_filters import CONTENT_FATES
from beam_jobs.ingest.ingest_config import IngestConfig, open_source
from beam_jobs.sources.forms import FORMS
from beam_jobs.sources.mapping import Events, Mapping
from beam_jobs.sources.read_lines import ReadingPlan
from schemas.errors import StageError
from schemas.stage import Progress, silent

_MOSTLY = 0.5  # where more of the lines cannot be read, the log is of another form
_MAX_UNREADABLE = IngestConfig().max_unreadable_share


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
    findings = [_failure(look.error) for look in looks if look.error]
    asked = _as_asked(log_format, mapping, guess)
    used, plan, sample = asked, None, None
    if asked:
        plan, sample = _try(logs, asked, sample_lines, findings, progress)
    elif not guess.format and not findings:
        findings.append(_no_form(guess))
    if not _has_rows(sample):
        findings += looks_wrong.not_what_was_said(log_format, guess) if log_format else []
        findings += looks_wrong.wrong_lines(sample, _MAX_UNREADABLE) if sample else []
        if asked is None and needs_mapping(guess.format):
            findings.append(_needs_mapping(guess))
        proposed = _proposal(guess, asked)
        found = _try(logs, proposed, sample_lines, [], progress) if proposed else (None, None)
        if _has_rows(found[1], proposed):
            used, (plan, sample) = proposed, found
    findings += _of_fields(asked, used, guess)
    facts = _facts_of_files(looks, guess, used, plan, sample)
    codes = {finding.code for finding in findings}
    wants_mapping = used is not asked or ({"near_miss", "time_unit"} & codes and "files_differ" not in codes)
    suggested = (
        guess.mapping
        if wants_mapping and not mapping and (used is None or FORMS[used.format].mapping != "none")
        else None
    )
    facts["proposed_mapping"] = mapping_toml(suggested) if suggested else None
    facts["proposed_format"] = _mapped_format(guess) if suggested else None
    facts["read_with_proposal"] = suggested is not None and used is not None and used.mapping == suggested
    if sample is not None and used is not None:
        findings += looks_wrong.wrong_lines(sample, used.max_unreadable_share)
        if sample.rows.num_rows:
            more, found_in_rows = _of_rows(used, guess, sample, plan, looks, documents, k, progress)
            facts |= more
            findings += found_in_rows
    return Checked(facts=facts, findings=tuple(_in_order(findings)))


def _as_asked(log_format: str | None, mapping: Mapping | None, guess: Guess) -> IngestConfig | None:
    """What ingest would be told; None where what was given does not say how to read the log, and the guess neither."""
    if mapping:
        guessed = _mapped_format(guess) if mapping.columns.named() else guess.format
        return IngestConfig(format=log_format or guessed or "ubi", mapping=mapping)
    if log_format and not needs_mapping(log_format):
        return IngestConfig(format=log_format)
    if not log_format and guess.format and not needs_mapping(guess.format):
        return IngestConfig(format=guess.format)
    return None


def _in_order(findings: Sequence[LogFinding]) -> list[LogFinding]:
    """The worst first; each once, and of several about one field, or of one kind, the first."""
    found: dict[tuple[str, str], LogFinding] = {}
    for finding in findings:
        told_of = {known.about for known in found.values() if known.code == "near_miss"}
        if finding.code == "near_miss" or finding.about not in told_of - {""}:
            many = finding.code in ("near_miss", "damaged", "files_differ")
            found.setdefault((finding.code, finding.found if many else ""), finding)
    return sorted(found.values(), key=lambda finding: LEVELS.index(finding.level))


def _has_rows(sample: Sample | None, proposed: IngestConfig | None = None) -> bool:
    """Whether most of the lines could be read; as a proposal, so many that ingest would go on."""
    most = proposed.max_unreadable_share if proposed else _MOSTLY
    return sample is not None and sample.rows.num_rows > 0 and sample.unreadable_share <= most


def _failure(error: StageError) -> LogFinding:
    return LogFinding(
        level=FAILS, code="damaged", found=f"{error.asked}, and {error.found}", follows=error.follows, do=error.do
    )


def _no_form(guess: Guess) -> LogFinding:
    return LogFinding(
        level=FAILS,
        code="unknown_form",
        found=f"this is {guess.what}",
        follows="no format of ingest reads it",
        do=guess.trouble,
    )


def _try(
    logs: Sequence[str], config: IngestConfig, sample_lines: int, findings: list[LogFinding], progress: Progress
) -> tuple[ReadingPlan | None, Sample | None]:
    source = open_source(config)
    try:
        plan = source.plan(logs)
    except StageError as error:
        findings.append(_failure(error))
        return None, None
    return plan, draw_sample(source, plan, sample_lines=sample_lines, progress=progress)


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


def _needs_mapping(guess: Guess) -> LogFinding:
    what = (
        "save the mapping below and see that it is right" if guess.mapping else "write one with query and document_id"
    )
    return LogFinding(
        level=FAILS,
        code="needs_mapping",
        found=f"this is {guess.what}, and ingest must know what its fields mean",
        do=f"{what} (docs/data.md), then use --format {guess.format} --mapping FILE",
    )


def _of_fields(asked: IngestConfig | None, used: IngestConfig | None, guess: Guess) -> list[LogFinding]:
    """What the fields that were looked at say about how the log was asked to be read, or else about the proposal."""
    findings: list[LogFinding] = []
    config = asked or used
    mapping = config.mapping if config else None
    paths = _names_of_columns(mapping, guess)
    if config and config.format == "ubi":
        paths = {"query_id": "query_id", "client_id": "client_id", "time": "timestamp", "event": "action_name"}
        if guess.format in ("ubi", "jsonl"):
            findings += looks_wrong.wrong_in_ubi(guess.fields)
    if guess.fields.num_lines and paths:
        mapping = mapping or Mapping()
        findings += looks_wrong.wrong_time_units(guess.fields, paths.get("time", ""), mapping.time_format)
        findings += looks_wrong.wrong_events(guess.fields, paths.get("event", ""), mapping)
        needed = [path for ours, path in paths.items() if ours != "event"]
        findings += looks_wrong.differing_files(guess, needed)
    return findings + looks_wrong.useless(guess.fields)


def _names_of_columns(mapping: Mapping | None, guess: Guess) -> dict[str, str]:
    """Ours -> the name, in the fields that were looked at, of the column that a mapping gives it."""
    columns = mapping.columns.named() if mapping else {}
    names = dict(enumerate(guess.header, start=1))
    return {
        ours: names.get(column, f"column {column}") if isinstance(column, int) else column
        for ours, column in columns.items()
    }


def _facts_of_files(
    looks: Sequence[FileLook],
    guess: Guess,
    config: IngestConfig | None,
    plan: ReadingPlan | None,
    sample: Sample | None,
) -> dict[str, Any]:
    told = looks_wrong.fields_told(guess.fields)
    facts: dict[str, Any] = {
        "format": config.format if config else guess.format or None,
        "looks_like": guess.what,
        "ubi_version": looks_wrong.ubi_version(guess.fields) if guess.format == "ubi" else None,
        "files": {
            "count": len(looks),
            "empty": sum(1 for look in looks if not look.size),
            "kinds": dict(Counter(look.kind for look in looks if look.size)),
            "stored_bytes": sum(look.size for look in looks),
        },
        "fields": told,
        "fields_not_told": looks_wrong.not_told(guess.fields, len(told)),
        "fields_from_lines": guess.fields.num_lines,
    }
    if sample and plan:
        facts["sample"] = {
            "lines": sample.num_lines,
            "files": sample.files,
            "places": sample.num_stretches,
            "is_whole": sample.is_whole,
            "share_of_log": 1.0 if sample.is_whole else sample.stored_bytes / max(plan.stored_bytes, 1),
        }
        facts["unreadable"] = {
            reason: {"lines": count, "places": sample.reject_places[reason]}
            for reason, count in sample.rejects.most_common()
        }
    return facts


def _of_rows(
    config: IngestConfig,
    guess: Guess,
    sample: Sample,
    plan: ReadingPlan | None,
    looks: Sequence[FileLook],
    documents: str | None,
    k: int,
    progress: Progress,
) -> tuple[dict[str, Any], list[LogFinding]]:
    assert plan is not None
    rows, lines = sample.rows, sample.rows.num_rows
    share_of_log = 1.0 if sample.is_whole else sample.stored_bytes / max(plan.stored_bytes, 1)
    kinds, clients, joins = kinds_of(rows), clients_of(rows), joins_of(rows, sample.stretch)
    times = times_of(rows, time.time())
    positions = without_position(rows)
    progress("joining, telling bots, counting people", 0, None)
    day = day_of_sample(rows, config.bots)
    clicked = find_clicked(documents, day.exposures, progress) if documents else None
    gate, content = _gate(day, clicked, k)
    queries = day.queries["query"].to_pylist()
    systems, unspaced = writing_systems(queries, day.queries["searches"].to_pylist())
    progress("telling languages", 0, None)
    looked = [line for look in looks for line in look.lines]
    per_line = (
        sum(map(len, looked)) / len(looked) + 1
        if looked
        else plan.estimated_bytes / max(sample.num_lines / share_of_log, 1)
    )
    estimate = estimate_whole(sample, day, gate[-1]["pairs"], plan.stored_bytes, per_line)
    by_rule = day.bots.by_rule()
    facts = {
        "lines": {**kinds, "unreadable": sum(sample.rejects.values()), "action_lines": sample.action_lines},
        "simulated_lines": count_simulated(rows),
        "fates": {**day.fates, **content},
        "joins": asdict(joins) | {"share": joins.share, "settled_share": joins.settled_share},
        "clients": asdict(clients),
        "times": asdict(times),
        "writing_systems": dict(systems.most_common()),
        "unspaced_searches": unspaced,
        "languages": _languages_told(find_languages(queries)),
        "positions": {"events": positions[0], "without": positions[1]},
        "bots": {
            rule: {"clients": by_rule.get(rule, 0), "lines": count} for rule, count in day.bot_lines.items() if count
        },
        "k": k,
        "kept": gate[-1]["kept"],
        "growth": [_growth(part, k) for part in gate],
        "documents": _documents_told(clicked),
        "estimate": asdict(estimate),
    }
    column = _names_of_columns(config.mapping, guess).get("client_id", "")
    can_be_logged = FORMS[config.format].has_clients
    findings = looks_wrong.wrong_clients(clients, lines, column=column, can_be_logged=can_be_logged)
    findings += looks_wrong.wrong_times(times, lines)
    findings += looks_wrong.wrong_joins(joins, kinds, sample, share_of_log)
    findings += looks_wrong.wrong_positions(*positions) if FORMS[config.format].has_positions else []
    findings += looks_wrong.wrong_queries(clients, day.fates, lines, day.queries.num_rows)
    findings += looks_wrong.wrong_documents(clicked) if clicked else []
    findings += _nothing_kept(gate[-1], k, sample, clients.lines_with)
    return facts, findings


def _gate(day: SampledDay, clicked: ClickedDocuments | None, k: int) -> tuple[list[dict[str, Any]], Counter[str]]:
    """(for each nested part of the sample what each k keeps, lines by content fate in the whole of it)."""
    told, content = [], Counter[str]()
    for share, (queries, exposures) in zip(PARTS, day.parts, strict=True):
        tally = kept_at_k(queries, exposures, clicked.titled if clicked else None, k)
        kept = [
            {"k": each, **{what: tally.counts[f"{what}_at_{each}"] for what in ("queries", "clicks", "pairs")}}
            for each in values_of_k(k)
        ]
        told.append({"part": share, "kept": kept, "pairs": tally.counts[f"pairs_at_{k}"]})
        content = Counter({fate: tally.fates[fate] for fate in CONTENT_FATES if tally.fates.get(fate)})
    return told, content


def _growth(part: dict[str, Any], k: int) -> dict[str, Any]:
    """What the chosen k keeps of a part of the sample, of all clicks that no filter takes."""
    chosen, everything = (next(row for row in part["kept"] if row["k"] == each) for each in (k, 0))
    share = chosen["clicks"] / everything["clicks"] if everything["clicks"] else 0.0
    return {
        "part": part["part"],
        "queries": chosen["queries"],
        "clicks": chosen["clicks"],
        "all_queries": everything["queries"],
        "all_clicks": everything["clicks"],
        "share_of_clicks": round(share, 4),
    }


def _nothing_kept(last: dict[str, Any], k: int, sample: Sample, lines_with_client: int) -> list[LogFinding]:
    chosen = next(row for row in last["kept"] if row["k"] == k)
    if chosen["pairs"] or not lines_with_client or not k:
        return []
    return [
        LogFinding(
            level=LOOK,
            code="nothing_at_k",
            found=f"at k = {k} not one pair of this {'log' if sample.is_whole else 'sample'} is kept",
            follows="nothing would be left to train on" if sample.is_whole else "more of the log may keep some",
            do="add days, or lower k (1 is for a team that trains on its own log in private)",
        )
    ]


def _languages_told(found: Languages) -> dict[str, Any]:
    return {
        "told": [
            {"code": code, "name": name_of(code), "share": round(share, 4)} for code, share in found.shares.items()
        ],
        "unsure": round(found.unsure, 4),
        "error": MAX_ERROR,
        "queries": found.queries,
        "why_not": found.why_not,
    }


def _documents_told(clicked: ClickedDocuments | None) -> dict[str, int] | None:
    if clicked is None:
        return None
    names = ("num_documents", "clicked", "clicked_titled", "clicks", "clicks_titled")
    return {name: getattr(clicked, name) for name in names}


# A mapping as the TOML file that mapping reads.


def mapping_toml(mapping: Mapping) -> str:
    """The file; what is as it would be without it is left out."""
    lines = []
    for name in ("time_format", "delimiter", "header", "quote", "quoted_newlines"):
        value = getattr(mapping, name)
        if value != getattr(Mapping(), name):
            lines.append(f"{name} = {_value(value)}")
    lines += ["", "[columns]"] if lines else ["[columns]"]
    lines += [f"{ours} = {_value(column)}" for ours, column in mapping.columns.named().items()]
    events = [f.name for f in fields(Events) if getattr(mapping.events, f.name) != getattr(Events(), f.name)]
    if events:
        lines += ["", "[events]"]
        lines += [f"{kind} = [{', '.join(map(_value, getattr(mapping.events, kind)))}]" for kind in events]
    return "\n".join(lines) + "\n"


def _value(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)  # a TOML string, number or boolean of these is written as in JSON
