import gzip
import json
from collections import Counter

import pyarrow as pa
import pyarrow.parquet
import pytest

from clicktower.beam_jobs.labelled.labelled_rows import LabelledColumns, LabelledConfig, LabelledMapping
from clicktower.beam_jobs.labelled.labelled_stage import build_labelled_shards
from clicktower.schemas import storage
from clicktower.schemas.errors import StageError, UsageError
from clicktower.schemas.labelled_shard import labelled_schema
from clicktower.schemas.ledger import Ledger
from clicktower.schemas.manifest import damaged_files
from clicktower.schemas.shard import TEXTS, WORDS, open_table
from clicktower.schemas.text_contract import trigram_ids, words

PAIRS = LabelledMapping(columns=LabelledColumns(first=1, second=2, label=3), header=False)
CONFIG = LabelledConfig(mapping=PAIRS, dev_share=0.3)


def _lines(path, lines) -> list[str]:
    path.write_text("".join("\t".join(map(str, line)) + "\n" for line in lines), encoding="utf-8")
    return [str(path)]


def _read(result) -> tuple[dict, list[tuple]]:
    """The catalogue, and (split, text, ..., label) of every row, sorted; every text is cut as the contract says."""
    catalogue = json.loads(storage.read_bytes(storage.join(result.data, "labelled.json")))
    rows = []
    for made in catalogue["shards"]:
        folder = storage.join(result.data, made["name"])
        of_words = open_table(f"{folder}/words.arrow", WORDS).to_pylist()
        texts = open_table(f"{folder}/texts.arrow", TEXTS).to_pylist()
        for text in texts:
            assert [of_words[w]["word"] for w in text["words"]] == words(text["text"])
        for word in of_words:
            assert word["trigrams"] == trigram_ids([word["word"]], catalogue["table_rows"])[1].tolist()
        schema = labelled_schema(catalogue["unit"], catalogue["label"])
        for row in open_table(f"{folder}/labelled.arrow", schema).to_pylist():
            label = catalogue["classes"][row["label"]] if catalogue["classes"] else row["label"]
            names = [texts[row[name]]["text"] for name in schema.names[:-1]]
            rows.append((made["split"], *names, label))
    return catalogue, sorted(rows)


@pytest.fixture(scope="module")
def chained(tmp_path_factory):
    """Stars and chains of sentences, some lines repeated, some in conflict, some broken: built in two shards and more.

    Sentence i of group g is "g i"; groups of 2 to 6 sentences are chained one to the next, and to the first.
    """
    folder = tmp_path_factory.mktemp("chained")
    lines = [
        (f"Group{g} s{i}", f"group{g}  S{j}", (g + i) % 3)
        for g in range(150)
        for i in range(g % 5 + 1)
        for j in {0, i + 1} - {i}
    ]
    broken = [("only two", "fields"), ("group1 s0", " ", 1), ("a", "b", "")]
    files = _lines(folder / "pairs.tsv", [*lines, *lines[:7], ("x1", "x2", 0), ("x1", "x2", 1), *broken])
    config = LabelledConfig(mapping=PAIRS, dev_share=0.3, rows_per_shard=100, max_unreadable_share=0.1)
    return lines, build_labelled_shards(files, store=str(folder / "store"), config=config), files, config


def test_every_line_has_one_fate_and_the_shards_hold_exactly_the_rest(chained):
    lines, result, _, _ = chained
    _, rows = _read(result)
    expected = {(a.lower(), " ".join(b.lower().split()), str(label)) for a, b, label in lines}
    assert len(expected) == len(lines)
    assert Counter(row[1:] for row in rows) == Counter(expected)
    fates = dict(result.manifest.outcome.ledger.lines)
    kept = fates.pop("labelled_train") + fates.pop("labelled_dev")
    assert kept == len(lines)
    # Seven lines written twice; x1-x2 under two labels; two fields; a text of a space; no label.
    assert fates == {
        "label_repeated": 7, "label_conflict": 2, "unreadable_width": 1, "sentence_empty": 1, "unreadable_label": 1,
    }  # fmt: skip
    rejects = json.loads(storage.read_bytes(storage.join(result.data, "rejects.json")))
    assert [reject["fate"] for reject in rejects] == ["unreadable_width", "unreadable_label"]


def test_no_sentence_is_on_both_sides_of_the_split(chained):
    _, result, _, _ = chained
    catalogue, rows = _read(result)
    sides = {split: {text for row in rows if row[0] == split for text in row[1:-1]} for split in ("train", "dev")}
    assert len(sides["train"]) > 300
    assert len(sides["dev"]) > 60
    assert not sides["train"] & sides["dev"]
    assert len([made for made in catalogue["shards"] if made["split"] == "train"]) > 1
    assert result.manifest.outcome.counts["components"] == 150
    assert not damaged_files(result.folder, result.manifest.files, hashes=True)


