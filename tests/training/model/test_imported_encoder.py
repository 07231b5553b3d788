import json
import shutil
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from clicktower.flows.cli import run
from clicktower.schemas.errors import StageError, UsageError
from clicktower.schemas.stage import open_result
from clicktower.training.model.embedding import unit
from clicktower.training.model.import_stage import import_encoder
from clicktower.training.model.imported_encoder import _batches
from clicktower.training.model.model import load_encoder, load_model
from tests.rounding import assert_equal_but_for_rounding
from tests.tiny_transformer import MAX_TOKENS, change_json, write_graph, write_transformer

TEXTS = ["angle bracket", "Steel ANGLE brackets 4.5", "東京の金槌", "a", "nine words of this text are not known " * 5]
PROMPTS = {"query": "angle ", "document": "steel: "}


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return write_transformer(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture
def copied(folder, tmp_path) -> Path:
    return Path(shutil.copytree(folder, tmp_path / "tiny"))


def imported(folder: Path, store: Path, **options):
    return load_encoder(open_result(import_encoder(str(folder), store=str(store), **options).folder).data)


def by_sentence_transformers(folder: Path, prompt: str | None = None) -> np.ndarray:
    from sentence_transformers import SentenceTransformer

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = SentenceTransformer(str(folder), device="cpu")
        return model.encode(TEXTS, prompt_name=prompt, convert_to_numpy=True)


@pytest.mark.slow
@pytest.mark.parametrize("pooling", ["mean", "cls", "max"])
def test_vectors_are_those_of_sentence_transformers(tmp_path, pooling):
    folder = write_transformer(tmp_path / "model", pooling=pooling, prompts=PROMPTS)
    encoder = imported(folder, tmp_path)
    for side in PROMPTS:
        expected = by_sentence_transformers(folder, side)
        assert_equal_but_for_rounding(unit(encoder.encode(TEXTS, side)), expected)
        assert_equal_but_for_rounding(np.concatenate([unit(encoder.encode([text], side)) for text in TEXTS]), expected)
    assert not np.allclose(encoder.encode(TEXTS, "query"), encoder.encode(TEXTS, "document")), "they have prompts"


@pytest.mark.slow
def test_the_older_form_of_its_settings_is_read_too(copied, tmp_path):
    before = imported(copied, tmp_path)
    (copied / "1_Pooling" / "config.json").write_text(
        json.dumps({"word_embedding_dimension": 16, "pooling_mode_cls_token": False, "pooling_mode_mean_tokens": True})
    )
    change_json(copied / "sentence_bert_config.json", max_seq_length=MAX_TOKENS)
    (copied / "config_sentence_transformers.json").unlink()
    assert imported(copied, tmp_path).settings == before.settings


@pytest.mark.slow
def test_a_graph_and_its_tokeniser_are_enough(copied, tmp_path):
    expected = imported(copied, tmp_path).encode(TEXTS, "query")
    alone = tmp_path / "alone"
    alone.mkdir()
    for name in ("onnx/model.onnx", "tokenizer.json", "config.json"):
        shutil.copy(copied / name, alone)
    encoder = imported(alone, tmp_path)
    assert (encoder.settings.max_tokens, encoder.settings.pooling) == (64, "mean")  # the positions of config.json
    assert_equal_but_for_rounding(encoder.encode(TEXTS[:4], "query"), expected[:4])


@pytest.mark.slow
def test_a_graph_that_makes_the_vector_of_a_text_itself(copied, tmp_path):
    from transformers import BertModel

    bert = BertModel.from_pretrained(f"{copied}", attn_implementation="eager").eval()
    write_graph(bert, copied / "onnx" / "whole.onnx", pooled=True)
    encoder = imported(copied, tmp_path, file="onnx/whole.onnx")
    assert encoder.settings.pooling == "none"
    change_json(copied / "1_Pooling" / "config.json", pooling_mode="cls")
    assert_equal_but_for_rounding(unit(encoder.encode(TEXTS, "query")), by_sentence_transformers(copied))


@pytest.mark.slow
def test_weights_in_a_file_beside_the_graph_come_with_it(copied, tmp_path):
    expected = imported(copied, tmp_path).encode(TEXTS, "query")
    path = copied / "onnx" / "model.onnx"
    onnx.save(onnx.load(path), path, save_as_external_data=True, location="weights.bin", size_threshold=0)
    assert np.array_equal(imported(copied, tmp_path).encode(TEXTS, "query"), expected)


def test_each_text_is_in_one_batch_of_texts_of_its_length():
    lengths = np.random.default_rng(1).integers(1, 3000, 500)
    batches = list(_batches(lengths))
    assert sorted(np.concatenate(batches).tolist()) == list(range(500))
    assert all(len(set(lengths[batch])) == 1 for batch in batches)
    assert all(len(batch) == 1 or lengths[batch].sum() <= 4_096 for batch in batches)
    assert list(_batches(np.zeros(0, np.int64))) == []


@pytest.mark.slow
def test_a_text_without_a_word_is_an_error_unless_zero_is_asked_for(folder, tmp_path):
    encoder = imported(folder, tmp_path)
    with pytest.raises(UsageError, match=r"1 of 2 texts have no word \(the first is number 2\)"):
        encoder.encode(["angle", " "], "query")
    vectors = encoder.encode(["angle", " "], "query", empty="zero")
    assert vectors[0].any()
    assert not vectors[1].any()
    assert encoder.encode([], "query").shape == (0, 16)


@pytest.mark.slow
def test_it_needs_no_torch_and_is_reused(folder, tmp_path):
    code = (
        "import sys; from clicktower.training.model.import_stage import import_encoder; "
        "from clicktower.training.model.model import load_encoder; "
        f"made = import_encoder({str(folder)!r}, store={str(tmp_path)!r}); "
        "load_encoder(made.data).encode(['angle'], 'query'); assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
    again = import_encoder(str(folder), store=str(tmp_path))
    assert again.reused
    assert load_encoder(again.data).num_parameters == again.manifest.outcome.counts["parameters"] > 5_000


@pytest.mark.slow
def test_what_needs_a_trained_model_says_so(folder, tmp_path):
    made = import_encoder(str(folder), store=str(tmp_path))
    with pytest.raises(StageError, match="is an imported encoder"):
        load_model(made.data)


@pytest.mark.slow
def test_a_damaged_folder_is_refused(folder, tmp_path):
    made = import_encoder(str(folder), store=str(tmp_path))
    change_json(Path(made.data, "model.json"), encoder={"name": "tiny"})
    with pytest.raises(StageError, match="has a damaged file"):
        load_encoder(made.data)


def remove(name: str):
    return lambda folder: (folder / name).unlink()


def add_module(folder: Path) -> None:
    modules = json.loads((folder / "modules.json").read_text())
    dense = {"idx": 3, "name": "3", "path": "3_Dense", "type": "sentence_transformers.models.Dense"}
    (folder / "modules.json").write_text(json.dumps([*modules, dense]))


def add_input(folder: Path) -> None:
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", "t", 3]) for name in ("pixels", "state")]
    node = helper.make_node("Identity", ["pixels"], ["state"])
    graph = helper.make_graph([node], "other", values[:1], values[1:])
    onnx.save(
        helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 17)]),
        folder / "onnx" / "model.onnx",
    )


