"""One short text at a time: the bags of its words summed by NumPy, then a stock ONNX LSTM node in onnxruntime.

f = 1 is a forget bias of 100, as in benchmarks.peers.stock_towers. Needs onnx and onnxruntime, which are no dependency
of the project: `available` says whether both are there. For many texts at once nn.LSTM is faster (39,000 titles per
core-second against 26,000), so this stands beside single queries only.
"""

import importlib.util
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from benchmarks.peers.stock_towers import FORGET_BIAS, Tensors
from clicktower.schemas.text_contract import words


def available() -> bool:
    return all(importlib.util.find_spec(name) is not None for name in ("onnx", "onnxruntime"))


class OnnxServing:
    """A tower as a session of one thread. `trigrams_of`: each word's, from a dictionary."""

    def __init__(self, parts: Tensors, trigrams_of: Mapping[str, Sequence[int]]) -> None:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        graph = _lstm(parts).SerializeToString()
        self._session = onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])
        self._table, self._trigrams_of = parts["W"].numpy(), trigrams_of

    def __call__(self, text: str) -> np.ndarray:
        """The embedding of a text, float32 [1, d]."""
        bags = [self._table[self._trigrams_of[word]].sum(axis=0) for word in words(text)]
        return self._session.run(None, {"x": np.stack(bags)[:, None]})[0][0]


def _lstm(parts: Tensors) -> Any:
    """The model x [T, N, G] -> y at the last step [1, N, d]. ONNX's gates are input, output, forget, candidate."""
    from onnx import TensorProto, helper, numpy_helper

    recurrent_dG, bias_G = parts["W_rec"].numpy(), parts["b"].numpy()
    d, columns = recurrent_dG.shape

    def theirs(gates: np.ndarray) -> np.ndarray:
        output, inward, candidate = np.split(gates, 3)
        return np.concatenate([inward, output, np.zeros_like(inward), candidate])

    bias = np.concatenate([theirs(bias_G), np.zeros(4 * d, np.float32)])
    bias[2 * d : 3 * d] = FORGET_BIAS
    weights = {"w": theirs(np.eye(columns, dtype=np.float32)), "r": theirs(recurrent_dG.T), "b": bias}
    graph = helper.make_graph(
        [helper.make_node("LSTM", ["x", "w", "r", "b"], ["", "last"], hidden_size=d)],
        "tower",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["steps", "texts", columns])],
        [helper.make_tensor_value_info("last", TensorProto.FLOAT, [1, "texts", d])],
        [numpy_helper.from_array(np.ascontiguousarray(values[None]), name) for name, values in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
