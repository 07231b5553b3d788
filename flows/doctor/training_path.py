"""Which path training takes on a CPU, and why."""

import shutil

from flows.doctor.finding import Finding
from training.kernel import Status, status


def training_path() -> Finding:
    """The compiled kernel, or the reference path in torch."""
    return judge_path(status(), has_compiler=any(map(shutil.which, ("g++", "c++", "clang++"))))


def judge_path(found: Status, *, has_compiler: bool) -> Finding:
    """`has_compiler`: one is there now, whatever was there when clicktower was installed."""
    facts = {
        "path": "compiled" if found.available else "reference",
        "instructions": found.instructions,
        "reason": found.reason,
    }
    if found.available and found.instructions == "generic":
        return Finding(
            name="path",
            state="look",
            found="the compiled kernel, without AVX2 or AVX-512",
            follows="the same results, at a part of the speed",
            do="use a processor that has them, or see that the virtual machine shows them",
            facts=facts,
        )
    if found.available:
        return Finding(
            name="path",
            state="good",
            found=f"the compiled kernel with {found.instructions} (lstm, bilstm, rnn); torch for other towers",
            facts=facts,
        )
    return Finding(
        name="path",
        state="look",
        found=f"the reference path in torch: {found.reason}",
        follows="everything works, and recurrent towers train and encode several times slower",
        do=_remedy(found, has_compiler),
        facts=facts,
    )


def _remedy(found: Status, has_compiler: bool) -> str:
    if "processor" in found.reason:
        return "use a processor that has them, if speed matters"
    again = "install clicktower again (in a checkout: touch pyproject.toml && make setup)"
    return again if has_compiler else f"install a C++ compiler (apt-get install g++, dnf install gcc-c++), then {again}"
