"""Importing an encoder: the folder of a sentence-transformers model, or any ONNX graph with its tokeniser.

    import_encoder("all-MiniLM-L6-v2", store="store")

    FOLDER/tokenizer.json                       the tokeniser in its fast form
    FOLDER/onnx/model.onnx or model.onnx        token ids -> `sentence_embedding`, or the tokens' vectors
    FOLDER/modules.json, 1_Pooling/config.json, sentence_bert_config.json, config_sentence_transformers.json
                                                pooling, limit and prompts; without them the tokens' mean

Writes a model folder to STORE/import-encoder/DIGEST (model.imported_encoder), which evaluate, compare, combine, publish
and search read like that of a training.
"""

import hashlib
import os
from collections.abc import Mapping
from dataclasses import asdict, replace
from math import prod
from pathlib import Path
from typing import Any, cast, get_args

import numpy as np

from clicktower.schemas.errors import UsageError
from clicktower.schemas.manifest import Outcome, from_bytes
from clicktower.schemas.stage import Stage, StageResult, run_stage
from clicktower.schemas.text_contract import CONTRACT_VERSION, UNICODE_VERSION
from clicktower.training.model.embedding import Side
from clicktower.training.model.imported_encoder import (
    GRAPH,
    TOKENISER,
    EncoderSettings,
    ImportedEncoder,
    Pooling,
    stored_encoder,
)
from clicktower.training.model.model_folder import write_files

IMPORT_ENCODER = Stage("import-encoder", version=1)
GRAPH_FILES = "onnx/model.onnx", "model.onnx"
GRAPH_INPUTS = {"input_ids", "attention_mask", "token_type_ids"}
TEXT_OUTPUT = "sentence_embedding"
MODULES = {"Transformer", "Pooling", "Normalize"}  # of sentence-transformers, which normalises what cosines ignore
LONGEST = 8_192  # tokens
_PROBES = "angle bracket", "2 in. x 4 ft. plank of pressure-treated pine"
_EXPORT = "Export the model again: `optimum-cli export onnx --model NAME --task feature-extraction FOLDER`."


def import_encoder(folder: str, *, store: str, file: str | None = None) -> StageResult:
    """The encoder in a folder of this machine. `file`: its graph, if it has another name than the above.

    Raises UsageError for a folder without graph or tokeniser, a graph that does not run, a model that does more than
    its graph, and files outside the folder: it may be a stranger's.
    """
    place = Path(folder)
    graph, num_parameters = _read_graph(place, [file] if file else GRAPH_FILES)
    tokeniser = _inside(place, "tokenizer.json")
    if not tokeniser.is_file():
        raise UsageError(
            f"There is no tokenizer.json in {folder}.",
            "Save it there: `AutoTokenizer.from_pretrained(NAME).save_pretrained(FOLDER)`.",
        )
    content = {GRAPH: graph, TOKENISER: tokeniser.read_bytes()}
    hashes = {name: hashlib.sha256(file).hexdigest() for name, file in content.items()}
    contract = {"trigrams": CONTRACT_VERSION, "unicode": UNICODE_VERSION, TOKENISER: hashes[TOKENISER]}
    encoder = _probe(
        ImportedEncoder(
            settings=_read_settings(place), graph=graph, tokeniser=content[TOKENISER], dimensions=0,
            num_parameters=num_parameters, text_contract=contract,
        )
    )  # fmt: skip
    settings = asdict(encoder.settings)

    def produce(attempt: str) -> Outcome:
        write_files(attempt, *stored_encoder(encoder))
        return Outcome(
            counts={"parameters": num_parameters},
            metrics={**settings, "dimensions": encoder.dimensions, "train_seconds": None},  # it was trained elsewhere
        )

    return run_stage(store, IMPORT_ENCODER.request(settings, hashes), produce)


def _read_graph(place: Path, names: list[str] | tuple[str, ...]) -> tuple[bytes, int]:
    """(the graph with all of its weights, the number of these)."""
    import onnx
    from google.protobuf.message import DecodeError, EncodeError

    path = next((path for name in names if (path := _inside(place, name)).is_file()), None)
    if path is None:
        raise UsageError(
            f"There is no ONNX graph in {place}: no {' and no '.join(names)}.",
            "Export one (`optimum-cli export onnx --model NAME FOLDER`), or name it with --file.",
        )
    try:
        graph = onnx.load(path)
        return graph.SerializeToString(), sum(prod(array.dims) for array in graph.graph.initializer)
    except (OSError, ValueError, DecodeError, EncodeError, onnx.checker.ValidationError) as error:
        raise UsageError(f"{path} is no ONNX graph of up to 2 GB ({type(error).__name__}).", _EXPORT) from None


