"""Word lists that decide which lines are left out, as files: one term a line, `#` begins a comment, the first line is
`# version: N`. A list's digest is part of every request that uses it.
"""

from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from importlib.resources import files

from schemas import storage
from schemas.errors import StageError, UsageError

BOT_USER_AGENTS = "bot_user_agents.txt"
ADULT_ENGLISH = "adult_en.txt"


@dataclass(frozen=True, kw_only=True, slots=True)
class TermList:
    terms: tuple[str, ...]
    digest: str  # of the terms, not of comments


@lru_cache(maxsize=8)
def shipped_list(name: str) -> TermList:
    """A list of this package."""
    return _parse(files(__package__).joinpath(name).read_text("utf-8"), asked=f"the shipped list {name} was to be read")


def read_list(uri: str) -> TermList:
    """A list of the user's own. Raises UsageError or StageError."""
    asked = f"a list of terms was to be read from {uri}"
    try:
        text = storage.read_bytes(uri).decode("utf-8")
    except FileNotFoundError:
        raise UsageError(asked=asked, found="there is no such file", do="check the path") from None
    except (OSError, UnicodeDecodeError) as error:
        raise StageError(
            asked=asked,
            found=f"it cannot be read as UTF-8 text ({type(error).__name__})",
            do="give a text file with one term a line",
        ) from None
    return _parse(text, asked)


def _parse(text: str, asked: str) -> TermList:
    terms = tuple(line.strip() for line in text.splitlines() if line.strip() and not line.startswith("#"))
    if not terms:
        raise StageError(
            asked=asked,
            found="there is no term in it",
            follows="nothing would be filtered, and nobody would notice",
            do="give a file with one term a line",
        )
    return TermList(terms=terms, digest=sha256("\n".join(terms).encode()).hexdigest()[:16])
