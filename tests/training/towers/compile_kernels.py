"""Compile the fused kernels for GPUs that are not here, with the compiler and assembler that come with Triton.

    python -m tests.training.towers.compile_kernels sm_90 lstm_forward lstm_backward

Prints one JSON object: for each kernel the registers and the bytes of local memory of a thread (what did not fit into
registers), the shared memory of a block, and the instructions. A process of its own, without TRITON_INTERPRET: where
that is set the kernels are the interpreter's.
"""

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from clicktower.training.towers import gpu_recurrent
from clicktower.training.towers.gpu_recurrent import OPTIONS, block_sizes

TOOLS = Path(triton.__file__).parent / "backends" / "nvidia" / "bin"
SWITCHES: dict[str, dict[str, Any]] = {
    "lstm_forward": {"FORGET": False, "PEEPHOLES": False},
    "lstm_backward": {"FORGET": False, "PEEPHOLES": False},
    "full_lstm_forward": {"FORGET": True, "PEEPHOLES": True},
    "full_lstm_backward": {"FORGET": True, "PEEPHOLES": True},
}


def compiled(name: str, target: int) -> dict[str, Any]:
    """What the assembler made of a kernel at the size of its recipe (96 cells)."""
    kernel = getattr(gpu_recurrent, name.removeprefix("full_"))
    constants = SWITCHES[name] | block_sizes(96)
    names = kernel.arg_names
    signature = {
        arg: "constexpr" if arg in constants
        else "i32" if arg.endswith(("step", "steps"))
        else "*i64" if arg in ("packed_words_P", "starts")
        else "*fp32"
        for arg in names
    }  # fmt: skip
    # Every array begins at a multiple of 16 bytes except the one whose place in a batch's single copy is by chance.
    aligned = [arg for arg, kind in signature.items() if kind.startswith("*") and arg != "packed_words_P"]
    made = triton.compile(
        ASTSource(
            kernel,
            signature,
            constexprs={(names.index(arg),): value for arg, value in constants.items()},
            attrs={(names.index(arg),): [["tt.divisibility", 16]] for arg in aligned},
        ),
        target=GPUTarget("cuda", target, 32),
        options=OPTIONS,
    )
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(made.asm["cubin"])
        file.flush()
        usage, code = (
            subprocess.run([TOOLS / "cuobjdump", flag, file.name], capture_output=True, text=True, check=True).stdout
            for flag in ("-res-usage", "-sass")
        )
    return {
        "registers": int(re.findall(r"REG:(\d+)", usage)[0]),
        "local_bytes": sum(int(size) for size in re.findall(r"(?:STACK|LOCAL):(\d+)", usage)),
        "shared_bytes": made.metadata.shared,
        "copies_at_barriers": copies_at_barriers(made.asm["ttgir"]),
        "instructions": {word: len(re.findall(rf"\b{word}\b", code)) for word in ("FFMA", "LDS", "LDG", "HMMA")},
    }


def copies_at_barriers(code: str) -> int:
    """Barriers that an asynchronous copy has not arrived at: it could read what is written after them, or before."""
    crossed, on_the_way = 0, False
    for line in code.splitlines():
        if "async_copy_global_to_local" in line:
            on_the_way = True
        elif re.search(r"async_wait.*\{num = 0 ", line):
            on_the_way = False
        elif re.search(r"\b(ttg|gpu)\.barrier\b", line):
            crossed += on_the_way
    return crossed


if __name__ == "__main__":
    target = int(sys.argv[1].removeprefix("sm_"))
    print(json.dumps({name: compiled(name, target) for name in sys.argv[2:] or SWITCHES}, indent=1))
