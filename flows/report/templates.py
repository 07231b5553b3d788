"""The templates and styles of the pages, as they ship with the package."""

from importlib import resources

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup


def templates() -> Environment:
    """All templates. Every text that is put into one is escaped, and one that is missing is an error."""
    return Environment(
        loader=PackageLoader("flows", "report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def style(*names: str) -> Markup:
    """Style sheets, one after the other, to stand in a page."""
    return Markup("".join((resources.files("flows.report") / name).read_text(encoding="utf-8") for name in names))
