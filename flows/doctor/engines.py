"""Engines beyond this process: Prism and Flink, Java for it; Ray's and Prefect's servers where they are named."""

import os
import re
import shutil
import socket
import subprocess
import urllib.error
import urllib.request
from urllib.parse import urlsplit

from beam_jobs.engine.engine_options import FLINK_JOB_SERVER, PRISM, PYTHON_WORKER
from flows.config.settings import Surroundings
from flows.doctor.finding import Finding

ANSWER_SECONDS = 1.5
_RAY_PORT, _HTTP_PORTS = 6379, {"http": 80, "https": 443}
_MIN_JAVA = 11


def loopback() -> Finding:
    """Whether processes on this machine can talk to each other through 127.0.0.1."""
    try:
        with socket.create_server(("127.0.0.1", 0)) as server:
            server.settimeout(ANSWER_SECONDS)
            with socket.create_connection(server.getsockname(), ANSWER_SECONDS) as client:
                server.accept()[0].close()
                client.recv(1)
    except OSError as error:
        return Finding(
            name="loopback",
            state="bad",
            found=f"127.0.0.1 cannot be listened to or reached ({type(error).__name__})",
            follows="Ray, and what Prism and Flink need, cannot start",
            do="allow it in the sandbox or firewall that this runs in",
        )
    return Finding(name="loopback", state="good", found="127.0.0.1 can be listened to and reached")


def ray_server(around: Surroundings) -> Finding:
    """The Ray cluster that RAY_ADDRESS names, which trainings with several workers join."""
    asked = around.ray_address
    if not asked or asked == "local":
        return Finding(name="Ray", state="note", found="RAY_ADDRESS names no cluster: one is started for each run")
    if asked == "auto":
        return Finding(name="Ray", state="note", found="RAY_ADDRESS=auto: a cluster on this machine, if there is one")
    address = urlsplit(asked if "://" in asked else f"ray://{asked}")
    return _answering("Ray", "RAY_ADDRESS", address.hostname or "", address.port or _RAY_PORT, "start the cluster")


def prefect_server(around: Surroundings) -> Finding:
    """The Prefect server that PREFECT_API_URL names, asked for its health."""
    asked = around.prefect_api_url
    if not asked:
        return Finding(name="Prefect", state="note", found="PREFECT_API_URL names no server: `run` needs none")
    address = urlsplit(asked)
    port = address.port or _HTTP_PORTS.get(address.scheme, 0)
    reached = _answering("Prefect", "PREFECT_API_URL", address.hostname or "", port, "start the server")
    if reached.state != "good" or address.scheme not in _HTTP_PORTS:
        return reached
    try:
        plain = f"{address.scheme}://{address.hostname}:{port}{address.path.rstrip('/')}/health"
        with urllib.request.urlopen(plain, timeout=ANSWER_SECONDS) as answer:
            return Finding(name="Prefect", state="good", found=f"{reached.found} ({answer.status})")
    except (OSError, ValueError) as error:
        code = error.code if isinstance(error, urllib.error.HTTPError) else type(error).__name__
        asks_who = code in (401, 403)
        return Finding(
            name="Prefect",
            state="note" if asks_who else "look",
            found=f"{reached.found}, and to a question for its health: {code}",
            follows="it wants to know who asks" if asks_who else "`run` may not reach the API there",
            do="" if asks_who else "see that PREFECT_API_URL ends with /api",
        )


def java(around: Surroundings) -> Finding:
    """The Java that Flink would run with."""
    program = shutil.which("java", path=f"{around.java_home}/bin") if around.java_home else shutil.which("java")
    if not program:
        return Finding(name="Java", state="note", found="none; only Flink needs it")
    done = subprocess.run([program, "-version"], capture_output=True, text=True, timeout=10, check=False)
    return judge_java(done.stderr + done.stdout)


def judge_java(told: str) -> Finding:
    """What `java -version` prints."""
    version = re.search(r'version "(?:1\.)?(\d+)[^"]*"', told)
    if not version:
        return Finding(
            name="Java",
            state="look",
            found="there is a java that does not tell its version",
            follows="Flink may not start",
            do="install Java 17, or let JAVA_HOME name one",
        )
    facts = {"version": int(version.group(1))}
    if facts["version"] < _MIN_JAVA:
        return Finding(
            name="Java",
            state="look",
            found=f"Java {facts['version']}",
            follows=f"Flink needs {_MIN_JAVA} or later",
            do="install Java 17, or let JAVA_HOME name one",
            facts=facts,
        )
    return Finding(name="Java", state="good", found=f"Java {facts['version']}", facts=facts)


def prism(folder: str) -> Finding:
    return _engine("Prism", folder, (PRISM,))


def flink(folder: str) -> Finding:
    return _engine("Flink", folder, (FLINK_JOB_SERVER, PYTHON_WORKER))


def _engine(name: str, folder: str, files: tuple[str, ...]) -> Finding:
    missing = [file for file in files if not os.path.exists(os.path.join(folder, file))]
    if not missing:
        return Finding(name=name, state="good", found="in the folder of the engines")
    part = "not there" if len(missing) == len(files) else f"in part: {', '.join(missing)} missing"
    return Finding(
        name=name, state="note", found=f"{part}; only --runner={name}Runner needs it, and `make engines` brings it"
    )


def _answering(name: str, variable: str, host: str, port: int, do: str) -> Finding:
    where = f"{host}:{port}"
    try:
        socket.create_connection((host, port), ANSWER_SECONDS).close()
    except OSError:
        return Finding(
            name=name,
            state="look",
            found=f"{variable} names {where}, where nobody answers",
            follows="commands that join it fail",
            do=f"{do} there, or unset {variable} to have one started",
        )
    return Finding(name=name, state="good", found=f"{where} answers")
