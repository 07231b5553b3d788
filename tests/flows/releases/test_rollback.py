import json
import shutil
from pathlib import Path

import pytest

from clicktower.flows.cli import run as clicktower
from clicktower.flows.releases.kept_releases import list_releases, rollback, verify
from clicktower.flows.releases.publish import publish
from clicktower.flows.releases.search import search
from clicktower.schemas.errors import StageError, UnknownVersionError, UsageError
from clicktower.schemas.manifest import seal, to_bytes
from clicktower.schemas.release import Decision, read_decision, read_pointer
from tests.flows.releases.catalogue import CONFIG, write_documents


@pytest.fixture(scope="module")
def three(published, model, tmp_path_factory) -> tuple[str, list[str]]:
    """A URI with three releases, each of which was live, and their digests."""
    folder = tmp_path_factory.mktemp("three")
    uri = str(shutil.copytree(published.uri, folder / "live"))
    digests = [published.release.digest]
    for seed in (20, 21):
        new = write_documents(folder / f"{seed}.tsv", num_documents=40, seed=seed)
        digests.append(publish(model, documents=new, to=uri, config=CONFIG).release.digest)
    return uri, digests


@pytest.fixture
def kept(three, tmp_path) -> tuple[str, list[str]]:
    """A copy of it that a test may change."""
    return str(shutil.copytree(three[0], tmp_path / "kept")), three[1]


def test_rolling_back_goes_to_the_release_before_and_twice_is_back_where_it_began(kept):
    uri, (_, second, third) = kept
    back = rollback(uri)
    assert (back.pointer.release, back.pointer.previous) == (second, third)
    assert read_pointer(uri) == back.pointer
    assert not back.reused
    assert search(uri, "copper pipe", 1)
    assert verify(uri) == []
    assert rollback(uri).pointer.release == third
    assert back.to_json()["metrics"]["previous"] == third


def test_any_kept_release_can_be_made_live_and_the_live_one_is_there_already(kept):
    uri, (first, _, third) = kept
    assert rollback(uri, release=third).reused
    assert rollback(uri, release=first).pointer.previous == third
    assert "rollback from " + third in read_decision(uri, first).reason


def test_rolling_back_to_nothing_says_so(kept, live, tmp_path):
    uri, (first, second, _) = kept
    with pytest.raises(UsageError, match="is the first that was live at"):
        rollback(live)
    with pytest.raises(UsageError, match="No release 0123456789 is kept at"):
        rollback(uri, release="0123456789")
    with pytest.raises(UsageError, match="is kept at"):
        rollback(uri, release=f"../releases/{first}")
    with pytest.raises(UsageError, match="Nothing is published at"):
        rollback(str(tmp_path / "nowhere"))
    shutil.rmtree(Path(uri, "releases", second))
    with pytest.raises(UsageError, match=f"No release {second} is kept at"):
        rollback(uri)
    assert not Path(tmp_path / "nowhere").exists()


def test_a_damaged_release_is_not_made_live(kept):
    uri, (first, second, third) = kept
    golden = Path(uri, "releases", second, "golden.jsonl")
    content = bytearray(golden.read_bytes())
    content[100] ^= 1
    golden.write_bytes(content)
    with pytest.raises(StageError, match=r"golden.jsonl has other bytes than were written."):
        rollback(uri)
    record = Path(uri, "releases", first, "release.json")
    value = json.loads(record.read_text())
    record.write_bytes(to_bytes(seal(value | {"text_contract": {"trigrams": "2.0"}})))
    with pytest.raises(UnknownVersionError, match="text contract"):
        rollback(uri, release=first)
    assert read_pointer(uri).release == third


def test_the_list_says_which_is_live_which_was_and_what_is_damaged(kept):
    uri, (first, second, third) = kept
    assert [(one["digest"], one["state"]) for one in list_releases(uri)] == [
        (third, "live"), (second, "previous"), (first, "kept")
    ]  # fmt: skip
    Path(uri, "releases", first, "golden.jsonl").unlink()
    Path(uri, "releases", second, "release.json").unlink()
    damaged = {one["digest"]: one["wrong"] for one in list_releases(uri) if one["state"] == "damaged"}
    assert damaged == {first: "golden.jsonl is missing", second: "release.json is missing"}


def test_nothing_to_list_is_wrong_usage(tmp_path):
    with pytest.raises(UsageError, match="Nothing is published at"):
        list_releases(str(tmp_path))


