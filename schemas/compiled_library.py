"""Loading of the compiled libraries of plain C functions, or the reason why one is not available.

The build is optional (pyproject.toml), so that an install without a compiler succeeds; whatever is compiled has a
reference in Python.
"""

import ctypes
import importlib.machinery
import importlib.util


def load(name: str, interface_of: str, interface: int) -> tuple[ctypes.CDLL | None, str]:
    """(the library in the place of a module `name`, or None; the reason why there is none).

    `interface_of`: its function that says which interface it was built with; another one than `interface` is not
    called.
    """
    spec = importlib.util.find_spec(name)
    if spec is None or not isinstance(spec.loader, importlib.machinery.ExtensionFileLoader):
        return None, "nothing was compiled when clicktower was installed: there was no working C++ compiler"
    try:
        found = ctypes.CDLL(str(spec.origin))
        built = getattr(found, interface_of)()
    except (OSError, AttributeError) as error:
        return (
            None,
            f"the compiled library does not load ({str(error).splitlines()[0][:160]}): install clicktower again",
        )
    if built != interface:
        return None, f"the compiled library is of other sources (interface {built}, not {interface}): install again"
    return found, ""
