"""Run in the environment that has Google's packages: the three jobs translated for Dataflow, one JSON object printed.

python -m tests.beam_jobs.engine.translate_for_dataflow SHOP FOLDER
"""

import json
import sys
from pathlib import Path

from clicktower.beam_jobs.build.build_stage import BuildConfig, build_shards
from clicktower.beam_jobs.ingest.ingest_stage import IngestConfig, ingest_log
from clicktower.beam_jobs.judgments.judge_clicks import JudgmentsConfig
from clicktower.beam_jobs.judgments.judgments_stage import derive_judgments
from clicktower.schemas.errors import UsageError

DATAFLOW = (
    "--runner=DataflowRunner",
    "--dry_run=True",
    "--project=some-project",
    "--region=europe-west1",
    "--staging_location=gs://some-bucket/staging",
    "--temp_location=gs://some-bucket/temp",
)


def main(shop: Path, folder: Path) -> None:
    log, documents = [str(shop / "log")], str(shop / "documents.tsv")
    found = {}
    try:
        ingest_log(log, store=str(folder / "empty"), config=IngestConfig(), beam_options=DATAFLOW)
    except UsageError as error:
        found["ingest"] = error.problem
    day = ingest_log(log, store=str(folder), config=IngestConfig())
    try:
        build_shards([day.folder], documents, store=str(folder), config=BuildConfig(k=2), beam_options=DATAFLOW)
    except UsageError as error:
        found["build"] = error.problem
    try:
        derive_judgments([day.folder], store=str(folder), config=JudgmentsConfig(k=2), beam_options=DATAFLOW)
    except UsageError as error:
        found["judgments"] = error.problem
    print(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
