from dataclasses import dataclass, replace

import pytest

from clicktower.flows.config.toml_file import with_fields, with_options
from clicktower.schemas.errors import UsageError
from tests.recipes import recipe_with


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

    made = with_fields(IngestConfig(), {"bots": {"searches_per_hour": 90}, "max_unreadable_share": 0.1})
    assert made.max_unreadable_share == 0.1
    assert made.bots == replace(IngestConfig().bots, searches_per_hour=90)


def test_an_option_that_was_not_given_overrides_nothing():
    assert with_options(Config(), {"k": None, "salt": None}, ["k=7"]) == Config(k=7)
    assert with_options(Config(), {"k": 3, "salt": "x"}) == Config(k=3, salt="x")


@pytest.mark.parametrize(
    ("options", "given"),
    [
        ({"k": 7}, "k=7"),
        ({"k": 7}, "k= 7 "),  # one value, however it is spelt
        ({"share": 0.001}, "share=1e-3"),
        ({"shuffle": True}, "shuffle=true"),
        ({"cutoffs": (1, 5)}, "cutoffs=[1, 5]"),
        ({"path": "a=b"}, "path=a=b"),
    ],
)
def test_an_option_and_set_may_say_the_same(options, given):
    [(name, value)] = options.items()
    assert getattr(with_options(Config(), options, [given]), name) == value


def test_a_field_of_a_section_is_compared_as_its_type():
    recipe = recipe_with(name="small", cells=8)
    assert with_options(recipe, {"tower.cells": 9}, ["tower.cells=9"]).tower.cells == 9
    assert with_fields(recipe, ["optimiser.step=1e-3", "optimiser.step=0.001"]).optimiser.step == 0.001
    for twice in (["tower.cells=9", "tower.cells=10"], ["tower.truncate_steps=1", "tower.truncate_steps=2"]):
        with pytest.raises(UsageError, match="is set to different values"):
            with_fields(recipe, twice)


@pytest.mark.parametrize(
    ("options", "given"),
    [({"k": 7}, ["k=8"]), ({"k": 5}, ["k=6"]), ({"salt": "a"}, ["salt=b"]), ({}, ["k=7", "k=8"]), ({"k": 7}, ["k=x"])],
)
def test_an_option_and_set_that_differ_are_an_error_of_two_parts(options, given):
    """A default says nothing, but one that was typed does."""
    with pytest.raises(UsageError, match="is set to different values") as refused:
        with_options(Config(), options, given)
    assert refused.value.fix
