import json

import pytest

from clicktower.beam_jobs.ingest.ingest_stage import IngestConfig
from clicktower.flows.cli import run
from clicktower.flows.config.pipeline_config import LateLog, check_inputs, dated, read_pipeline, require_log
from clicktower.schemas.errors import UsageError

LEAST = """
[log]
files = ["logs/*.gz"]
[documents]
file = "documents.tsv"
[judgments]
queries = "queries.tsv"
qrels = "/data/qrels.txt"
"""


def write(folder, text: str) -> str:
    (folder / "pipeline.toml").write_text(text, encoding="utf-8")
    return str(folder / "pipeline.toml")


def test_paths_are_relative_to_the_file_and_uris_stay(tmp_path):
    config = read_pipeline(write(tmp_path, 'store = "s3://bucket/store"\n' + LEAST))
    assert config.log.files == (str(tmp_path / "logs/*.gz"),)
    assert config.judgments.qrels == "/data/qrels.txt"
    assert config.store == "s3://bucket/store"
    assert config.publish.to == str(tmp_path / "release")


def test_a_byte_order_mark_and_returns_change_nothing(tmp_path):
    plain = read_pipeline(write(tmp_path, LEAST))
    (tmp_path / "pipeline.toml").write_bytes(b"\xef\xbb\xbf" + LEAST.replace("\n", "\r\n").encode())
    assert read_pipeline(str(tmp_path / "pipeline.toml")) == plain
    (tmp_path / "pipeline.toml").write_bytes(LEAST.encode("utf-16"))
    with pytest.raises(UsageError, match="is UTF-16, not UTF-8"):
        read_pipeline(str(tmp_path / "pipeline.toml"))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("not toml [", "not TOML"),
        (LEAST.replace("[documents]", "[dokuments]"), "dokuments"),
        (LEAST.replace('file = "documents.tsv"', ""), r"documents\.file is missing"),
        (LEAST + "[train]\nworkers = 'many'\n", r"train\.workers"),
        (LEAST.replace("[documents]", "[documents]\nlanguage = 'klingon'"), "documents.language .*'none', .*'yiddish'"),
        (LEAST + "[evaluate]\nlanguage = 'german'\n", r"\[evaluate\]: the language is that of the documents"),
        (LEAST + "[publish.set]\nlanguage = 'german'\n", r"\[publish\.set\]: the language is that of the documents"),
        (LEAST + "[build]\nk = 5\n[extra]\n", "extra"),
        (LEAST + "[window]\nlast = 30\n", "has a window, and its log has no date"),
        (LEAST.replace("[log]", "[log]\ndate = '1.9.2026'"), "1.9.2026 is not a date of the form 2026-09-01."),
        (LEAST.replace('["logs/*.gz"]', "[]"), "the field log.files is wrong .it must have at least 1 item"),
        (
            LEAST.replace("[log]", "[log]\nformat = 'ubi'") + "[ingest]\nformat = 'orcas'\n",
            "The field format is set to different values",
        ),
        (
            LEAST.replace("[log]", "[log]\ndate = '2026-09-01'") + "[ingest]\ndate = '2026-09-02'\n",
            "date fixes the day of a log whose date is another",
        ),
    ],
)
def test_a_wrong_file_is_refused_and_the_place_named(tmp_path, text, words):
    with pytest.raises(UsageError, match=words):
        read_pipeline(write(tmp_path, text))


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ("[ingest]\nmax_unreadable = 0.1\n", r"did you mean ingest.max_unreadable_share.."),
        ("[build]\nk = 5\ndev_shar = 0.1\n", r"did you mean build.dev_share.."),
        ("[build]\nk = 'many'\n", r"the field build.k is wrong .it must be a valid integer"),
        ("[train.set]\n# the step\nstepp = 0.1\n", r"did you mean optimiser.step.."),
        ("[train]\nset = {stepp = 0.1}\n", r"train.set is wrong .there is no field stepp"),
        ("[evaluate]\ncutofs = [1]\n", r"did you mean evaluate.cutoffs.."),
        ("[compare.set]\nepoch = 1\n", r"did you mean epochs.."),
        ("[publish.set]\nkeeps = 1\n", r"did you mean (publish.set.)?keep.."),
        ("[train]\nrecip = 'dssm'\n", r"did you mean train.recipe."),
        ("[train]\nrecipe = 'dsm'\n", "dssm"),
        ("[promotion]\nrul = 'never'\n", r"did you mean promotion.rule."),
        ("[windw]\nlast = 3\n", r"did you mean window."),
        ("[window]\nlast = 0\n", r"window.last is wrong"),
        ("[train]\nworkers = -1\n", r"The workers are -1, and must be at least 1"),
        ("[train]\nworkers = 'many'\n", r"train.workers is wrong .it must be a valid integer.*, or it must be 'auto'"),
        ("[train]\nthreads = 0\n", r"The threads of each worker are 0, and must be at least 1"),
        ("[train]\nworkers = 2\nmin_workers = 3\n", r"At least 3 workers are to continue, which is more than the 2"),
        ("[train]\nworkers = 'auto'\nset = {reduction = 'fast'}\n", r"a fast sum depends on their number"),
        ("[train]\ndevice = 'tpu'\n", r"train.device is wrong"),
        ("[train]\nrecipe = 'siamese-lstm'\n", r"a pipeline trains on clicks"),
        ("[train]\nrecipe = 'paper-lstm-96-n8'\n", r"reads 8 fixed negatives of each pair, and .build. makes 4"),
        ("[train.set]\ntower.cells = 1000000\n", r"takes [0-9,.]+ GB of memory .* this machine has [0-9,.]+ GB"),
        ("[promotion]\nmeasure = 'ndcg@7'\n", r"nothing measures ndcg@7"),
        ("[evaluate]\ncutoffs = [1]\n", r"nothing measures ndcg@10"),
        ("[compare]\nrows = ['bm26']\n", r"There is no row named bm26"),
        ("[compare]\nrows = []\n", r"compare.rows is wrong"),
        ("[compare]\nrows = ['random']\n", r"there is no row bm25 to test the others against"),
        ("[compare]\nseeds = []\n", r"compare.seeds is wrong"),
        ("[compare]\nseeds = [1]\nset = {seed = 2}\n", r"the towers' seed is set by seeds and by set.seed"),
        ("[drift]\naccept = ['christmas']\n", r"christmas is not a date"),
        ("[ingest]\ndate = 'monday'\n", r"monday is not a date"),
    ],
)
def test_a_field_that_a_stage_would_refuse_is_refused_with_its_line_before_any_starts(tmp_path, more, words):
    with pytest.raises(UsageError, match=f"(?is){words}"):
        read_pipeline(write(tmp_path, LEAST + more))


