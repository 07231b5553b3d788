"""The files under deploy/: each is what its kind's own schema or parser accepts, and says what the project says.

No Docker engine, no Kubernetes and no Google account are at hand, so none of them is run here. What was run by hand is
written at the top of each file.
"""

import json
import re
import shlex
import tomllib
from importlib import metadata, resources
from pathlib import Path

import jsonschema
import kubernetes_validate
import pytest
import yaml

from clicktower.flows.cli import _engine_options, build_app

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
CONTAINERS = [*sorted((DEPLOY / "containers").glob("*.Dockerfile")), DEPLOY / "dataflow" / "Dockerfile"]
MANIFESTS = sorted((DEPLOY / "kubernetes").glob("*.yaml"))
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
PINS = dict(line.split("==") for line in (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines() if line)
OF_OTHERS = ("flink.apache.org/", "ray.io/")  # resources that an operator defines


def _instructions(file: Path) -> list[tuple[str, str]]:
    text = re.sub(r"^#.*\n", "", file.read_text(encoding="utf-8"), flags=re.M).replace("\\\n", " ")
    return [(word, rest) for word, _, rest in (line.partition(" ") for line in text.splitlines() if line.strip())]


def _documents(file: Path) -> list[dict]:
    return list(yaml.safe_load_all(file.read_text(encoding="utf-8")))


@pytest.mark.parametrize("file", CONTAINERS, ids=lambda file: file.name)
def test_an_image_installs_declared_extras_under_the_tested_set(file):
    asked = [rest for word, rest in _instructions(file) if word == "RUN" and "pip install" in rest]
    found = [extra for rest in asked for extra in re.findall(r"(?:'\.|whl\)\")?\[(\w+)\]", rest)]
    assert set(found) <= set(EXTRAS), f"{file.name} asks for {found}"
    for rest in asked:
        for one in rest.split("pip install")[1:]:
            assert "--constraint" in one or "$(grep '^torch==' constraints.txt)" in one, f"{file.name} is not pinned"
            assert "--no-cache-dir" in one


@pytest.mark.parametrize("file", [f for f in CONTAINERS if f.parent.name == "containers"], ids=lambda file: file.name)
def test_the_last_stage_of_an_image_is_not_run_by_root_and_has_no_compiler(file):
    user, compiler = "0", False
    for word, rest in _instructions(file):
        if word == "FROM" and rest.split()[0].startswith(("python:", "maven:", "flink:")):
            user, compiler = "0", False
        user = rest if word == "USER" else user
        compiler = compiler or (word == "RUN" and "g++" in rest)
    assert int(user) > 0
    assert not compiler


def test_nothing_but_the_source_is_sent_to_docker():
    lines = [line for line in (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines() if line[:1] != "#"]
    assert lines[0] == "*"
    sent = [line[1:] for line in lines if line.startswith("!")]
    assert all((ROOT / name).exists() for name in sent)
    assert {"clicktower", "schemas", "beam_jobs", "training", "flows", "pyproject.toml", "constraints.txt"} <= set(sent)
    assert not {"store", "release", ".venv", ".git", "."} & set(sent)


def test_an_installed_package_has_every_file_that_its_source_has():
    """What `pip install` leaves out by default: templates, lists, pages. A checkout would hide it."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["setuptools"]
    given = {
        file
        for package, patterns in project["package-data"].items()
        for pattern in patterns
        for file in (ROOT / package.removeprefix("clicktower.").replace(".", "/")).glob(pattern)
    }
    there = {
        file
        for package in ("clicktower", "schemas", "beam_jobs", "training", "flows")
        for file in (ROOT / package).rglob("*")
        if file.is_file() and file.suffix not in (".py", ".pyc", ".so")
    }
    assert there - given == set()


def test_the_files_name_the_versions_that_are_pinned():
    texts = {file.name: file.read_text(encoding="utf-8") for file in [*CONTAINERS, *MANIFESTS]}
    assert f"FROM apache/beam_python3.11_sdk:{PINS['apache-beam']}" in texts["Dockerfile"]
    assert f"rayVersion: {PINS['ray']}" in texts["ray.yaml"]
    engines = (DEPLOY / "engines/install.py").read_text()
    lucene = re.search(r'"lucene": \("([\d.]+)"', engines)[1]
    assert (DEPLOY / "engines/lucene/pom.xml").read_text().count(f"<version>{lucene}</version>") == 2
    flink = re.search(r'FLINK = "apache-flink-libraries==([\d.]+)"', engines)[1]
    assert f"FROM flink:{flink}-" in texts["flink.Dockerfile"]
    assert f"flinkVersion: v{'_'.join(flink.split('.')[:2])}" in texts["flink.yaml"]


def test_compose_keeps_its_schema_and_binds_ports_to_loopback_alone():
    (composed,) = _documents(DEPLOY / "compose.yaml")
    vendored = resources.files("check_jsonschema").joinpath("builtin_schemas/vendor/compose-spec.json")
    jsonschema.validate(composed, json.loads(vendored.read_text(encoding="utf-8")))
    ports = [port for service in composed["services"].values() for port in service.get("ports", [])]
    assert ports
    assert all(port.startswith("127.0.0.1:") for port in ports)
    assert composed["services"]["search"]["volumes"][0].endswith("/release:/data/release:ro")


def _pods(at: object, path: str = "") -> list[tuple[str, dict]]:
    """Every pod template in a document, wherever it is: {"metadata": ..., "spec": {"containers": ...}}."""
    if isinstance(at, list):
        return [pod for i, one in enumerate(at) for pod in _pods(one, f"{path}[{i}]")]
    if not isinstance(at, dict):
        return []
    found = [pod for key, one in at.items() for pod in _pods(one, f"{path}.{key}")]
    return [*found, (path, at)] if "containers" in at.get("spec", {}) else found


@pytest.mark.parametrize("file", MANIFESTS, ids=lambda file: file.name)
def test_a_manifest_keeps_kubernetes_schema(file):
    for document in _documents(file):
        if not document["apiVersion"].startswith(OF_OTHERS):
            kubernetes_validate.validate(document, "1.31", strict=True)
        for path, template in _pods(document):
            spec = template["spec"] | {"containers": [{"image": "x"} | one for one in template["spec"]["containers"]]}
            pod = {"apiVersion": "v1", "kind": "Pod", "metadata": template.get("metadata", {}), "spec": spec}
            kubernetes_validate.validate(pod, "1.31", strict=True)
            volumes = {volume["name"] for volume in spec.get("volumes", [])}
            for one in spec["containers"]:
                assert {mount["name"] for mount in one.get("volumeMounts", [])} <= volumes | {"data"}, path


def test_the_schema_test_notices_a_misspelt_field():
    job = _documents(DEPLOY / "kubernetes/ingest-job.yaml")[0]
    job["spec"]["template"]["spec"]["restartpolicy"] = "Never"
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(job, "1.31", strict=True)


def test_no_policy_opens_the_worker_pool():
    documents = _documents(DEPLOY / "kubernetes/flink.yaml")
    cluster, policy = documents[0], documents[1]
    (pool,) = [
        one
        for one in cluster["spec"]["taskManager"]["podTemplate"]["spec"]["containers"]
        if one["name"] == "python-workers"
    ]
    port = int(re.search(r"--service_port=(\d+)", pool["args"][0])[1])
    rules = policy["spec"]["ingress"]
    assert all(rule["ports"] for rule in rules)  # a rule without ports would open all of them
    assert port not in {one["port"] for rule in rules for one in rule["ports"]}
    labels = policy["spec"]["podSelector"]["matchLabels"]
    assert labels.items() <= cluster["spec"]["podTemplate"]["metadata"]["labels"].items()
    job = _documents(DEPLOY / "kubernetes/ingest-job.yaml")[0]
    assert f"--environment_config=localhost:{port}" in job["spec"]["template"]["spec"]["containers"][0]["args"]


def _command_lines() -> list[list[str]]:
    job = _documents(DEPLOY / "kubernetes/ingest-job.yaml")[0]["spec"]["template"]["spec"]["containers"][0]["args"]
    entrypoint = _documents(DEPLOY / "kubernetes/ray.yaml")[0]["spec"]["entrypoint"]
    return [job, shlex.split(entrypoint)[1:]]


@pytest.mark.parametrize("words", _command_lines(), ids=lambda words: words[0])
def test_a_command_in_a_manifest_is_accepted(words):
    build_app(words[0]).parse_args(_engine_options(words), exit_on_error=False, print_error=False)


def test_ray_up_accepts_the_cluster_file():
    from ray.autoscaler._private.util import prepare_config, validate_config

    (config,) = _documents(DEPLOY / "ray/cluster.yaml")
    validate_config(prepare_config(config))
    heads = " ".join(config["head_start_ray_commands"] + config["worker_start_ray_commands"])
    assert heads.count("RAY_AUTH_MODE=token") == 2


def test_every_file_says_what_was_not_run():
    files = [*CONTAINERS, *MANIFESTS, DEPLOY / "compose.yaml", DEPLOY / "ray/cluster.yaml"]
    for file in files:
        head = file.read_text(encoding="utf-8")[:2500]
        assert "Not run:" in head, file.name
        assert "Run:" in head.replace("Not run:", ""), file.name


def test_the_beam_that_is_here_is_the_pinned_one():
    assert metadata.version("apache-beam") == PINS["apache-beam"]
