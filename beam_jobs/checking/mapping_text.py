"""A mapping as the TOML file that beam_jobs.mapping reads."""

import json
from dataclasses import fields

from beam_jobs.mapping import Events, Mapping


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
