from dataclasses import dataclass, replace

import pytest

from clicktower.flows.config.toml_file import assignments, with_fields
from clicktower.schemas.errors import UsageError


@dataclass(frozen=True, kw_only=True)
class Config:
    k: int = 5
    share: float = 0.05
    shuffle: bool = False
    salt: str = "s"
    path: str | None = None
    cutoffs: tuple[int, ...] = (1, 3)

    def __post_init__(self) -> None:
        if self.k < 1:
            raise ValueError(f"k = {self.k} must be at least 1")


def test_values_are_read_as_the_type_of_their_field():
    given = ["k=7", "share=1e-3", "shuffle=true", "salt=a=b", "path=x", "cutoffs=[1, 5, 10]"]
    assert with_fields(Config(), given) == Config(
        k=7, share=0.001, shuffle=True, salt="a=b", path="x", cutoffs=(1, 5, 10)
    )


@pytest.mark.parametrize(
    ("assignment", "words"),
    [
        ("k", "There is no = in --set ."),
        ("shufle=true", "did you mean shuffle"),
        ("k=many", "k is many: it must be a valid integer"),
        ("k=0", "k = 0 must be at least 1"),
    ],
)
def test_a_wrong_assignment_says_why(assignment, words):
    with pytest.raises(UsageError, match=words):
        with_fields(Config(), [assignment])


def test_a_table_of_a_pipeline_file_reaches_the_config_inside_a_config():
    from clicktower.beam_jobs.ingest.ingest_stage import IngestConfig

    made = with_fields(IngestConfig(), [*assignments({"bots": {"searches_per_hour": 90}}), "max_unreadable_share=0.1"])
    assert made.bots == replace(IngestConfig().bots, searches_per_hour=90)
