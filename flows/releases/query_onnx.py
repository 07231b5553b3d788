"""For clients in other languages: the query tower as an ONNX graph, and golden texts that a client must reproduce.

query.onnx takes the trigrams of one text and gives its vector:

    trigram_ids      int64 [trigrams]   the ids of all words' trigrams, word after word (schemas.text_contract)
    word_of_trigram  int64 [trigrams]   the word each belongs to: 0 for those of the first, then 1, ...
    vector           float32 [dimensions], of length 1 if vectors are compared by cosine

The client splits a text into words and trigrams; the graph handles words beyond the recipe's max_words. A text without
a word has no vector and must not be passed.

golden.jsonl has one JSON object per line: the texts of the text contract (many scripts, signs, widths), titles of the
release, and one text of many words. None is a query that a person typed.

    {"text", "words": [...], "trigram_ids": [[ids of the first word], ...], "vector": [...]}

The graph uses only stock operators of opset 17, none unrolled over time: a loop exported from Python accepts any length
but is right for only one. The rows of W are already the gates' inputs, so the input weights of LSTM and RNN are a
selection; a cell without forget gate is an LSTM whose forget gate has the bias 100, and sigmoid(100) is 1 in float32.

Shapes: d cells, G columns of W, T words.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import sqrt
from pkgutil import resolve_name
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from clicktower.schemas.errors import StageError
from clicktower.schemas.text_contract import golden_cases
from clicktower.schemas.text_contract import words as words_of
from clicktower.training.model.embedding import AnyEncoder, members_of, search_vectors
from clicktower.training.model.model import Model
from clicktower.training.model.recipe import Recipe, tower_name
from clicktower.training.towers.tower_settings import LSTM, GatedRecurrent

OPSET = 17
_LARGEST_BYTES = 2_000_000_000  # of a protobuf message
_OPEN_FORGET_GATE = 100.0

NUM_TITLES = 50
NUM_LONG_WORDS = 60
TOLERANCE = 1e-5  # per component of a vector of length about 1, between two float32 computations


class CannotExport(StageError):
    """The tower cannot be exported as an ONNX graph; `problem` says why."""

    def __init__(self, problem: str) -> None:
        super().__init__(f"The query tower cannot be exported to ONNX: {problem}", "Use the release's model folder.")


def query_onnx(model: AnyEncoder) -> bytes:
    """The serialised graph. Raises CannotExport."""
    members = members_of(model)
    if any(not isinstance(member, Model) for member in members):
        raise CannotExport("an imported encoder reads tokens of its own, and the graph knows only letter trigrams.")
    num_bytes = sum(4 * member.word_rows.num_rows * member.recipe.columns for member in members)
    if num_bytes > _LARGEST_BYTES:
        raise CannotExport(f"its trigram table has {num_bytes:,} bytes, and an ONNX file holds {_LARGEST_BYTES:,}.")
    if any(member.word_rows.words for member in members):
        raise CannotExport("some words have vectors of their own, and the graph knows only letter trigrams.")
    graph = Graph()
    vectors = [_tower(graph, member) for member in members]
    if model.similarity == "cosine":
        vectors = [_unit(graph, vector) for vector in vectors]
    if weights := getattr(model, "text_weights", None):  # of an ensemble
        scaled = zip(vectors, weights, strict=True)
        vectors = [graph.add("Mul", vector, graph.constant(np.float32(sqrt(weight)))) for vector, weight in scaled]
        vectors = [graph.add("Concat", *vectors, axis=0)]
    graph.add("Identity", vectors[0], output="vector")
    return graph.model(model.dimensions).SerializeToString()


class Graph:
    """A graph under construction: nodes and constants."""

    def __init__(self) -> None:
        self._nodes: list[onnx.NodeProto] = []
        self._constants: list[onnx.TensorProto] = []

    def constant(self, value: Any) -> str:
        name = f"constant_{len(self._constants)}"
        self._constants.append(numpy_helper.from_array(np.ascontiguousarray(value), name))
        return name

    def ints(self, *values: int) -> str:
        return self.constant(np.array(values, np.int64))

    def add(self, operator: str, *inputs: str, output: str = "", outputs: int = 1, at: int = 0, **attributes) -> str:
        """Add a node; returns the name of output number `at` of `outputs`."""
        names = [output or f"{operator.lower()}_{len(self._nodes)}_{i}" for i in range(outputs)]
        self._nodes.append(helper.make_node(operator, inputs, names, **attributes))
        return names[at]

    def model(self, dimensions: int) -> onnx.ModelProto:
        def ids(name: str) -> onnx.ValueInfoProto:
            return helper.make_tensor_value_info(name, TensorProto.INT64, ["trigrams"])

        graph = helper.make_graph(
            self._nodes,
            "query_tower",
            [ids("trigram_ids"), ids("word_of_trigram")],
            [helper.make_tensor_value_info("vector", TensorProto.FLOAT, [dimensions])],
            self._constants,
        )
        proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], producer_name="clicktower")
        proto.ir_version = 8  # from the time of opset 17, so that runtimes of then and later read it
        return proto


def _tower(graph: Graph, model: Model) -> str:
    """The output of a model's embedding of the text, [dimensions], not normalised."""
    parts = model.towers[tower_name(model.recipe, "query")]
    part = {name: parts[name].astype(np.float32) for name, _ in model.recipe.tower_parts}
    words = _word_inputs(graph, model.recipe, parts["W"].astype(np.float32))
    tower = model.recipe.tower
    if isinstance(tower, LSTM):
        return lstm(graph, tower, words, part, "forward")
    output: str = resolve_name("clicktower.flows.releases.tower_graphs:tower_graph")(graph, tower, words, part)
    return output