def test_a_format_in_the_settings_of_ingest_counts(tmp_path):
    """No default of [log] overrides it."""
    config = read_pipeline(write(tmp_path, LEAST + "[ingest]\nformat = 'orcas'\n"))
    assert (config.log.format, config.ingest.format) == (None, "orcas")


def test_what_a_promotion_may_measure_is_what_an_evaluation_has(tmp_path):
    """By name, from an evaluation of two documents."""
    from clicktower.schemas.documents import read_documents
    from clicktower.training.ranking.measure import RandomOrder, Rules, judged_collection, measure

    (tmp_path / "d.tsv").write_text("d1\tred hammer\nd2\tblue saw\n", encoding="utf-8")
    collection = judged_collection(read_documents(str(tmp_path / "d.tsv")), {"q": "saw"}, {"q": {"d1": 0, "d2": 1}})
    for rules in (Rules(), Rules(cutoffs=(1, 5), top_k=10), Rules(cutoffs=(2,), top_k=20)):
        assert list(measure(RandomOrder(["d1", "d2"]), collection, rules).per_query) == rules.measures


@pytest.fixture
def whole(tmp_path):
    """A pipeline whose inputs are all there."""
    for name, text in (
        ("log.ndjson", "{}\n"), ("documents.tsv", "d1\tRed hammer\n"), ("queries.tsv", "q1\tred hammer\n"),
        ("qrels.txt", "q1 0 d1 1\n"), ("empty.txt", "# no term\n"), ("vectors.txt", "not vectors\n"),
    ):  # fmt: skip
        (tmp_path / name).write_text(text, encoding="utf-8")
    return LEAST.replace("logs/*.gz", "log.ndjson").replace("/data/qrels.txt", "qrels.txt")


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ("[build]\nadult_list = 'none.txt'\n", "Nothing is at PLACE/none.txt"),
        ("[build]\nadult_list = 'empty.txt'\n", "has no term"),
        ("[ingest]\nperson_key = 'none.key'\n", "Nothing is at PLACE/none.key"),
        ("[train]\nstart = 'store/train/none'\n", "Nothing is at PLACE/store/train/none"),
        ("[train]\nstart = 'documents.tsv'\n", "documents.tsv has no manifest.json"),
        ("[train]\nteacher = 'none.parquet'\n", "Nothing is at PLACE/none.parquet"),
        ("[train]\nteacher = 'queries.tsv'\n", "queries.tsv has no manifest.json"),
        ("[train]\nword_vectors = 'vectors.txt'\n", "cannot be read as word vectors"),
        ("[train]\nset = {word_vectors = 'frozen'}\n", "and no file of them is given"),
        ("[compare]\nlogged = 'none.run'\n", "Nothing is at PLACE/none.run"),
        ("[compare]\nfrequencies = 'none.tsv'\n", "Nothing is at PLACE/none.tsv"),
        ("[publish]\nset = {columns = ['price']}\n", "has no column 'price'"),
        ("[publish]\nto = 'documents.tsv'\n", "A file is at PLACE/documents.tsv, where a folder belongs"),
    ],
)
def test_a_run_that_would_fail_is_refused_at_once_and_nothing_is_written(tmp_path, whole, more, words, capsys):
    path, before = write(tmp_path, whole + more), sorted(tmp_path.iterdir())
    assert run(["run", path, "--json"]) == 2
    error = json.loads(capsys.readouterr().out)["error"]
    assert words.replace("PLACE", str(tmp_path)) in error["problem"]
    assert error["fix"]
    assert sorted(tmp_path.iterdir()) == before


