"""The pages of docs/ as what a reader would do: save the files that they show, and type their commands."""

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent

_STEPS = re.compile(
    r"^`(?P<name>[\w./-]+\.\w+)`[^\n]*:\n\n```\w+\n(?P<content>.*?)```"  # `clicks.csv`: and the block below it
    r"|^```(?P<kind>console|python)\n(?P<text>.*?)```",
    re.M | re.S,
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Step:
    """A file to save (`name`), Python to run, or a line to type; `text` is its content."""

    kind: str
    text: str
    name: str = ""


def steps(page: Path) -> list[Step]:
    """What a page asks its reader to do, in order. Continued lines are joined, comments and blank lines left out."""
    found = []
    for match in _STEPS.finditer(page.read_text(encoding="utf-8")):
        if match["name"]:
            found.append(Step(kind="file", name=match["name"], text=match["content"]))
        elif match["kind"] == "python":
            found.append(Step(kind="python", text=match["text"]))
        else:
            lines = (line.strip() for line in match["text"].replace("\\\n", " ").splitlines())
            found += [Step(kind="line", text=line) for line in lines if line and not line.startswith("#")]
    return found


def commands(page: Path) -> list[str]:
    """The lines of a page that begin with `clicktower`."""
    return [step.text for step in steps(page) if step.kind == "line" and step.text.startswith("clicktower ")]