def test_the_commands_print_one_json_object_or_a_table(kept, capsys):
    uri, (first, second, third) = kept
    assert clicktower(["releases", "--to", uri, "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert listed["digest"] == third
    assert [row["state"] for row in listed["releases"]] == ["live", "previous", "kept"]
    assert clicktower(["rollback", "--to", uri, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["digest"] == second
    assert clicktower(["rollback", "--to", uri, "--release", "nonsense"]) == 2
    assert "is kept at" in capsys.readouterr().err
    assert clicktower(["releases", "--to", uri]) == 0
    shown = capsys.readouterr().out
    assert all(digest in shown for digest in (first, second, third))


def test_a_candidate_waits_beside_the_live_release_until_somebody_makes_it_live(live, model, tmp_path):
    before = read_pointer(live)
    new = write_documents(tmp_path / "new.tsv", num_documents=40, seed=22)
    made = publish(model, documents=new, to=live, config=CONFIG, candidate=True)
    assert not made.is_live
    assert read_pointer(live) == before
    assert made.to_json()["metrics"]["live"] is False
    state = {one["digest"]: one for one in list_releases(live)}[made.release.digest]
    assert state["state"] == "candidate"
    assert "goes live when a person decides so" in state["decision"]["reason"]
    assert publish(model, documents=new, to=live, config=CONFIG, candidate=True).reused
    assert verify(live) == []
    assert rollback(live, release=made.release.digest).pointer.previous == before.release
    assert list_releases(live)[0]["state"] == "live"


def test_a_candidate_may_be_the_first_of_all(model, documents, tmp_path):
    made = publish(model, documents=documents, to=str(tmp_path), config=CONFIG, candidate=True)
    assert made.pointer is None
    assert made.to_json()["metrics"]["previous"] is None
    with pytest.raises(StageError, match="Nothing is published at"):
        search(str(tmp_path), "hose")
    live = publish(model, documents=documents, to=str(tmp_path), config=CONFIG)
    assert live.is_live
    assert read_decision(str(tmp_path), live.release.digest) is None  # no candidate any more


def test_what_a_decision_says_is_done_and_recorded(live, model, tmp_path):
    before, asked = read_pointer(live), []

    def decide(of_live, live_folder, candidate, folder):
        asked.append((of_live.digest, live_folder, candidate.digest, folder))
        return Decision(promote=len(asked) > 1, reason=f"asked {len(asked)} times", figures={"gain": -0.25})

    new = write_documents(tmp_path / "new.tsv", num_documents=40, seed=23)
    made = publish(model, documents=new, to=live, config=CONFIG, decide=decide)
    assert asked == [(before.release, f"{live}/releases/{before.release}", made.release.digest, made.folder)]
    assert read_pointer(live) == before
    assert not made.is_live
    assert read_decision(live, made.release.digest) == made.decision == Decision(
        promote=False, reason="asked 1 times", figures={"gain": -0.25}
    )  # fmt: skip
    record = json.loads(Path(live, "decisions", f"{made.release.digest}.json").read_text())
    assert record["against"] == before.release
    again = publish(model, documents=new, to=live, config=CONFIG, decide=decide)
    assert again.is_live
    assert read_decision(live, made.release.digest).promote
    assert verify(live) == []


def test_a_decision_is_asked_where_nothing_is_live_or_what_is_cannot_be_read(model, documents, live, tmp_path):
    seen = []

    def decide(of_live, live_folder, candidate, folder):
        seen.append((of_live, live_folder))
        return Decision(promote=True, reason="nothing to compare with")

    assert publish(model, documents=documents, to=str(tmp_path / "new"), config=CONFIG, decide=decide).is_live
    Path(live, "releases", read_pointer(live).release, "release.json").write_text("{")
    new = write_documents(tmp_path / "new.tsv", num_documents=40, seed=24)
    assert publish(model, documents=new, to=live, config=CONFIG, decide=decide).is_live
    assert seen == [(None, None), (None, None)]


def test_candidates_are_cleared_away_like_others_and_their_decisions_with_them(live, model, tmp_path):
    made = []
    for seed in (25, 26, 27):
        new = write_documents(tmp_path / f"{seed}.tsv", num_documents=40, seed=seed)
        config = CONFIG.__class__(num_recall_queries=20, keep=1)
        made.append(publish(model, documents=new, to=live, config=config, candidate=True))
    assert made[2].removed == [made[0].release.digest]
    left = {one["digest"]: one["state"] for one in list_releases(live)}
    assert left == {
        read_pointer(live).release: "live",
        made[1].release.digest: "candidate",
        made[2].release.digest: "candidate",
    }
    assert sorted(path.stem for path in Path(live, "decisions").iterdir()) == sorted(
        one.release.digest for one in made[1:]
    )


def test_a_candidate_that_is_to_be_decided_on_as_well_is_wrong_usage(live, model, documents):
    with pytest.raises(UsageError, match="Leave one of the two out"):
        publish(model, documents=documents, to=live, config=CONFIG, candidate=True, decide=lambda *_: None)
    with pytest.raises(UsageError, match=r"Titles cannot be encoded by 0 workers."):
        publish(model, documents=documents, to=live, config=CONFIG, workers=0)


def test_the_publish_command_makes_a_candidate_and_says_so(live, model, tmp_path, capsys):
    new = write_documents(tmp_path / "new.tsv", num_documents=40, seed=28)
    command = ["publish", "--model", model, "--documents", new, "--to", live, "--candidate"]
    assert clicktower([*command, "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["metrics"]["live"] is False
    assert "candidate" in result["metrics"]["decision"]["reason"]
    assert read_pointer(live).release != result["digest"]
    assert clicktower(command) == 0
    assert "candidate" in capsys.readouterr().err
    assert clicktower([*command[:-1], "--workers", "0"]) == 2
