import json
from pathlib import Path

import pytest

from clicktower.flows.releases.kept_releases import verify
from clicktower.schemas.errors import StageError, UsageError
from clicktower.schemas.manifest import Outcome, Request, read, seal, to_bytes
from clicktower.schemas.release import Decision, Pointer, read_folder, read_pointer, write_decision
from clicktower.schemas.stage import StageResult, run_stage
from clicktower.schemas.storage import write_atomic


def a_stage(store: Path, seed: int = 0) -> StageResult:
    def produce(folder: str) -> Outcome:
        write_atomic(f"{folder}/part/data.bin", bytes(range(256)))
        write_atomic(f"{folder}/more.txt", b"more")
        return Outcome()

    request = Request(stage="build", stage_version=1, config={}, inputs={}, seed=seed)
    return run_stage(str(store), request, produce)


def test_a_whole_stage_and_a_whole_store_have_nothing_wrong(tmp_path):
    result = a_stage(tmp_path)
    a_stage(tmp_path, seed=1)
    assert verify(result.folder) == []
    reported = []
    assert verify(str(tmp_path), progress=lambda *told_now: reported.append(told_now)) == []
    assert reported[-1] == ("verify", 2, 2)


def test_a_flipped_byte_is_found_where_sizes_are_right(tmp_path):
    result = a_stage(tmp_path)
    path = Path(result.data, "part", "data.bin")
    path.write_bytes(path.read_bytes()[:-1] + b"\x00")
    attempt = result.manifest.attempt
    assert verify(result.folder) == [f"{attempt}/part/data.bin has other bytes than were written"]
    assert verify(str(tmp_path)) == [
        f"build/{result.manifest.digest}: {attempt}/part/data.bin has other bytes than were written"
    ]


def test_missing_cut_and_foreign_files_are_found(tmp_path):
    result = a_stage(tmp_path)
    Path(result.data, "more.txt").unlink()
    Path(result.data, "part", "data.bin").write_bytes(b"short")
    Path(result.data, "part", "foreign.bin").write_bytes(b"")
    found = verify(result.folder)
    assert len(found) == 3
    assert "has 5 bytes and should have 256" in found[1] or "has 5 bytes and should have 256" in found[0]
    assert any("more.txt is missing" in sentence for sentence in found)
    assert any("foreign.bin is not of this output" in sentence for sentence in found)


@pytest.mark.parametrize("inside", [True, False])
def test_a_link_is_damage_even_to_the_same_bytes(tmp_path, inside):
    result = a_stage(tmp_path / "store")
    path = Path(result.data, "part", "data.bin")
    target = path.with_name("more.bin") if inside else tmp_path / "elsewhere.bin"
    path.rename(target)
    path.symlink_to(target)
    assert f"{result.manifest.attempt}/part/data.bin is a link, or in a linked folder" in verify(result.folder)
    again = a_stage(tmp_path / "store")  # it is made anew, as any damaged output
    assert not again.reused
    assert verify(again.folder) == []


@pytest.mark.parametrize("path", ["../../other/data.bin", "/etc/hostname", "a/../../data.bin", "a\\..\\b", "a\0b", ""])
@pytest.mark.parametrize("record", ["files", "attempt"])
def test_a_record_names_no_path_outside_its_folder(tmp_path, path, record):
    result = a_stage(tmp_path)
    where = Path(result.folder, "manifest.json")
    value = json.loads(where.read_bytes())
    if record == "files":
        value["files"][0]["path"] = path
    else:
        value["attempt"] = path
    where.write_bytes(to_bytes(value))
    with pytest.raises(StageError, match=r"manifest\.json is damaged"):
        read(result.folder)


RELEASED = Path(__file__).parents[2] / "schemas" / "released"


def change(value: dict, path: tuple, new: object) -> dict:
    """The parsed record with one value replaced."""
    at = value
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = new
    return value