def _read_settings(place: Path) -> EncoderSettings:
    """What the files beside the graph say."""
    try:
        paths = {module["type"].rpartition(".")[2]: module["path"] for module in _json(place, "modules.json", "[]")}
        for path in paths.values():
            _inside(place, path)
        pooling = _json(place, os.path.join(paths.get("Pooling", "1_Pooling"), "config.json"))
        about = _json(place, "config_sentence_transformers.json")
        limits = (
            _json(place, "sentence_bert_config.json").get("max_seq_length"),
            _json(place, "tokenizer_config.json").get("model_max_length"),
            _json(place, "config.json").get("max_position_embeddings"),
        )
        prompts = {side: text for side in get_args(Side) if (text := (about.get("prompts") or {}).get(side))}
        mode = _pooling_mode(pooling)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise UsageError(
            f"A file of settings in {place} cannot be read ({type(error).__name__}).", "Copy the model's folder again."
        ) from None
    more = sorted(paths.keys() - MODULES)
    if mode not in get_args(Pooling):
        more.append(f"pooling by {mode}")
    if prompts and pooling.get("include_prompt") is False:
        more.append("pooling without its prompt")
    if about.get("similarity_fn_name") not in (None, "cosine") and "Normalize" not in paths:
        more.append(f"comparison by {about['similarity_fn_name']}")
    if more:
        raise UsageError(
            f"The model in {place} does more than its graph: {', '.join(more)}.",
            f"Export it as one graph with the output {TEXT_OUTPUT}, and leave modules.json out of the folder.",
        )
    max_tokens = next((int(limit) for limit in limits if limit and limit <= LONGEST), LONGEST)
    return EncoderSettings(
        name=place.resolve().name, pooling=cast(Pooling, mode), max_tokens=max_tokens, output="", prompts=prompts
    )


def _json(place: Path, name: str, absent: str = "{}") -> Any:
    path = _inside(place, name)
    return from_bytes(path.read_bytes() if path.is_file() else absent)


def _inside(place: Path, name: str) -> Path:
    """A file of the folder. Raises UsageError if it is elsewhere, by its name or by a link.

    The snapshots of Hugging Face's cache are links to the blobs beside them, which is their own folder too.
    """
    root, path = place.resolve(), place / name
    blobs = root.parent.parent / "blobs"
    allowed = [root, blobs] if root.parent.name == "snapshots" else [root]
    if not any(path.resolve().is_relative_to(folder) for folder in allowed):
        raise UsageError(
            f"{name} of the model in {place} is outside that folder.",
            "Copy the whole model into one folder, without links; one of a stranger may name files of yours.",
        )
    return path


def _pooling_mode(config: Mapping[str, Any]) -> str:
    """Of a Pooling module's config, of which sentence-transformers has written two forms; mean without one."""
    if "pooling_mode" in config:
        return str(config["pooling_mode"])
    modes = [name.split("_")[2] for name, is_used in config.items() if name.startswith("pooling_mode_") and is_used]
    return " and ".join(modes) or "mean"


def _probe(encoder: ImportedEncoder) -> ImportedEncoder:
    """The encoder with its output and dimensions, once its graph has encoded texts of several lengths."""
    try:
        inputs = {value.name for value in encoder.session.get_inputs()}
        ranks = {value.name: len(value.shape) for value in encoder.session.get_outputs()}
        of_text = [name for name, rank in ranks.items() if rank == 2 and name == TEXT_OUTPUT]
        output = next(iter([*of_text, *(name for name, rank in ranks.items() if rank == 3)]), None)
        if inputs - GRAPH_INPUTS or output is None:
            raise UsageError(
                f"The graph makes {', '.join(ranks)} of {', '.join(sorted(inputs))}: it does not make vectors of"
                " tokens.",
                _EXPORT,
            )
        pooling = "none" if of_text else encoder.settings.pooling
        encoder = replace(encoder, settings=replace(encoder.settings, output=output, pooling=pooling))
        vectors = [encoder.encode_tokens(np.array([ids, ids])) for ids in encoder.tokens(_PROBES, "query")]
    except UsageError:
        raise
    except Exception as error:  # of the runtime and of the tokeniser, which have no common class
        raise UsageError(f"The model does not run: {' '.join(str(error).split())[:200]}", _EXPORT) from None
    if not all(np.isfinite(vector).all() for vector in vectors):
        raise UsageError("The model's vectors are not finite.", _EXPORT)
    return replace(encoder, dimensions=vectors[0].shape[1])
