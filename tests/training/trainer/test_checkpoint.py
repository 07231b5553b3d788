import errno
import os

import pytest
import torch

from clicktower.schemas.errors import StageError
from clicktower.training.trainer.checkpoint import (
    Position,
    WriteError,
    list_updates,
    newest_checkpoint,
    read_checkpoint,
    write_checkpoint,
)
from clicktower.training.trainer.optimisers import LazyRows
from clicktower.training.trainer.process_group import remove_checkpoints_after

RUN = "run-digest"


def state(seed: int) -> dict[str, LazyRows]:
    generator = torch.Generator().manual_seed(seed)
    return {
        side: LazyRows(
            torch.randn(6, 4, generator=generator),
            torch.randn(6, 4, generator=generator),
            torch.arange(6, dtype=torch.int32) + seed,
        )
        for side in ("query", "document")
    }


def write(folder, update: int, digest: str = RUN) -> None:
    write_checkpoint(
        str(folder), digest, Position(update=update, loss=1.5, seconds=2.0, curve=[{"epoch": 1}]), state(update)
    )


def test_raw_state_and_position_come_back_bit_for_bit(tmp_path):
    write(tmp_path, 7)
    position, rows = read_checkpoint(str(tmp_path), RUN, 7)
    assert position == Position(update=7, loss=1.5, seconds=2.0, curve=[{"epoch": 1}])
    for side, expected in state(7).items():
        assert torch.equal(rows[side].parameters, expected.parameters)
        assert torch.equal(rows[side].velocity, expected.velocity)
        assert torch.equal(rows[side].last, expected.last)


def test_the_last_two_are_kept(tmp_path):
    for update in (3, 20, 100):
        write(tmp_path, update)
    assert list_updates(str(tmp_path)) == [100, 20]
    assert len(os.listdir(tmp_path)) == 4


def test_later_checkpoints_than_an_update_can_be_removed(tmp_path):
    for update in (3, 20):
        write(tmp_path, update)
    remove_checkpoints_after(str(tmp_path), 3)
    assert list_updates(str(tmp_path)) == [3]
    assert len(os.listdir(tmp_path)) == 2


def test_without_a_checkpoint_a_run_starts_at_zero(tmp_path):
    assert newest_checkpoint(str(tmp_path / "none"), RUN) == (0, [])


@pytest.mark.parametrize("damage", ["flipped byte", "cut off", "no weights", "no JSON"])
def test_a_damaged_checkpoint_is_refused_and_the_one_before_is_used(tmp_path, damage):
    write(tmp_path, 10)
    write(tmp_path, 20)
    weights, head = tmp_path / "update-000000020.safetensors", tmp_path / "update-000000020.json"
    if damage == "flipped byte":
        content = bytearray(weights.read_bytes())
        content[-9] ^= 1
        weights.write_bytes(content)
    elif damage == "cut off":
        weights.write_bytes(weights.read_bytes()[:-100])
    elif damage == "no weights":
        weights.unlink()
    else:
        head.write_text("{")
    update, refused = newest_checkpoint(str(tmp_path), RUN)
    assert update == 10
    assert [number for number, _ in refused] == [20]
    assert "update 20" in refused[0][1]


def test_a_refused_checkpoint_gives_way_to_one_that_says_so(tmp_path):
    """It is older in the order of updates than the damaged one, which must not count among the last two."""
    for update in (10, 20):
        write(tmp_path, update)
    (tmp_path / "update-000000020.safetensors").unlink()
    _, refused = newest_checkpoint(str(tmp_path), RUN)
    write_checkpoint(str(tmp_path), RUN, Position(update=15, refused=refused), state(15))
    assert list_updates(str(tmp_path)) == [15, 10]
    assert read_checkpoint(str(tmp_path), RUN, 15)[0].refused == [(20, "the checkpoint of update 20 cannot be read")]
    write_checkpoint(str(tmp_path), RUN, Position(update=20, refused=refused), state(20))
    write_checkpoint(str(tmp_path), RUN, Position(update=25, refused=refused), state(25))
    assert list_updates(str(tmp_path)) == [25, 20]


def test_a_checkpoint_of_another_request_is_refused(tmp_path):
    write(tmp_path, 10, digest="another")
    assert newest_checkpoint(str(tmp_path), RUN) == (
        0,
        [(10, "the checkpoint of update 10 belongs to another request")],
    )
    with pytest.raises(StageError, match="another request"):
        read_checkpoint(str(tmp_path), RUN, 10)


def test_a_full_disk_leaves_the_checkpoint_before_and_nothing_half_written(tmp_path, monkeypatch):
    write(tmp_path, 10)
    before = sorted(os.listdir(tmp_path))

    def full(_descriptor):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(WriteError, match="No space left") as caught:
        write(tmp_path, 20)
    assert "update 10 is whole" in caught.value.problem
    assert sorted(os.listdir(tmp_path)) == before
    monkeypatch.undo()
    assert newest_checkpoint(str(tmp_path), RUN) == (10, [])