def fix_length(folder: Path) -> None:
    from transformers import BertModel

    bert = BertModel.from_pretrained(f"{folder}", attn_implementation="eager").eval()
    write_graph(bert, folder / "onnx" / "model.onnx", any_length=False)


def write(name: str, content: str):
    return lambda folder: (folder / name).write_text(content)


def leave_out_normalise(folder: Path) -> None:
    modules = json.loads((folder / "modules.json").read_text())
    (folder / "modules.json").write_text(json.dumps(modules[:2]))
    change_json(folder / "config_sentence_transformers.json", similarity_fn_name="dot")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (remove("onnx/model.onnx"), r"There is no ONNX graph in .*: no onnx/model.onnx and no model.onnx\."),
        (remove("tokenizer.json"), "There is no tokenizer.json in"),
        (write("onnx/model.onnx", "not a graph"), r"model.onnx is no ONNX graph of up to 2 GB \(DecodeError\)"),
        (write("tokenizer.json", "{}"), "The model does not run: "),
        (write("modules.json", '{"a": 1}'), r"A file of settings in .* cannot be read \(TypeError\)"),
        (write("config.json", "{"), r"A file of settings in .* cannot be read \(JSONDecodeError\)"),
        (write("1_Pooling/config.json", '{"pooling_mode": "lasttoken"}'), "more than its graph: pooling by lasttoken"),
        (add_module, "does more than its graph: Dense"),
        (leave_out_normalise, "does more than its graph: comparison by dot"),
        (add_input, "The graph makes state of pixels: it does not make vectors of tokens"),
        (fix_length, "The model does not run: .*"),
    ],
)
def test_what_cannot_be_imported_is_refused(copied, tmp_path, damage, message):
    damage(copied)
    with pytest.raises(UsageError, match=message) as refused:
        import_encoder(str(copied), store=str(tmp_path / "store"))
    assert refused.value.fix
    assert not list(tmp_path.glob("store/import-encoder/*/manifest.json"))


