"""The wheel, in environments that hold nothing but the packages that its extras declare: what an image is made of."""

import json
import subprocess
from ast import literal_eval

import pytest

from tests.deploy.isolated import ROOT, build_wheel, clicktower, declared, imports, install, python

STORES = {"s3fs", "gcsfs", "adlfs"}
FOREIGN = {
    "cli": {"torch", "ray", "apache_beam", "prefect", "lancedb"},
    "beam": {"torch", "ray", "prefect", "lancedb"},
    "train": {"apache_beam", "prefect", "lancedb"},
    "serve": {"apache_beam", "prefect", "lancedb"},
    "lancedb": {"apache_beam", "prefect"},
    "flows": {"torch", "ray", "apache_beam", "lancedb"},
}


@pytest.fixture(scope="module")
def sites(tmp_path_factory):
    """A folder of packages for each extra that a stage below runs with; the wheel was built without a compiler."""
    root = tmp_path_factory.mktemp("sites")
    wheel = build_wheel(root, compiler=False)
    for extra in ("cli", "beam", "train", "publish"):
        install(wheel, {extra}, root / extra)
    return root


@pytest.fixture
def among_own_packages(tmp_path):
    """A user's folder with packages of its own that have the names of ours; importing one of them fails."""
    for name in ("schemas", "beam_jobs", "training", "flows"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text(f"raise ImportError('the {name} of the user')")
    return tmp_path


@pytest.mark.slow
def test_the_wheel_takes_no_name_but_its_own(sites, among_own_packages):
    names = {path.name for path in (sites / "cli").iterdir() if not path.is_symlink() and path.suffix != ".dist-info"}
    ours = {name for name in names if (sites / "cli" / name / "__init__.py").exists()}
    assert ours & {"clicktower", "schemas", "beam_jobs", "training", "flows"} == {"clicktower"}
    done = clicktower(sites / "cli", "simulate", "data", "--searches", "200", cwd=among_own_packages)
    assert done.returncode == 0, done.stderr[-2000:]
    code = "import clicktower, sys; print(clicktower.UsageError.__module__, 'schemas' in sys.modules)"
    assert python(sites / "cli", code, cwd=among_own_packages).stdout == "clicktower.schemas.errors False\n"


@pytest.mark.slow
def test_the_wheel_holds_the_licence_and_what_is_read_at_run_time(sites):
    (metadata,) = (sites / "cli").glob("clicktower-*.dist-info")
    assert "License-Expression: Apache-2.0" in (metadata / "METADATA").read_text()
    assert (metadata / "licenses/LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    read = {name for name in tracked if name.startswith(("schemas/", "beam_jobs/", "training/", "flows/"))}
    assert len(read) > 250
    assert [name for name in sorted(read) if not (sites / "cli/clicktower" / name).exists()] == []


@pytest.mark.rehearsal
@pytest.mark.engine  # minutes of it are Beam and torch being imported, each by itself
@pytest.mark.usefixtures("among_own_packages")
def test_every_stage_runs_with_its_own_extra_alone(sites, tmp_path):
    def run(extra: str, *words: str) -> str:
        done = clicktower(sites / extra, *words, cwd=tmp_path)
        assert done.returncode == 0, f"{words[0]} with [{extra}]: {done.stderr[-2000:]}"
        return done.stdout

    judged = ("--queries", "data/judgments/queries.dev.tsv", "--qrels", "data/judgments/qrels.dev.txt")
    run("cli", "simulate", "data", "--searches", "2000", "--seed", "3")
    run("beam", "ingest", "data/log", "--into", "store")
    run("beam", "build", "--days", "store", "--documents", "data/documents.tsv", "--k", "3", "--into", "store")
    run("train", "train", "--shards", _only(tmp_path, "build"), "--set", "epochs=1", "--into", "store")
    model = ("--model", _only(tmp_path, "train"), "--documents", "data/documents.tsv")
    run("train", "evaluate", *model, *judged, "--into", "store")
    run("publish", "publish", *model, "--to", "release")
    hits = json.loads(run("publish", "search", "--release", "release", "--json", "bags"))["hits"]
    assert len(hits) == 10
    code = "import clicktower; print([hit.id for hit in clicktower.load('release').search('bags')])"
    assert literal_eval(python(sites / "publish", code, cwd=tmp_path).stdout) == [hit["id"] for hit in hits]
    run("cli", "verify", "store")


@pytest.mark.rehearsal
@pytest.mark.engine
def test_the_demonstration_runs_from_a_compiled_wheel(tmp_path):
    site = tmp_path / "site"
    install(build_wheel(tmp_path, compiler=True), {"all"}, site)
    for compiled in ("clicktower/beam_jobs/compiled/_compiled", "clicktower/training/kernel/_kernel"):
        assert list(site.glob(f"{compiled}.*.so")), compiled
    done = clicktower(site, "demo", "--work", "demo", "--searches", "3000", cwd=tmp_path)
    assert done.returncode == 0, done.stderr[-2000:]
    assert (tmp_path / "demo/report.html").exists()


def _only(folder, stage: str) -> str:
    (output,) = (folder / "store" / stage).iterdir()
    return f"store/{stage}/{output.name}"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("extra", "words", "brought_by"),
    [
        ("cli", ("check", "log.ndjson"), "beam"),
        ("cli", ("verify", "s3://bucket/store"), "s3"),
        ("beam", ("ingest", "gs://bucket/log", "--into", "store"), "gcs"),
        (
            "beam",
            ("build", "--days", "az://container/store", "--documents", "documents.tsv", "--into", "store"),
            "azure",
        ),
        ("train", ("train", "--shards", "gs://bucket/store/build/0", "--into", "store"), "gcs"),
        ("publish", ("search", "--release", "s3://bucket/release", "garden hose"), "s3"),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else value,
)
def test_a_command_whose_packages_are_missing_says_which_extra_brings_them(sites, tmp_path, extra, words, brought_by):
    done = clicktower(sites / extra, *words, cwd=tmp_path)
    assert done.returncode == 1, done.stderr[-2000:]
    assert "is not installed here" in done.stderr
    assert f"pip install 'clicktower[{brought_by}]'" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("extra", sorted(FOREIGN))
def test_an_extra_brings_no_engine_of_another(extra):
    packages = {name.replace("-", "_") for name in declared({extra})}
    assert packages & {"torch", "ray", "apache_beam", "prefect", "lancedb"} == (
        {"torch", "ray", "apache_beam", "prefect", "lancedb"} - FOREIGN[extra]
    )


@pytest.mark.parametrize(("extra", "brought"), [("s3", "s3fs"), ("gcs", "gcsfs"), ("azure", "adlfs"), ("beam", "")])
def test_an_extra_of_a_store_brings_its_client_and_no_other(extra, brought):
    assert declared({extra}) & STORES == {brought} - {""}
    assert declared({"all"}) >= STORES


@pytest.mark.slow
def test_the_isolated_environment_lacks_what_was_not_declared(sites):
    """The test of the test: without this, a stage could borrow from the environment that the tests run in."""
    wanted = ["pyarrow", "cyclopts", "torch", "apache_beam", "pytest"]
    assert imports(sites / "cli", wanted) == ["pyarrow", "cyclopts"]
    assert imports(sites / "beam", wanted) == ["pyarrow", "cyclopts", "apache_beam"]
