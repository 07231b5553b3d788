"""Blocks as a page of HTML: one file with its style and figures inside, nothing loaded, nothing run."""

from importlib import resources

from flows.report.blocks import Page, cell, shown
from schemas import storage
from training.wording import visible


def render(page: Page) -> str:
    """The page. Every text is escaped, and what cannot be printed is a mark."""
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup

    def harmless(value: object) -> object:
        return visible(value) if isinstance(value, str) and not isinstance(value, Markup) else value

    pages = Environment(
        loader=PackageLoader("flows", "report"), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
        lstrip_blocks=True, finalize=harmless,
    )  # fmt: skip
    pages.filters["of_page"] = lambda blocks: shown(blocks, "page")
    pages.filters["cell"] = cell
    style = Markup((resources.files("flows.report") / "page.css").read_text(encoding="utf-8"))
    return pages.get_template("page.html").render(page=page, style=style)


def write_page(path: str, page: Page) -> None:
    """Write the page; it replaces an older one as a whole. Raises OSError where it cannot be written."""
    storage.write_atomic(path, render(page).encode("utf-8"))
