"""clicktower doctor"""

from flows import console, present_doctor


def doctor(*, into: str = ".", json: bool = False) -> int:
    """Say whether this machine can run it, which path training takes and why, and what to
    do about what is missing.

    Nothing is changed, and nothing private is shown. Exit code 1 says that
    something is in the way of a run on this machine.

        clicktower doctor
        clicktower doctor --into store --json

    Parameters
    ----------
    into
        The store that is to be used: its disk is looked at.
    json
        Print the findings as one JSON object.
    """
    import time

    from flows.doctor.examine import examine

    begun = time.perf_counter()
    groups = examine(into)
    result = present_doctor.as_result(groups, time.perf_counter() - begun)
    console.emit(result, json, present_doctor.show)
    return 0 if result["ready"] else 1
