"""A transformer of two layers with random weights, in the files that sentence-transformers and ONNX exporters write."""

import json
import os
import warnings
from pathlib import Path

import torch

os.environ["HF_HUB_OFFLINE"] = "1"

TOKENS = [
    "[PAD]",
    "[UNK]",
    "[CLS]",
    "[SEP]",
    *"abcdefghijklmnopqrstuvwxyz0123456789.:",
    "angle",
    "bracket",
    "##s",
    "steel",
]
INPUTS = ("input_ids", "attention_mask", "token_type_ids")
MAX_TOKENS = 24


def write_transformer(folder: Path, *, pooling: str = "mean", prompts: dict[str, str] | None = None) -> Path:
    """FOLDER with modules.json and all that it names, tokenizer.json and onnx/model.onnx."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer import modules
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
    from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

    torch.manual_seed(1)
    tokeniser = Tokenizer(models.WordPiece({token: at for at, token in enumerate(TOKENS)}, unk_token="[UNK]"))
    tokeniser.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokeniser.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokeniser.post_processor = processors.TemplateProcessing("[CLS] $A [SEP]", None, [("[CLS]", 2), ("[SEP]", 3)])
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokeniser, pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]", sep_token="[SEP]",
        model_max_length=MAX_TOKENS,
    )  # fmt: skip
    config = BertConfig(
        vocab_size=len(TOKENS), hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32,
        max_position_embeddings=64, initializer_range=0.5, attn_implementation="eager",
    )  # fmt: skip
    bert = BertModel(config).eval()
    source = folder.parent / f"{folder.name}-source"
    bert.save_pretrained(source)
    fast.save_pretrained(source)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        transformer = modules.Transformer(str(source))
        transformer.auto_model.config._attn_implementation = "eager"
        SentenceTransformer(
            modules=[transformer, modules.Pooling(16, pooling_mode=pooling), modules.Normalize()],
            prompts=prompts, device="cpu",
        ).save(str(folder))  # fmt: skip
    write_graph(bert, folder / "onnx" / "model.onnx")
    return folder


class _States(torch.nn.Module):
    def __init__(self, bert: torch.nn.Module, pooled: bool) -> None:
        super().__init__()
        self.bert, self.pooled = bert, pooled

    def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
        states = self.bert(**dict(zip(INPUTS, inputs, strict=True))).last_hidden_state
        return states[:, 0] if self.pooled else states


def write_graph(bert: torch.nn.Module, path: Path, *, pooled: bool = False, any_length: bool = True) -> None:
    """The graph of a transformer: the states of all tokens, or as `sentence_embedding` that of the first."""
    path.parent.mkdir(parents=True, exist_ok=True)
    name = "sentence_embedding" if pooled else "last_hidden_state"
    token_ids = torch.tensor([[2, 5, 6, 7, 3], [2, 8, 9, 10, 3]])
    given = (token_ids, torch.ones_like(token_ids), torch.zeros_like(token_ids))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            _States(bert, pooled).eval(), given, str(path), input_names=list(INPUTS), output_names=[name],
            dynamic_axes={value: {0: "texts", 1: "tokens"} for value in INPUTS} if any_length else None, dynamo=False,
            opset_version=17,
        )  # fmt: skip


def change_json(path: Path, **values: object) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))
