"""The ONNX graphs of towers but the LSTM (query_onnx).

Shapes: d cells, D = 2 d states, T words, r hops, H hidden units.
"""

from collections.abc import Mapping

import numpy as np

from clicktower.flows.releases.query_onnx import CannotExport, Graph, lstm, states
from clicktower.training.towers import tower_kinds
from clicktower.training.towers.tower_settings import SIGMA_MIN, GatedRecurrent, TowerSettings

_LAST = np.iinfo(np.int64).max


def tower_graph(graph: Graph, tower: TowerSettings, words: str, part: Mapping[str, np.ndarray]) -> str:
    """The output of the embedding of a text with these words. Raises CannotExport for a tower without a graph."""
    match tower:
        case tower_kinds.RNN():
            return _rnn(graph, tower.cells, words, part)
        case tower_kinds.Bag():
            return _sum(graph, words)
        case tower_kinds.BiLSTM():
            return _bilstm(graph, tower, words, part)
        case tower_kinds.DSSM():
            return _semantic(graph, _sum(graph, words), part)
        case tower_kinds.CLSM():
            return _clsm(graph, tower, words, part)
        case tower_kinds.SelfAttentive():
            return _self_attentive(graph, tower, words, part)
        case tower_kinds.MaxPooled():
            states_TD = _bilstm(graph, tower, words, part, every=True)
            return graph.add("ReduceMax", states_TD, axes=[0], keepdims=0)
        case tower_kinds.Variational():
            return _variational(graph, tower, words, part)
    raise CannotExport(f"there is no graph for the tower {tower.kind}.")


def _rnn(graph: Graph, d: int, words: str, part: Mapping[str, np.ndarray]) -> str:
    inputs = np.eye(d, dtype=np.float32)
    none = np.zeros(d, np.float32)
    bias = np.concatenate([part.get("b", none), none])
    names = [graph.constant(value[None]) for value in (inputs, part["W_rec"].T, bias)]
    return states(graph, "RNN", words, names, d, "forward", outputs=2)


def _sum(graph: Graph, words: str) -> str:
    """The sum over the words, [G]."""
    return graph.add("ReduceSum", words, graph.ints(0), keepdims=0)


def _bilstm(
    graph: Graph, tower: GatedRecurrent, words: str, part: Mapping[str, np.ndarray], *, every: bool = False
) -> str:
    columns = part["b"].shape[0] // 2
    halves = []
    for at, direction in enumerate(("forward", "reverse")):
        first = graph.ints(at * columns), graph.ints((at + 1) * columns), graph.ints(1)
        of_one_way = {name: np.split(value, 2, axis=-1)[at] for name, value in part.items()}
        sliced = graph.add("Slice", words, *first)
        halves.append(lstm(graph, tower, sliced, of_one_way, direction, every=every))
    return graph.add("Concat", *halves, axis=-1)


def _self_attentive(graph: Graph, tower: tower_kinds.SelfAttentive, words: str, part: Mapping[str, np.ndarray]) -> str:
    """The hops' sums of the states, concatenated or their mean; the softmax is over the T words."""
    recurrent = {name: value for name, value in part.items() if name not in ("W_s1", "W_s2")}
    states_TD = _bilstm(graph, tower, words, recurrent, every=True)
    hidden = graph.add("Tanh", graph.add("MatMul", states_TD, graph.constant(part["W_s1"])))
    weights_Tr = graph.add("Softmax", graph.add("MatMul", hidden, graph.constant(part["W_s2"])), axis=0)
    sums_rD = graph.add("MatMul", graph.add("Transpose", weights_Tr, perm=[1, 0]), states_TD)
    if tower.average_hops:
        return graph.add("ReduceMean", sums_rD, axes=[0], keepdims=0)
    return graph.add("Reshape", sums_rD, graph.ints(-1))


def _variational(graph: Graph, tower: tower_kinds.Variational, words: str, part: Mapping[str, np.ndarray]) -> str:
    """μ and σ of the last states, concatenated."""
    ours = ("W_mu", "b_mu", "W_sigma", "b_sigma")
    recurrent = {name: value for name, value in part.items() if name not in ours}
    state = graph.add("Unsqueeze", _bilstm(graph, tower, words, recurrent), graph.ints(0))

    def layer(name: str) -> str:
        row = graph.add("MatMul", state, graph.constant(part[f"W_{name}"]))
        return graph.add("Add", graph.add("Reshape", row, graph.ints(-1)), graph.constant(part[f"b_{name}"]))

    deviation = graph.add("Add", graph.add("Softplus", layer("sigma")), graph.constant(np.float32(SIGMA_MIN)))
    return graph.add("Concat", layer("mu"), deviation, axis=0)


def _clsm(graph: Graph, tower: tower_kinds.CLSM, words: str, part: Mapping[str, np.ndarray]) -> str:
    """The word k places to the right of each is in row t + k + w of the words with w rows of zeros at both ends."""
    w, hidden = tower.window // 2, tower.hidden
    padded = graph.add("Pad", words, graph.ints(w, 0, w, 0))
    places = []
    for at in range(tower.window):
        until = at - 2 * w or _LAST
        rows = graph.add("Slice", padded, graph.ints(at), graph.ints(until), graph.ints(0))
        columns = graph.ints(at * hidden), graph.ints((at + 1) * hidden), graph.ints(1)
        places.append(graph.add("Slice", rows, *columns))
    windows = graph.add("Sum", *places)
    return _semantic(graph, graph.add("ReduceMax", windows, axes=[0], keepdims=0), part)


def _semantic(graph: Graph, hidden_H: str, part: Mapping[str, np.ndarray]) -> str:
    """tanh(W_s tanh(h + b) + b_s), [d]."""
    hidden = graph.add("Tanh", graph.add("Add", hidden_H, graph.constant(part["b"])))
    row = graph.add("MatMul", graph.add("Unsqueeze", hidden, graph.ints(0)), graph.constant(part["W_s"]))
    argument = graph.add("Add", graph.add("Reshape", row, graph.ints(-1)), graph.constant(part["b_s"]))
    return graph.add("Tanh", argument)
