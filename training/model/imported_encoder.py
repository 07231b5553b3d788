"""Any transformer in the place of a tower: an ONNX graph and its tokeniser, without torch (model.import_stage).

Its folder has the two files of any model: model.safetensors, with the graph and tokenizer.json as two arrays of bytes,
and model.json, where `encoder` says how to use them.

Texts are normalised by the text contract first, so that equal titles stay equal. Those of as many tokens are encoded
together, so that nothing is padded; a text's vector depends on the others by rounding alone.

Shapes: N texts, T tokens.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any, Literal

import numpy as np

from clicktower.schemas.release import Similarity
from clicktower.schemas.text_contract import normalise, words
from clicktower.training.model.embedding import Empty, Side
from clicktower.training.model.kernel_towers import require_side, require_words
from clicktower.training.model.model_folder import SCHEMA_VERSION
from clicktower.training.towers.text_table import grouped_order

GRAPH, TOKENISER = "graph", "tokenizer"
BATCH_TOKENS = 4_096

Pooling = Literal["mean", "cls", "max", "none"]  # of the tokens' vectors; none: the graph's output is the text's vector


@dataclass(frozen=True, kw_only=True, slots=True)
class EncoderSettings:
    """How a graph makes a vector of a text."""

    name: str
    pooling: Pooling
    max_tokens: int  # further ones are not read
    output: str  # of the graph
    prompts: Mapping[str, str] = field(default_factory=dict)  # by side: what stands before a text


@dataclass(frozen=True, kw_only=True)
class ImportedEncoder:
    settings: EncoderSettings
    graph: bytes
    tokeniser: bytes
    dimensions: int
    num_parameters: int
    text_contract: Mapping[str, Any]
    similarity: Similarity = "cosine"
    word_share: float = 0.0
    lexical_share: float = 0.0

    @property
    def name(self) -> str:
        return self.settings.name

    def encode(self, texts: Sequence[str], side: Side, *, empty: Empty = "error") -> np.ndarray:
        """As `model.Model.encode`."""
        require_side(side)
        has_word = np.array([bool(words(text)) for text in texts], bool)
        if empty == "error":
            require_words(has_word)
        vectors = np.zeros((len(texts), self.dimensions), np.float32)
        rows = np.flatnonzero(has_word)
        tokens = self.tokens([texts[row] for row in rows.tolist()], side)

        def encode_some(index: np.ndarray) -> None:
            vectors[rows[index]] = self.encode_tokens(np.array([tokens[at] for at in index.tolist()], np.int64))

        batches = list(_batches(np.fromiter(map(len, tokens), np.int64, len(tokens))))
        if len(batches) == 1:  # not worth a pool
            encode_some(batches[0])
        elif batches:
            with ThreadPoolExecutor(min(len(batches), len(os.sched_getaffinity(0)))) as threads:
                list(threads.map(encode_some, batches))
        return vectors

    def tokens(self, texts: Sequence[str], side: Side) -> list[list[int]]:
        """The token ids of each text, with the side's prompt."""
        prompt = self.settings.prompts.get(side, "")
        return [text.ids for text in self._tokeniser.encode_batch([prompt + normalise(text) for text in texts])]

    def encode_tokens(self, tokens_NT: np.ndarray) -> np.ndarray:
        """The vectors of texts of as many tokens, float32 [texts, dimensions]."""
        tokens = {"input_ids": tokens_NT, "attention_mask": np.ones_like(tokens_NT)}
        inputs = {value.name: tokens.get(value.name, np.zeros_like(tokens_NT)) for value in self.session.get_inputs()}
        state = self.session.run([self.settings.output], inputs)[0]
        match self.settings.pooling:
            case "mean":
                state = state.mean(axis=1)
            case "cls":
                state = state[:, 0]
            case "max":
                state = state.max(axis=1)
        return np.asarray(state, np.float32)

    @cached_property
    def session(self) -> Any:
        """The runtime of the graph; many threads may use it."""
        import onnxruntime  # which no other model needs

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1  # batches share the cores, and a query being served takes one
        options.log_severity_level = 3
        return onnxruntime.InferenceSession(self.graph, options, providers=["CPUExecutionProvider"])

    @cached_property
    def _tokeniser(self) -> Any:
        from tokenizers import Tokenizer

        tokeniser = Tokenizer.from_buffer(self.tokeniser)
        tokeniser.no_padding()
        tokeniser.enable_truncation(self.settings.max_tokens)
        return tokeniser


def _batches(lengths: np.ndarray) -> Iterator[np.ndarray]:
    """The texts of each length, in batches of up to BATCH_TOKENS."""
    order = grouped_order(lengths)
    for group in np.split(order, np.flatnonzero(np.diff(lengths[order])) + 1) if len(order) else ():
        size = max(1, BATCH_TOKENS // max(1, int(lengths[group[0]])))
        yield from (group[start : start + size] for start in range(0, len(group), size))


def imported_encoder(description: Mapping[str, Any], weights: Mapping[str, np.ndarray]) -> ImportedEncoder:
    """The encoder in the two files of a model folder. Raises KeyError and TypeError for other content."""
    return ImportedEncoder(
        settings=EncoderSettings(**description["encoder"]),
        graph=weights[GRAPH].tobytes(),
        tokeniser=weights[TOKENISER].tobytes(),
        dimensions=description["dimensions"],
        num_parameters=description["parameters"],
        text_contract=description["text_contract"],
    )


def stored_encoder(encoder: ImportedEncoder) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """(an encoder's description, its arrays by name), as in its folder."""
    description = {
        "schema_version": SCHEMA_VERSION,
        "encoder": asdict(encoder.settings),
        "text_contract": dict(encoder.text_contract),
        "dimensions": encoder.dimensions,
        "parameters": encoder.num_parameters,
    }
    files = {GRAPH: encoder.graph, TOKENISER: encoder.tokeniser}
    return description, {name: np.frombuffer(content, np.uint8) for name, content in files.items()}
