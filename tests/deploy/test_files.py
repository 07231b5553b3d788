"""The files under deploy/: each is what its kind's own schema or parser accepts, and says what the project says.

No Docker engine, no Kubernetes and no Google account are at hand, so none of them is run here. What was run by hand is
written at the top of each file.
"""

import json
import re
import shlex
import subprocess
import tomllib
from importlib import metadata, resources
from pathlib import Path
from shutil import which
from uuid import uuid4

import jsonschema
import kubernetes_validate
import pytest
import yaml
from prefect.client.schemas import FlowRun
from prefect.flows import load_flow_from_entrypoint
from prefect.settings import PREFECT_API_URL, temporary_settings
from prefect.utilities.asyncutils import run_coro_as_sync

from clicktower.flows.cli import _engine_options, build_app

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
CONTAINERS = [*sorted((DEPLOY / "containers").glob("*.Dockerfile")), DEPLOY / "dataflow" / "Dockerfile"]
KUSTOMIZATIONS = sorted(file.parent for file in (DEPLOY / "kubernetes").rglob("kustomization.yaml"))
OF_TOOLS = ("kustomization.yaml", "prefect.yaml")
MANIFESTS = sorted(file for file in (DEPLOY / "kubernetes").rglob("*.yaml") if file.name not in OF_TOOLS)
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
    found = [names for rest in asked for names in re.findall(r"(?:'\.|\"\.|whl\))\[([\w,]+)[\]$]", rest)]
    assert {name for names in found for name in names.rstrip(",").split(",")} <= set(EXTRAS), f"{file.name}: {found}"
    assert bool(found) == bool(asked)
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
    assert f"rayVersion: {PINS['ray']}" in texts["cluster.yaml"]
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


