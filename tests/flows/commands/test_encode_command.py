import io
import json
import subprocess
import sys

import numpy as np
import pytest

from clicktower.flows.cli import run
from clicktower.flows.releases.encode_lines import encode_lines, open_encoder
from clicktower.flows.show import console
from clicktower.schemas.errors import StageError, UsageError
from clicktower.training.model.embedding import search_vectors
from tests.trained_model import trained_stage


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> str:
    return trained_stage(str(tmp_path_factory.mktemp("store")))


def encoded(model: str, content: bytes, **form) -> bytes:
    return b"".join(encode_lines(open_encoder(model, None), io.BytesIO(content), "query", **form))


def test_every_line_has_its_vector_whatever_it_ends_with(model):
    texts = ["angle bracket", "", "ørn  PIPE", " \t", "last"]
    expected = search_vectors(open_encoder(model, None), ["angle bracket", "ørn pipe", "last"], "query")
    for end in ("\n", "\r\n"):
        for content in (end.join(texts), end.join(texts) + end):
            values = np.frombuffer(encoded(model, content.encode(), raw=True), "<f4").reshape(5, 8)
            assert values[[0, 2, 4]].tolist() == expected.tolist()
            assert not values[[1, 3]].any()
            lines = encoded(model, content.encode()).splitlines()
            assert [json.loads(line) for line in lines] == [expected[0].tolist(), None, expected[1].tolist(), None,
                                                             expected[2].tolist()]  # fmt: skip
            assert encoded(model, content.encode(), objects=True).splitlines()[1] == b'{"vector": null}'
    assert encoded(model, b"") == b""
    assert encoded(model, b"\xef\xbb\xbfangle\nhose\n") == encoded(model, b"angle\nhose\n")


def test_a_long_encoding_says_on_stderr_how_far_it_is(model, monkeypatch, capsysbinary):
    monkeypatch.setattr(console, "PLAIN_SECONDS", 0.0)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"angle\n\nhose\n")))
    assert run(["encode", "--model", model, "--side", "query", "--json"]) == 0
    written = capsysbinary.readouterr()
    assert len(written.out.splitlines()) == 3
    assert written.err == b"encode: encode lines (3)\n"


@pytest.mark.slow
def test_a_line_is_answered_before_the_next_one_is_typed(model):
    command = [sys.executable, "-m", "clicktower.flows.cli", "encode", "--model", model, "--side", "document"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        for text in (b"angle bracket\n", b"copper pipe\n"):
            process.stdin.write(text)
            process.stdin.flush()
            assert len(json.loads(process.stdout.readline())) == 8
        process.stdin.close()
        assert process.stdout.read() == b""
    assert process.returncode == 0


def test_what_cannot_be_encoded_is_said(model, tmp_path):
    with pytest.raises(StageError, match="Line 2 is not UTF-8"):
        encoded(model, b"angle\n\xff\nbracket\n")
    for given in ((None, None), (model, "release")):
        with pytest.raises(UsageError, match="Texts are encoded by one model"):
            open_encoder(*given)
    with pytest.raises(StageError, match="Nothing is published at"):
        open_encoder(None, str(tmp_path))
