"""A model as a SentenceTransformer, for evaluators, benchmarks and vector databases that take one.

    from clicktower.sentence_transformer import sentence_transformer

    model = sentence_transformer("release")
    model.encode_query(["angle bracket"]) @ model.encode_document(["Angle bracket, 4 in."]).T
    model.save_pretrained("folder")
    SentenceTransformer("folder", trust_remote_code=True)       # where clicktower is installed: it imports this module

Queries and titles have a tower each: `encode_query` and `encode_document` choose, and `encode` reads queries. It
encodes on the CPU and is not trained further.
"""

from collections.abc import Sequence
from inspect import signature
from typing import Any

import torch
from sentence_transformers import SentenceTransformer, SimilarityFunction
from sentence_transformers.base.modules import InputModule

from clicktower import Model
from clicktower.flows.releases.encode_lines import encode
from clicktower.schemas import storage
from clicktower.training.model.embedding import Side
from clicktower.training.model.model import load_encoder
from clicktower.training.model.model_folder import DESCRIPTION, WEIGHTS


class Towers(InputModule):
    """Both towers as the one module of a SentenceTransformer. `folder`: the model's two files."""

    def __init__(self, folder: str) -> None:
        super().__init__()
        self._folder = folder
        self._encoder = load_encoder(folder)

    def preprocess(self, inputs: Sequence[Any], prompt: str | None = None, **options: Any) -> dict[str, torch.Tensor]:
        """The vectors of texts by the tower of `task`, float32 [texts, dimensions]; zero for a text without a word."""
        side: Side = "document" if options.get("task") == "document" else "query"
        vectors, _ = encode(self._encoder, [(prompt or "") + text for text in inputs], side)
        return {"sentence_embedding": torch.from_numpy(vectors)}

    def forward(self, features: dict[str, torch.Tensor], **_: Any) -> dict[str, torch.Tensor]:
        return features

    def get_embedding_dimension(self) -> int:
        return self._encoder.dimensions

    def save(self, output_path: str, *_: Any, **options: Any) -> None:
        for name in (WEIGHTS, DESCRIPTION):
            storage.write_atomic(f"{output_path}/{name}", storage.read_bytes(storage.join(self._folder, name)))

    @classmethod
    def load(cls, model_name_or_path: str, *args: Any, **options: Any) -> "Towers":
        names = signature(cls.load_dir_path).parameters.keys() & options.keys()
        folder = cls.load_dir_path(model_name_or_path, *args, **{name: options[name] for name in names})
        return cls(folder or model_name_or_path)


def sentence_transformer(path: str) -> SentenceTransformer:
    """A release or a model (`clicktower.load`) as a SentenceTransformer. Raises UsageError and StageError."""
    model = Model(path)
    similarity = SimilarityFunction(model.similarity)
    return SentenceTransformer(modules=[Towers(model.folder)], similarity_fn_name=similarity, device="cpu")
