"""The pipeline with everything of it, the log too, on a server that speaks as Google Cloud Storage does."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.end_to_end.shop import make_shop, pipeline
from tests.end_to_end.test_object_store import require_turns
from tests.gcs_server import GcsServer

pytestmark = pytest.mark.engine
DATA = "gs://bucket/data"


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with GcsServer(tmp_path_factory.mktemp("gcs")) as server:
        yield server


@pytest.mark.slow
def test_a_night_on_google_storage_is_that_of_a_disk(server, tmp_path):
    shop = make_shop(tmp_path / "shop")

    def run(*words: str) -> str:
        command = [sys.executable, "-m", "clicktower.flows.cli", *words]
        done = subprocess.run(
            command, cwd=shop, env=os.environ | server.environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr

    put = "import sys; from clicktower.schemas import storage; "
    put += "[storage.write_atomic(f'{sys.argv[1]}/{name}', open(f'data/{name}', 'rb').read()) for name in sys.argv[2:]]"
    names = [str(path.relative_to(shop / "data")) for path in (shop / "data").rglob("*") if path.is_file()]
    subprocess.run([sys.executable, "-c", put, DATA, *names], cwd=shop, env=os.environ | server.environment, check=True)
    (shop / "cloud.toml").write_text(pipeline("gs://bucket", data=DATA))
    (shop / "disk.toml").write_text(pipeline("disk"))

    first = run("run", "cloud.toml")
    assert "reused" not in first
    assert run("run", "cloud.toml").count("reused") == 5
    run("run", "disk.toml")
    for stage in ("build", "train"):
        kept = [_files(folder, stage) for folder in (server.folder / "data/bucket/store", shop / "disk/store")]
        assert kept[0] == kept[1], stage
        assert kept[0]
    assert run("search", "--release", "gs://bucket/release", "--json", "garden hose") == run(
        "search", "--release", "disk/release", "--json", "garden hose"
    ).replace("disk/", "gs://bucket/")
    for folder in ("store", "release"):
        assert "✓" in run("verify", f"gs://bucket/{folder}")
    assert not [path for path in server.files() if path.name.startswith("claim-")], "claims are given back"


def _files(store: Path, stage: str) -> dict[str, str]:
    """The digests of what a stage wrote, but for pages and times."""
    (manifest,) = store.glob(f"{stage}/*/manifest.json")
    files = json.loads(manifest.read_text())["files"]
    data = (".arrow", ".safetensors", ".txt")
    return {file["path"].split("/", 1)[1]: file["sha256"] for file in files if file["path"].endswith(data)}


@pytest.mark.rehearsal
def test_processes_take_turns_at_a_claim_and_one_of_them_takes_over_that_of_a_dead_one(server, tmp_path):
    require_turns(server, tmp_path)