def test_order_and_cut_of_the_files_change_no_row(chained, tmp_path):
    _, result, (file,), config = chained
    with open(file, encoding="utf-8") as opened:
        lines = opened.readlines()[::-1]
    (tmp_path / "1.tsv").write_text("".join(lines[:100]), encoding="utf-8")
    with gzip.open(tmp_path / "2.tsv.gz", "wt", encoding="utf-8") as packed:
        packed.writelines(lines[100:])
    again = build_labelled_shards([str(tmp_path)], store=str(tmp_path / "store"), config=config)
    assert again.manifest.outcome.logical_digest == result.manifest.outcome.logical_digest
    assert again.manifest.outcome.ledger == result.manifest.outcome.ledger


def test_a_given_dev_file_takes_its_sentences_out_of_training(tmp_path):
    train = [("a", "b", 0), ("b", "c", 1), ("d", "e", 1), ("f", "g", 0), ("h", "i", 0)]
    dev = [("B", "x", 1), ("y", "f", 0), ("k", "l", 2)]
    files = {"files": _lines(tmp_path / "train.tsv", train), "dev": _lines(tmp_path / "dev.tsv", dev)}
    result = build_labelled_shards(**files, store=str(tmp_path), config=CONFIG)
    catalogue, rows = _read(result)
    # a-b and b-c share b with dev, f-g shares f. No training line is of class 2.
    assert rows == [("dev", "b", "x", "1"), ("dev", "y", "f", "0"), ("train", "d", "e", "1"), ("train", "h", "i", "0")]
    assert result.manifest.outcome.ledger == Ledger(
        total=8, lines={"sentence_in_dev": 3, "label_untrained": 1, "labelled_train": 2, "labelled_dev": 2}
    )
    assert (catalogue["split"]["by"], catalogue["classes"]) == ("dev file", ["0", "1"])
    assert build_labelled_shards(**files, store=str(tmp_path), config=CONFIG).reused


@pytest.mark.slow
def test_labelled_texts_with_values_come_from_json_lines_and_parquet_alike(tmp_path):
    texts = [(f"Text {i}", i % 7 / 2) for i in range(40)]
    lines = [json.dumps({"review": {"body": text}, "stars": stars}) for text, stars in texts]
    (tmp_path / "texts.jsonl").write_text("\n".join(lines))
    review = pa.StructArray.from_arrays([pa.array([text for text, _ in texts])], ["body"])
    table = pa.table({"review": review, "stars": pa.array([stars for _, stars in texts], pa.float32())})
    pyarrow.parquet.write_table(table, tmp_path / "texts.parquet")
    mapping = LabelledMapping(columns=LabelledColumns(text="review.body", label="stars"))
    built = [
        build_labelled_shards(
            [str(tmp_path / name)],
            store=str(tmp_path),
            config=LabelledConfig(mapping=mapping, format=form, label="value", dev_share=0.3),
        )
        for name, form in (("texts.jsonl", "jsonl"), ("texts.parquet", "parquet"))
    ]
    (catalogue, rows), (_, others) = map(_read, built)
    assert rows == others
    assert sorted(row[1:] for row in rows) == sorted((text.lower(), stars) for text, stars in texts)
    assert (catalogue["unit"], catalogue["label"], catalogue["classes"]) == ("texts", "value", [])
    assert {row[0] for row in rows} == {"train", "dev"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("lines", "config", "message"),
    [
        ([("a", "b", 1), ("c", "d", 1)], {"dev_share": 0}, "All 2 training lines have the same label, so"),
        ([("a", "b", 0), ("c", "d", 1)], {"dev_share": 1e-6}, "Give more lines"),
        ([("a", "b", 0), ("a", "b", 1)], {}, "and none is left"),
        ([("a", "b", "x"), ("c", "d", "2")], {"label": "value"}, r"1 have the fate 'a label is missing.*pairs\.tsv:0"),
        ([(f"a{i}", f"b{i}", i / 7) for i in range(1_500)], {}, "classes may be at most 1,000."),
    ],
)
def test_lines_that_nothing_can_be_learnt_from_are_refused(tmp_path, lines, config, message):
    with pytest.raises(StageError, match=message):
        build_labelled_shards(
            _lines(tmp_path / "pairs.tsv", lines),
            store=str(tmp_path / "store"),
            config=LabelledConfig(mapping=PAIRS, **config),
        )
    assert not list((tmp_path / "store").glob("build-labelled/*/*"))


def test_a_column_that_a_header_lacks_is_named_with_what_there_is(tmp_path):
    mapping = LabelledMapping(columns=LabelledColumns(first="premise", second="hypotesis", label="label"))
    files = _lines(tmp_path / "pairs.tsv", [("premise", "hypothesis", "label"), ("a", "b", 1)])
    with pytest.raises(UsageError, match="did you mean 'hypothesis'"):
        build_labelled_shards(files, store=str(tmp_path), config=LabelledConfig(mapping=mapping))