@pytest.mark.parametrize(
    ("path", "new"),
    [
        (("files", 0, "path"), "../../../etc/passwd"),
        (("files", 0, "path"), "/etc/passwd"),
        (("files", 0, "size_bytes"), "many"),
        (("attempt",), "../elsewhere"),
        (("request",), ["none"]),
        (("outcome",), None),
        (("files",), {"path": "x"}),
    ],
)
def test_a_manifest_of_a_stranger_is_refused_in_one_sentence(tmp_path, path, new):
    value = json.loads((RELEASED / "manifest-1.0.json").read_text())
    (tmp_path / "manifest.json").write_text(json.dumps(change(value, path, new)))
    with pytest.raises(StageError, match=r"^The manifest \S+ is damaged\. Run the stage again"):
        read(str(tmp_path))


@pytest.mark.parametrize(
    ("path", "new"),
    [
        (("digest",), "../elsewhere"),
        (("files", 0, "path"), "model/../../../etc/passwd"),
        (("num_documents",), "many"),
        (("similarity",), "closeness"),
        (("index",), []),
    ],
)
def test_a_release_of_a_stranger_is_refused_in_one_sentence(tmp_path, path, new):
    value = json.loads((RELEASED / "release-1.2.json").read_text())
    (tmp_path / "release.json").write_bytes(to_bytes(seal(change(value, path, new))))
    with pytest.raises(StageError, match=r"^The file release\.json of \S+ is damaged\. Publish again\."):
        read_folder(str(tmp_path))


def test_a_pointer_leads_to_no_folder_outside(tmp_path):
    value = json.loads((RELEASED / "pointer-1.2.json").read_text())
    (tmp_path / "pointer.json").write_bytes(to_bytes(seal(value | {"release": "../../elsewhere"})))
    with pytest.raises(StageError, match=r"^The file pointer\.json of \S+ is damaged\."):
        read_pointer(str(tmp_path))


def test_a_renamed_folder_and_a_damaged_manifest_are_found(tmp_path):
    result = a_stage(tmp_path)
    renamed = Path(result.folder).rename(tmp_path / "build" / ("0" * 24))
    assert "a folder was renamed" in verify(str(renamed))[0]
    Path(renamed, "manifest.json").write_text("{")
    assert verify(str(renamed)) == [f"The manifest {renamed}/manifest.json is damaged."]


def test_what_a_killed_attempt_left_is_not_held_against_the_output(tmp_path):
    result = a_stage(tmp_path)
    write_atomic(f"{result.folder}/attempt-killed/data.bin", b"half")
    assert verify(result.folder) == []


def test_a_pointer_to_nothing_is_found(tmp_path):
    write_atomic(str(tmp_path / "releases" / "abc" / "release.json"), b"{}")
    pointer = Pointer(release="gone", previous=None, swapped="")
    write_atomic(str(tmp_path / "pointer.json"), to_bytes(pointer.to_json()))
    found = verify(str(tmp_path))
    assert "names the release gone, which is not there" in found[0]
    assert "releases/abc" in found[1]


@pytest.mark.parametrize("promote", [True, False])
def test_a_missing_pointer_is_found_where_a_release_went_live(tmp_path, promote):
    uri = str(tmp_path)
    write_decision(
        uri, "abc", Decision(promote=promote, reason="a reason"), against=None, decided="2026-09-01T00:00:00Z"
    )
    missing = ["pointer.json is missing, although a release went live"]
    assert verify(uri) == (missing if promote else [])  # a candidate has no pointer


def test_a_pointer_whose_only_release_is_gone_is_damage_and_no_wrong_path(tmp_path):
    pointer = Pointer(release="gone", previous=None, swapped="")
    write_atomic(str(tmp_path / "pointer.json"), to_bytes(pointer.to_json()))
    (sentence,) = verify(str(tmp_path))
    assert "names the release gone, which is not there" in sentence


def test_a_folder_with_nothing_to_verify_is_wrong_usage(tmp_path):
    with pytest.raises(UsageError, match="neither a stage's output nor a store nor a release"):
        verify(str(tmp_path))
