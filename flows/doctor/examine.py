"""Everything that `clicktower doctor` looks at, in the order in which it is told."""

import shutil
from collections.abc import Mapping
from functools import partial

from beam_jobs.compiled.log_library import why_not
from flows.config.settings import Settings, Surroundings
from flows.doctor import engines, machine, software
from flows.doctor.finding import Check, Finding, looked_at
from schemas import storage
from schemas.errors import UsageError
from training.kernel import Status, status


def examine(store: str) -> dict[str, list[Finding]]:
    """The findings of every check, by group. Raises UsageError where the store's URI cannot be read at all."""
    try:
        storage.filesystem(store)
    except (ImportError, ValueError) as error:
        raise UsageError(
            asked="the store was to be looked at",
            found=f"its URI cannot be used here ({type(error).__name__})",
            do="install the file system of its protocol (s3fs for s3://, gcsfs for gs://), or give a folder",
        ) from None
    around, folder = Surroundings(), Settings().engines
    groups: Mapping[str, list[tuple[str, Check]]] = {
        "Training": [("path", training_path), ("GPU", machine.gpu)],
        "Preprocessing": [("log reader", log_reader)],
        "Software": [("Python", software.python), ("packages", software.packages), ("tested set", software.pinned)],
        "Machine": [
            ("cores", machine.cores),
            ("threads", partial(machine.threads, around)),
            ("memory", machine.memory),
            ("shared memory", machine.shared_memory),
            ("disk", partial(machine.disk, store)),
            ("loopback", engines.loopback),
        ],
        "Engines": [
            ("Prism", partial(engines.prism, folder)),
            ("Flink", partial(engines.flink, folder)),
            ("Java", partial(engines.java, around)),
            ("Ray", partial(engines.ray_server, around)),
            ("Prefect", partial(engines.prefect_server, around)),
        ],
    }
    return {group: looked_at(checks) for group, checks in groups.items()}


# Whether log lines are read in compiled code, and why not.


def log_reader() -> Finding:
    """The compiled reader of everyday lines, or Python for all of them."""
    return judge_reader(why_not())


def judge_reader(reason: str) -> Finding:
    """`reason`: why nothing compiled is used; empty where it is."""
    facts = {"reader": "python" if reason else "compiled"}
    if not reason:
        return Finding(name="log reader", state="good", found="compiled, for UBI; Python for other logs", facts=facts)
    return Finding(
        name="log reader",
        state="look",
        found=f"Python: {reason}",
        follows="everything works, and reading UBI logs takes several times as much processor time",
        do="install a C++ compiler if there is none, then clicktower again"
        " (in a checkout: touch pyproject.toml && make setup)",
        facts=facts,
    )


# Which path training takes on a CPU, and why.


def training_path() -> Finding:
    """The compiled kernel, or the reference path in torch."""
    return judge_path(status(), has_compiler=any(map(shutil.which, ("g++", "c++", "clang++"))))


def judge_path(found: Status, *, has_compiler: bool) -> Finding:
    """`has_compiler`: one is there now, whatever was there when clicktower was installed."""
    facts = {
        "path": "compiled" if found.available else "reference",
        "instructions": found.instructions,
        "reason": found.reason,
    }
    if found.available and found.instructions == "generic":
        return Finding(
            name="path",
            state="look",
            found="the compiled kernel, without AVX2 or AVX-512",
            follows="the same results, at a part of the speed",
            do="use a processor that has them, or see that the virtual machine shows them",
            facts=facts,
        )
    if found.available:
        return Finding(
            name="path",
            state="good",
            found=f"the compiled kernel with {found.instructions} (lstm, bilstm, rnn); torch for other towers",
            facts=facts,
        )
    return Finding(
        name="path",
        state="look",
        found=f"the reference path in torch: {found.reason}",
        follows="everything works, and recurrent towers train and encode several times slower",
        do=_remedy(found, has_compiler),
        facts=facts,
    )


def _remedy(found: Status, has_compiler: bool) -> str:
    if "processor" in found.reason:
        return "use a processor that has them, if speed matters"
    again = "install clicktower again (in a checkout: touch pyproject.toml && make setup)"
    return again if has_compiler else f"install a C++ compiler (apt-get install g++, dnf install gcc-c++), then {again}"