def test_a_tracker_that_is_not_installed_is_missed_before_anything_runs(tmp_path, whole, monkeypatch, capsys):
    monkeypatch.setattr("clicktower.flows.tracking.find_spec", lambda name: None)
    path, before = write(tmp_path, 'mlflow = "runs"\n' + whole), sorted(tmp_path.iterdir())
    assert run(["run", path]) == 2
    assert "The package mlflow, which the setting mlflow needs, is not installed" in capsys.readouterr().err
    assert sorted(tmp_path.iterdir()) == before


def test_a_missing_file_is_refused():
    with pytest.raises(UsageError, match=r"(?i)There is no pipeline file nowhere.toml."):
        read_pipeline("nowhere.toml")


def test_all_missing_inputs_are_named_before_anything_runs(tmp_path):
    with pytest.raises(UsageError) as raised:
        check_inputs(read_pipeline(write(tmp_path, LEAST)), "2026-09-01")
    for name in ("logs/*.gz", "documents.tsv", "queries.tsv", "qrels.txt"):
        assert name in str(raised.value)


def test_a_log_that_is_late_is_named_with_its_date_and_no_wrong_path(tmp_path):
    with pytest.raises(UsageError) as raised:
        check_inputs(read_pipeline(write(tmp_path, DATED)), "2026-09-01")
    assert "logs/" not in str(raised.value)
    with pytest.raises(LateLog, match=rf"The log of 2026-09-01 is not there: nothing is at {tmp_path}/logs/2026-09-01"):
        require_log(read_pipeline(write(tmp_path, DATED)), "2026-09-01")
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs/2026-09-01.gz").touch()
    require_log(read_pipeline(write(tmp_path, DATED)), "2026-09-01")


@pytest.mark.parametrize(
    ("more", "fields"),
    [
        ("", {}),
        ("[window]\nlast = 30\n", {"key_overlap": 30}),
        ("[window]\nlast = 61\n", {}),
        ("[window]\nlast = 30\n[ingest]\nrenew_key = false\n", {"renew_key": False}),
        ("[window]\nlast = 30\n[ingest]\nkey_overlap = 45\n", {"key_overlap": 45}),
        ("[window]\nlast = 30\n[ingest]\npair_people = true\n", {"key_overlap": 30, "pair_people": True}),
    ],
)
def test_keys_overlap_for_the_window_unless_the_file_says_how_they_are_renewed(tmp_path, more, fields):
    assert read_pipeline(write(tmp_path, DATED + more)).ingest == IngestConfig(**fields)


def test_a_window_from_the_environment_is_a_number_too(tmp_path, monkeypatch):
    monkeypatch.setenv("LAST", "30")
    assert read_pipeline(write(tmp_path, DATED + "[window]\nlast = '${LAST}'\n")).ingest.key_overlap == 30


def test_the_data_date_is_filled_in():
    assert dated(("logs/{date}/*.gz", "more.gz"), "2026-09-01") == ("logs/2026-09-01/*.gz", "more.gz")


DATED = LEAST.replace("logs/*.gz", "logs/{date}.gz")


@pytest.mark.parametrize(
    ("text", "ingest", "build"),
    [
        (LEAST, {}, (["DAY"], None, None, False)),
        (DATED, {"date": "2026-09-01"}, (["STORE"], None, None, False)),
        (LEAST.replace("[log]", "[log]\ndate = '2026-08-31'"), {"date": "2026-08-31"}, (["STORE"], None, None, False)),
        (
            DATED + "[window]\nlast = 30\nallow_missing_days = true\n",
            {"date": "2026-09-01", "key_overlap": 30},
            (["STORE"], "2026-09-01", 30, True),
        ),
        (
            DATED + "[window]\nlast = 30\nallow_missing_days = 2\n",
            {"date": "2026-09-01", "key_overlap": 30},
            (["STORE"], "2026-09-01", 30, 2),
        ),
    ],
)
def test_a_dated_log_is_ingested_for_its_date_and_built_from_the_window_that_ends_there(
    tmp_path, monkeypatch, text, ingest, build
):
    config = read_pipeline(write(tmp_path, text))
    commands = []

    def run(stage, options, **_):
        commands.append(options)
        return {"stage": stage, "path": "DAY", "counts": {"queries": 0}, "ledger": {"total": 0, "lines": {}}}

    monkeypatch.setattr("clicktower.flows.chain.run_stage_command", run)
    monkeypatch.setattr("clicktower.flows.show.present.stage_result", lambda result: None)
    monkeypatch.setattr("clicktower.flows.show.present.headline", lambda result: "")
    from clicktower.flows import chain

    date = config.log.date or "2026-09-01"
    chain.build(config, chain.ingest(config, date), date)
    first, second = commands
    assert first["set"] == IngestConfig(**ingest)
    days, *window = (second[name] for name in ("days", "until", "last", "allow_missing_days"))
    assert ([name.replace(config.store, "STORE") for name in days], *window) == build