def _built(folder: Path) -> list[dict]:
    """The documents that kustomize makes of a folder."""
    if not which("kubectl"):
        pytest.skip("there is no kubectl")
    done = subprocess.run(["kubectl", "kustomize", str(folder)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return list(yaml.safe_load_all(done.stdout))


def _pods(at: object, path: str = "") -> list[tuple[str, dict]]:
    """Every pod template in a document, wherever it is: {"metadata": ..., "spec": {"containers": ...}}."""
    if isinstance(at, list):
        return [pod for i, one in enumerate(at) for pod in _pods(one, f"{path}[{i}]")]
    if not isinstance(at, dict):
        return []
    found = [pod for key, one in at.items() for pod in _pods(one, f"{path}.{key}")]
    return [*found, (path, at)] if "containers" in at.get("spec", {}) else found


@pytest.mark.parametrize("place", [*MANIFESTS, *KUSTOMIZATIONS], ids=lambda place: str(place.relative_to(DEPLOY)))
def test_a_manifest_keeps_kubernetes_schema(place):
    for document in _built(place) if place.is_dir() else _documents(place):
        if not document["apiVersion"].startswith(OF_OTHERS):
            kubernetes_validate.validate(document, "1.31", strict=True)
        for path, template in _pods(document):
            spec = template["spec"] | {"containers": [{"image": "x"} | one for one in template["spec"]["containers"]]}
            pod = {"apiVersion": "v1", "kind": "Pod", "metadata": template.get("metadata", {}), "spec": spec}
            kubernetes_validate.validate(pod, "1.31", strict=True)
            for one in spec["containers"]:
                written = {entry["name"] for entry in one.get("env", []) if "value" in entry}
                assert not [name for name in written if re.search("TOKEN$|KEY|SECRET|PASSWORD", name)]
            volumes = {volume["name"] for volume in spec.get("volumes", [])}
            for one in spec["containers"]:
                assert {mount["name"] for mount in one.get("volumeMounts", [])} <= volumes | {"data"}, path


@pytest.mark.parametrize("overlay", ["volume", "object-store"])
def test_the_search_service_is_restricted_probed_and_never_taken_away_whole(overlay):
    kinds = {document["kind"]: document for document in _built(DEPLOY / "kubernetes/serve" / overlay)}
    pod = kinds["Deployment"]["spec"]["template"]
    [serve] = pod["spec"]["containers"]
    assert serve["securityContext"]["readOnlyRootFilesystem"]
    assert pod["spec"]["securityContext"]["runAsNonRoot"]
    assert {serve[probe]["httpGet"]["path"] for probe in serve if probe.endswith("Probe")} == {"/healthz"}
    # Kubernetes asks a pod by its address, which a service that knows its names by --allow-host would refuse.
    assert "--allow-host" not in serve["args"]
    for selector in (kinds["Deployment"]["spec"]["selector"], kinds["PodDisruptionBudget"]["spec"]["selector"]):
        assert selector["matchLabels"].items() <= pod["metadata"]["labels"].items()
    assert kinds["Service"]["spec"]["selector"].items() <= pod["metadata"]["labels"].items()
    scaler = kinds["HorizontalPodAutoscaler"]["spec"]
    assert scaler["minReplicas"] > kinds["PodDisruptionBudget"]["spec"]["minAvailable"]
    assert scaler["scaleTargetRef"]["name"] == kinds["Deployment"]["metadata"]["name"]
    assert "replicas" not in kinds["Deployment"]["spec"], "applied again, it would undo what the autoscaler did"
    release = serve["args"][serve["args"].index("--release") + 1]
    mounted = {mount["mountPath"]: mount for mount in serve["volumeMounts"]}
    assert "://" in release or mounted[release]["readOnly"]


@pytest.mark.parametrize("workers", ["base", "gpu"])
def test_the_operator_has_rays_token_and_workers_come_and_go(workers):
    [cluster] = _built(DEPLOY / "kubernetes/ray" / workers)
    spec = cluster["spec"]
    assert spec["authOptions"] == {"mode": "token"}, "without it KubeRay asks the head without the token"
    assert spec["enableInTreeAutoscaling"]
    [group] = spec["workerGroupSpecs"]
    assert group["minReplicas"] == 0 < group["maxReplicas"]
    pod = group["template"]["spec"]
    gpus = pod["containers"][0]["resources"]["limits"].get("nvidia.com/gpu")
    assert group["rayStartParams"].get("num-gpus") == gpus == (None if workers == "base" else "1")
    assert ("nodeSelector" in pod) == ("tolerations" in pod) == (workers == "gpu")


def test_prefects_worker_makes_a_job_of_the_template_that_joins_the_ray_cluster():
    """As it does for each run; what it adds to the command's environment is its own."""
    worker = pytest.importorskip("prefect_kubernetes.worker")
    template = json.loads((DEPLOY / "kubernetes/prefect/base-job-template.json").read_text(encoding="utf-8"))
    [deployment] = _documents(DEPLOY / "kubernetes/prefect/prefect.yaml")[0]["deployments"]
    values = deployment["work_pool"]["job_variables"]
    with temporary_settings({PREFECT_API_URL: "http://127.0.0.1:9/api"}):  # nothing of it is asked
        made = worker.KubernetesWorkerJobConfiguration.from_template_and_values(template, values)
        configuration = run_coro_as_sync(made)
    configuration.prepare_for_flow_run(FlowRun(id=uuid4(), flow_id=uuid4(), name="some-run"))
    job = configuration.job_manifest
    for name in ("completions", "parallelism"):  # Prefect wants them here; Kubernetes ignores them
        assert job["spec"]["template"]["spec"].pop(name) == 1
    kubernetes_validate.validate(job, "1.31", strict=True)
    [container] = job["spec"]["template"]["spec"]["containers"]
    assert container["args"] == ["prefect", "flow-run", "execute"]
    environment = {one["name"]: one.get("value") for one in container["env"]}
    [cluster] = _documents(DEPLOY / "kubernetes/ray/base/cluster.yaml")
    assert environment["RAY_ADDRESS"] == f"{cluster['metadata']['name']}-head-svc:6379"
    volumes = {volume["name"]: volume for volume in job["spec"]["template"]["spec"]["volumes"]}
    mounts = {mount["mountPath"]: volumes[mount["name"]] for mount in container["volumeMounts"]}
    assert mounts["/etc/ray"]["secret"]["secretName"] == cluster["metadata"]["name"], "the secret that KubeRay makes"
    assert environment["RAY_AUTH_TOKEN_PATH"] == "/etc/ray/auth_token"


@pytest.mark.parametrize("file", [DEPLOY / "prefect.yaml", DEPLOY / "kubernetes/prefect/prefect.yaml"], ids=str)
def test_a_deployment_names_the_flow_of_the_installed_package(file):
    for deployment in _documents(file)[0]["deployments"]:
        assert load_flow_from_entrypoint(deployment["entrypoint"], use_placeholder_flow=False).name == "clicktower"


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
    entrypoint = _documents(DEPLOY / "kubernetes/ray/sweep.yaml")[0]["spec"]["entrypoint"]
    serve = _documents(DEPLOY / "kubernetes/serve/base/serve.yaml")[0]["spec"]["template"]["spec"]["containers"][0]
    return [job, shlex.split(entrypoint)[1:], serve["args"]]


@pytest.mark.parametrize("words", _command_lines(), ids=lambda words: words[0])
def test_a_command_in_a_manifest_is_accepted(words):
    build_app(words[0]).parse_args(_engine_options(words), exit_on_error=False, print_error=False)


def test_ray_up_accepts_the_cluster_file():
    from ray.autoscaler._private.util import prepare_config, validate_config

    (config,) = _documents(DEPLOY / "ray/cluster.yaml")
    validate_config(prepare_config(config))
    heads = " ".join(config["head_start_ray_commands"] + config["worker_start_ray_commands"])
    assert heads.count("RAY_AUTH_MODE=token") == 2


TWO_CARDS = "GPU 0: A100\n  MIG 1g Device 0: (UUID: b)\nGPU 1: A100\n"  # one of them is divided


@pytest.mark.parametrize(("listed", "num_gpus"), [(None, 0), ("", 0), ("GPU 0: H100 (UUID: a)\n", 1), (TWO_CARDS, 2)])
def test_a_machine_of_the_ray_cluster_offers_the_gpus_that_its_driver_lists(tmp_path, listed, num_gpus):
    (config,) = _documents(DEPLOY / "ray/cluster.yaml")
    [option] = re.findall(r"--num-gpus=\S.*", config["worker_start_ray_commands"][-1])
    if listed is not None:
        (tmp_path / "nvidia-smi").write_text(f"#!/bin/sh\nprintf '{listed}'\n")
        (tmp_path / "nvidia-smi").chmod(0o755)
    (tmp_path / "grep").symlink_to(which("grep"))
    shell = ["/bin/sh", "-c", f"echo {option}"]
    done = subprocess.run(shell, env={"PATH": str(tmp_path)}, capture_output=True, text=True, check=True)
    assert done.stdout == f"--num-gpus={num_gpus}\n"
    assert "--num-gpus=0" in config["head_start_ray_commands"][-1]


def test_every_file_says_what_was_not_run():
    built = [folder / "kustomization.yaml" for folder in KUSTOMIZATIONS]
    files = [*CONTAINERS, *MANIFESTS, *built, DEPLOY / "compose.yaml", DEPLOY / "ray/cluster.yaml"]
    for file in files:
        head = file.read_text(encoding="utf-8")[:2500]
        assert "Not run:" in head, file.name
        assert "Run:" in head.replace("Not run:", ""), file.name


def test_the_beam_that_is_here_is_the_pinned_one():
    assert metadata.version("apache-beam") == PINS["apache-beam"]
