"""What is the same bytes on every processor: days, shards, and what the compiled path trains and encodes.

Each set is forced on a process of its own, in everything there that asks the processor what it has.
"""

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from clicktower.beam_jobs.build.build_stage import BuildConfig, build_shards
from clicktower.beam_jobs.ingest.ingest_stage import IngestConfig, ingest_log
from clicktower.beam_jobs.ingest.person_key import ensure_key
from clicktower.schemas import storage
from clicktower.training.model.kernel_towers import can_encode
from clicktower.training.model.model import load_model
from clicktower.training.model.recipe import recipe as named_recipe
from tests.beam_jobs.build.day_folders import write_documents
from tests.beam_jobs.ingest.dated_logs import day_lines, write_lines
from tests.instruction_sets import forced, sets_here
from tests.recipes import varied
from tests.training.trainings import train

# Started by how rare trigrams are, one tower, a shared pool, weights by the logarithm of clicks: all that is computed
# before the first update is in it.
RECIPES = [
    varied(recipe, cells=16, epochs=2, minibatch=16, micro_batch=8, pool_size=16, weights="log_clicks")
    for recipe in map(named_recipe, ("lstm-pool-96", "bag-pool-512"))
]
TITLES = {
    f"d{n}": f"{thing} {n} inch" for n, thing in enumerate(["steel hammer", "deck paint", "Sägeblatt für Holz"] * 4)
}


def digests(folder: Path, key: str) -> dict[str, str]:
    """What this process, with what it takes its processor for, makes of a small log."""
    log, store = write_lines(folder / "log.ndjson", day_lines("2026-09-01", 1, num_searches=60)), str(folder / "store")
    day = ingest_log([log], store=store, config=IngestConfig(date="2026-09-01", person_key=key))
    shards = build_shards(
        [day.folder], write_documents(folder / "documents.tsv", TITLES), store=store, config=BuildConfig(k=1)
    )
    found = {"day": day.manifest.outcome.logical_digest, "shards": shards.manifest.outcome.logical_digest}
    for recipe in RECIPES:
        trained = train(shards.folder, store=store, recipe=recipe, path="compiled", threads=1)
        model = load_model(trained.data)
        vectors = b"".join(model.encode(list(TITLES.values()), side).tobytes() for side in ("query", "document"))
        content = storage.read_bytes(f"{trained.data}/model.safetensors")
        found[recipe.name] = hashlib.sha256(content).hexdigest()
        found[f"vectors of {recipe.name}"] = hashlib.sha256(vectors).hexdigest()
    return found


@pytest.mark.rehearsal
def test_days_shards_compiled_models_and_their_vectors_are_the_same_bytes_with_every_set(tmp_path):
    if not can_encode(RECIPES[0]):
        pytest.skip("the compiled path is not available here")
    ensure_key(str(tmp_path / "key"), create=True)
    found = {}
    for name in sets_here():
        done = subprocess.run(
            [sys.executable, "-m", __name__, str(tmp_path / name), str(tmp_path / "key")],
            env=os.environ | forced(name), capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        found[name] = json.loads(done.stdout.splitlines()[-1])
    assert "generic" in found
    assert len(found["generic"]) == 2 + 2 * len(RECIPES)
    assert all(same == found["generic"] for same in found.values()), found


if __name__ == "__main__":
    print(json.dumps(digests(Path(sys.argv[1]), sys.argv[2])))