def _word_inputs(graph: Graph, recipe: Recipe, table: np.ndarray) -> str:
    """W l of each word, [T, G]: the sum of its trigrams' rows."""
    rows = graph.add("Gather", graph.constant(table), "trigram_ids", axis=0)
    word = "word_of_trigram"
    if recipe.max_words:
        last = graph.ints(recipe.max_words - 1)
        if recipe.overflow == "truncate":
            is_read = graph.add("Cast", graph.add("LessOrEqual", word, last), to=TensorProto.FLOAT)
            rows = graph.add("Mul", rows, graph.add("Unsqueeze", is_read, graph.ints(1)))
        word = graph.add("Min", word, last)
    num_words = graph.add("Add", graph.add("ReduceMax", word, axes=[0], keepdims=1), graph.ints(1))
    shape = graph.add("Concat", num_words, graph.ints(table.shape[1]), axis=0)
    nothing = graph.add("Expand", graph.constant(np.float32(0)), shape)
    return graph.add("ScatterND", nothing, graph.add("Unsqueeze", word, graph.ints(1)), rows, reduction="add")


def lstm(
    graph: Graph,
    tower: GatedRecurrent,
    words: str,
    part: Mapping[str, np.ndarray],
    direction: str,
    *,
    every: bool = False,
) -> str:
    """Add an LSTM; our gates (output, forget, input, candidate) become (input, output, forget, candidate) in ONNX."""
    d = tower.cells
    ours = ["o", "f", "i", "c"] if tower.forget_gate else ["o", "i", "c"]
    column = {gate: slice(at * d, (at + 1) * d) for at, gate in enumerate(ours)}

    def in_order(values_of: Mapping[str, np.ndarray], gates: str = "iofc", missing: Any = 0.0) -> np.ndarray:
        like = next(iter(values_of.values()))
        return np.concatenate([values_of.get(gate, np.full_like(like, missing)) for gate in gates])

    eye = np.eye(len(ours) * d, dtype=np.float32)
    inputs = in_order({gate: eye[column[gate]] for gate in ours})
    recurrent = in_order({gate: part["W_rec"][:, column[gate]].T for gate in ours})
    bias = in_order({gate: part["b"][column[gate]] for gate in ours}, missing=_OPEN_FORGET_GATE)
    weights = [inputs[None], recurrent[None], np.concatenate([bias, np.zeros_like(bias)])[None]]
    names = [graph.constant(value) for value in weights]
    if tower.peepholes:
        peep = dict(zip(ours[:-1], part["W_peep"], strict=True))
        names += ["", "", "", graph.constant(in_order(peep, "iof")[None])]  # no lengths, no initial state
    return states(graph, "LSTM", words, names, d, direction, every=every, outputs=3)