def point_pooling_to(path: str):
    def change(folder: Path) -> None:
        (folder.parent / "elsewhere").mkdir()
        (folder.parent / "elsewhere" / "config.json").write_text('{"pooling_mode": "cls"}')
        modules = json.loads((folder / "modules.json").read_text())
        modules[1]["path"] = path.replace("PLACE", str(folder.parent))
        (folder / "modules.json").write_text(json.dumps(modules))

    return change


def link(name: str):
    def change(folder: Path) -> None:
        (folder / name).rename(folder.parent / "target")
        (folder / name).symlink_to(folder.parent / "target")

    return change


@pytest.mark.parametrize(
    ("change", "name"),
    [
        (point_pooling_to("../elsewhere"), "../elsewhere"),
        (point_pooling_to("PLACE/elsewhere"), "elsewhere"),
        (link("1_Pooling"), "1_Pooling"),
        (link("1_Pooling/config.json"), "config.json"),
        (link("tokenizer.json"), "tokenizer.json"),
        (link("modules.json"), "modules.json"),
        (link("onnx"), "model.onnx"),
        (link("onnx/model.onnx"), "model.onnx"),
    ],
)
def test_a_strangers_model_names_no_file_outside_its_folder(copied, tmp_path, change, name):
    change(copied)
    with pytest.raises(UsageError, match=rf"{name} of the model in .* is outside that folder") as refused:
        import_encoder(str(copied), store=str(tmp_path / "store"))
    assert refused.value.fix
    assert not (tmp_path / "store").exists()


@pytest.mark.slow
def test_a_snapshot_of_a_hubs_cache_is_links_to_its_own_blobs(folder, tmp_path):
    cache = tmp_path / "models--tiny"
    snapshot = Path(shutil.copytree(folder, cache / "snapshots" / "abc"))
    (cache / "blobs").mkdir()
    for number, path in enumerate(sorted(path for path in snapshot.rglob("*") if path.is_file())):
        path.rename(cache / "blobs" / f"{number}")
        path.symlink_to(cache / "blobs" / f"{number}")
    plain, cached = (imported(place, tmp_path / "store").encode(TEXTS, "query") for place in (folder, snapshot))
    assert np.array_equal(plain, cached)


@pytest.mark.slow
def test_by_the_command(folder, tmp_path, capsys):
    assert run(["import-encoder", str(folder), "--into", str(tmp_path), "--json"]) == 0
    value = json.loads(capsys.readouterr().out)
    assert (value["metrics"]["name"], value["metrics"]["dimensions"]) == ("tiny", 16)
    assert load_encoder(value["data"]).name == "tiny"
