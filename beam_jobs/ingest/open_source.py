"""The source that a config names."""

from functools import partial

from beam_jobs.ingest.ingest_config import IngestConfig
from beam_jobs.sources import ubi
from beam_jobs.sources.delimited import ORCAS, ORCAS_COLUMNS, DelimitedSource
from beam_jobs.sources.jsonl import JsonSource
from beam_jobs.sources.mapping import Mapping
from beam_jobs.sources.parquet import ParquetSource
from beam_jobs.sources.source import LineSource, Source


def open_source(config: IngestConfig) -> Source:
    """The source of a config's format; nothing is opened yet."""
    mapping = config.mapping or Mapping()
    match config.format:
        case "ubi":
            return LineSource(parse=partial(ubi.parse_block, kinds=ubi.kinds_of_actions(mapping.events)))
        case "orcas":
            return DelimitedSource(mapping=ORCAS, num_columns=ORCAS_COLUMNS)
        case "delimited":
            return DelimitedSource(mapping=mapping)
        case "jsonl":
            return JsonSource(mapping=mapping)
        case "parquet":
            return ParquetSource(mapping=mapping)
    raise ValueError(f"{config.format} passed IngestConfig and has no source")