def states(
    graph: Graph,
    operator: str,
    words: str,
    weights: list[str],
    d: int,
    direction: str,
    *,
    outputs: int,
    every: bool = False,
) -> str:
    """y of the last word read, [d], or of every word in the text's order, [T, d].

    Of both operators Y_h is the second output, [directions, texts, d], and Y the first, [T, directions, texts, d].
    """
    of_one_text = graph.add("Unsqueeze", words, graph.ints(1))
    at = 0 if every else 1
    state = graph.add(operator, of_one_text, *weights, outputs=outputs, at=at, hidden_size=d, direction=direction)
    return graph.add("Reshape", state, graph.ints(-1, d) if every else graph.ints(d))


def _unit(graph: Graph, vector: str) -> str:
    """The vector divided by its length; a zero vector stays zero."""
    length = graph.add("ReduceL2", vector, axes=[0], keepdims=1)
    return graph.add("Div", vector, graph.add("Max", length, graph.constant(np.array([1e-30], np.float32))))


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Golden:
    """Texts with every intermediate result that a client computes, and their vectors, float32 [texts, dimensions]."""

    texts: Sequence[str]
    words: Sequence[Sequence[str]]
    trigram_ids: Sequence[Sequence[np.ndarray]]
    vectors_ND: np.ndarray

    def __len__(self) -> int:
        return len(self.texts)

    def lines(self) -> Iterator[str]:
        """golden.jsonl: nine digits identify a float32."""
        for text, of_text, ids, vector in zip(self.texts, self.words, self.trigram_ids, self.vectors_ND, strict=True):
            yield json.dumps(
                {
                    "text": text,
                    "words": list(of_text),
                    "trigram_ids": [of_word.tolist() for of_word in ids],
                    "vector": [float(f"{value:.9g}") for value in vector.tolist()],
                },
                ensure_ascii=False,
                allow_nan=False,
            ) + "\n"  # fmt: skip


def golden(model: AnyEncoder, titles: Sequence[str]) -> Golden:
    """Texts of the contract and some titles with at least one word, as the query tower sees them."""
    contract = [text for text, of_text, _ in golden_cases() if of_text]
    many = " ".join(word for title in titles for word in title.split())
    texts = list(dict.fromkeys([*contract, *titles, " ".join(many.split()[:NUM_LONG_WORDS])]))
    members = members_of(model)
    trained = [member for member in members if isinstance(member, Model)]  # all share one contract of trigrams
    rows, cut = trained[0].word_rows if trained else None, [words_of(text) for text in texts]
    return Golden(
        texts=texts,
        words=cut,
        trigram_ids=[np.split(ids.values, ids.offsets[1:-1]) for ids in map(rows.of, cut)] if rows else [()] * len(cut),
        vectors_ND=search_vectors(model, texts, "query"),
    )


def onnx_difference(graph: bytes, expected: Golden) -> float:
    """The largest component difference between an ONNX query tower's vectors and the golden ones."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])
    worst = 0.0
    for ids, vector in zip(expected.trigram_ids, expected.vectors_ND, strict=True):
        output = session.run(["vector"], onnx_inputs(ids))[0]
        worst = max(worst, float(np.abs(output - vector).max()))
    return worst if np.isfinite(worst) else float("inf")


def onnx_inputs(trigram_ids_of_words: Sequence[np.ndarray]) -> dict[str, Any]:
    """The inputs of the graph for one text."""
    lengths = [len(ids) for ids in trigram_ids_of_words]
    return {
        "trigram_ids": np.concatenate(trigram_ids_of_words).astype(np.int64),
        "word_of_trigram": np.repeat(np.arange(len(lengths), dtype=np.int64), lengths),
    }
