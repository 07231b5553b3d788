import pytest

from clicktower.flows.config.pipeline_config import check_inputs, dated, read_pipeline
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
        (LEAST + "[build]\nk = 5\n[extra]\n", "extra"),
        (LEAST + "[window]\nlast = 30\n", "has a window, and its log has no date"),
        (LEAST.replace("[log]", "[log]\ndate = '1.9.2026'"), "1.9.2026 is not a date of the form 2026-09-01."),
    ],
)
def test_a_wrong_file_is_refused_and_the_place_named(tmp_path, text, words):
    with pytest.raises(UsageError, match=words):
        read_pipeline(write(tmp_path, text))


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ("[ingest]\nmax_unreadable = 0.1\n", r"did you mean max_unreadable_share.."),
        ("[build]\nk = 5\ndev_shar = 0.1\n", r"did you mean dev_share.."),
        ("[build]\nk = 'many'\n", r"Set an existing field to a value that it"),
        ("[train.set]\n# the step\nstepp = 0.1\n", r"did you mean optimiser.step.."),
        ("[train]\nset = {stepp = 0.1}\n", r"Recipe has no field stepp"),
        ("[evaluate]\ncutofs = [1]\n", r"did you mean cutoffs.."),
        ("[compare.set]\nepoch = 1\n", r"did you mean epochs.."),
        ("[publish.set]\nkeeps = 1\n", r"did you mean keep.."),
        ("[train]\nrecip = 'dssm'\n", r"did you mean train.recipe."),
        ("[train]\nrecipe = 'dsm'\n", "dssm"),
        ("[promotion]\nrul = 'never'\n", r"did you mean promotion.rule."),
        ("[windw]\nlast = 3\n", r"did you mean window."),
    ],
)
def test_a_field_that_a_stage_would_refuse_is_refused_with_its_line_before_any_starts(tmp_path, more, words):
    with pytest.raises(UsageError, match=f"(?is){words}"):
        read_pipeline(write(tmp_path, LEAST + more))


def test_a_missing_file_is_refused():
    with pytest.raises(UsageError, match=r"(?i)There is no pipeline file nowhere.toml."):
        read_pipeline("nowhere.toml")


def test_all_missing_inputs_are_named_before_anything_runs(tmp_path):
    with pytest.raises(UsageError) as raised:
        check_inputs(read_pipeline(write(tmp_path, LEAST)), "2026-09-01")
    for name in ("logs/*.gz", "documents.tsv", "queries.tsv", "qrels.txt"):
        assert name in str(raised.value)


def test_the_data_date_is_filled_in():
    assert dated(("logs/{date}/*.gz", "more.gz"), "2026-09-01") == ("logs/2026-09-01/*.gz", "more.gz")


DATED = LEAST.replace("logs/*.gz", "logs/{date}.gz")


@pytest.mark.parametrize(
    ("text", "ingest", "build"),
    [
        (LEAST, [], ["--days", "DAY"]),
        (DATED, ["--date", "2026-09-01"], ["--days", "STORE"]),
        (LEAST.replace("[log]", "[log]\ndate = '2026-08-31'"), ["--date", "2026-08-31"], ["--days", "STORE"]),
        (
            DATED + "[window]\nlast = 30\nallow_missing_days = true\n",
            ["--date", "2026-09-01"],
            ["--days", "STORE", "--to", "2026-09-01", "--last", "30", "--allow-missing-days"],
        ),
    ],
)
def test_a_dated_log_is_ingested_for_its_date_and_built_from_the_window_that_ends_there(
    tmp_path, monkeypatch, text, ingest, build
):
    config = read_pipeline(write(tmp_path, text))
    commands = []

    def run(arguments, **_):
        commands.append(list(arguments))
        return {"stage": arguments[0], "path": "DAY", "counts": {"queries": 0}, "ledger": {"total": 0, "lines": {}}}

    monkeypatch.setattr("clicktower.flows.chain.run_stage_command", run)
    monkeypatch.setattr("clicktower.flows.show.present.stage_result", lambda result: None)
    monkeypatch.setattr("clicktower.flows.show.present.headline", lambda result: "")
    from clicktower.flows import chain

    date = config.log.date or "2026-09-01"
    chain.build(config, chain.ingest(config, date), date)
    first, second = commands
    assert [word for word in ingest if word not in first] == []
    assert ("--date" in first) == bool(ingest)
    begin = second.index("--days")
    end = second.index("--documents")
    assert [word.replace(config.store, "STORE") for word in second[begin:end]] == build
