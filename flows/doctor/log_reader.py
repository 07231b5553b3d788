"""Whether log lines are read in compiled code, and why not."""

from beam_jobs.compiled.log_library import why_not
from flows.doctor.finding import Finding


def log_reader() -> Finding:
    """The compiled reader of everyday lines, or Python for all of them."""
    return judge_reader(why_not())


def judge_reader(reason: str) -> Finding:
    """`reason`: why nothing compiled is used; empty where it is."""
    facts = {"reader": "python" if reason else "compiled"}
    if not reason:
        return Finding(name="log reader", state="good", found="compiled, for UBI; Python for other logs", facts=facts)
    return Finding(
        name="log reader",
        state="look",
        found=f"Python: {reason}",
        follows="everything works, and reading UBI logs takes several times as much processor time",
        do="install a C++ compiler if there is none, then clicktower again"
        " (in a checkout: touch pyproject.toml && make setup)",
        facts=facts,
    )
