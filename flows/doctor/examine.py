"""Everything that `clicktower doctor` looks at, in the order in which it is told."""

from collections.abc import Mapping
from functools import partial

from flows.doctor import engines, machine, software
from flows.doctor.finding import Check, Finding, looked_at
from flows.doctor.log_reader import log_reader
from flows.doctor.training_path import training_path
from flows.settings import Settings, Surroundings
from schemas import storage
from schemas.errors import UsageError


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
