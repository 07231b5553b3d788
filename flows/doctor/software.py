"""What is installed: Python, the packages each engine needs, and whether they are the set that was tested together.

Versions are read from what installers leave behind. Importing the packages to ask them would take ten seconds.
"""

import platform
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

from flows.doctor.finding import Finding

ROOT = Path(__file__).resolve().parent.parent.parent
TOLD = ("torch", "pyarrow", "apache-beam", "ray", "prefect", "lancedb")

# What does not work without an extra.
NEEDED_BY = {
    "": "nothing works",
    "beam": "check, ingest, build, judgments and erase do not work",
    "train": "train, sweep, evaluate and publish do not work",
    "compare": "compare has no doc2vec row",
    "check": "check tells writing systems, and no languages",
    "publish": "publish, search, run and demo do not work",
    "flows": "run and demo do not work",
    "serve": "serve does not work",
    "cli": "no command works",
}
_SHOWN = 5


@dataclass(frozen=True, kw_only=True, slots=True)
class Needed:
    """A package that is declared: under which extra ("" for all), in which versions."""

    extra: str
    name: str
    versions: SpecifierSet


def python() -> Finding:
    """The version of Python, and whether it is one of those that are declared."""
    return judge_python(platform.python_version(), metadata.metadata("clicktower")["Requires-Python"] or "")


def judge_python(version: str, declared: str) -> Finding:
    facts = {"version": version, "declared": declared}
    if not SpecifierSet(declared).contains(version, prereleases=True):
        return Finding(
            name="Python",
            state="bad",
            found=f"{version}, and clicktower is for {declared}",
            follows="packages that it needs may not exist for this version",
            do="make the environment anew with another Python (make PYTHON=/path/to/python3.11 setup)",
            facts=facts,
        )
    return Finding(name="Python", state="good", found=version, facts=facts)


def packages() -> Finding:
    """What is missing, or in a version that is not declared, for each engine."""
    return judge_packages(needed(metadata.requires("clicktower") or ()), installed())


def judge_packages(wanted: Iterable[Needed], found: Mapping[str, str]) -> Finding:
    """`found`: the versions of all that is installed, by canonical name."""
    wanted = [one for one in wanted if one.extra in NEEDED_BY]
    missing = [one for one in wanted if one.name not in found]
    other = [
        one for one in wanted if one.name in found and not one.versions.contains(found[one.name], prereleases=True)
    ]
    facts = {
        "versions": {name: found[name] for name in TOLD if name in found},
        "missing": sorted(one.name for one in missing),
        "undeclared": {one.name: found[one.name] for one in other},
    }
    told = ", ".join(f"{name} {found[name]}" for name in TOLD if name in found)
    if missing:
        extras = sorted({one.extra for one in missing if one.extra})
        return Finding(
            name="packages",
            state="bad",
            found=f"{', '.join(facts['missing'])} missing",
            follows="; ".join(NEEDED_BY[extra] for extra in sorted({one.extra for one in missing})),
            do=f"pip install 'clicktower[{','.join(extras)}]'" if extras else "install clicktower again",
            facts=facts,
        )
    if other:
        named = ", ".join(f"{one.name} {found[one.name]} (declared: {one.versions})" for one in other)
        return Finding(
            name="packages",
            state="look",
            found=named,
            follows="some versions outside of these are known to fail when they are used, not when they are installed",
            do="install clicktower again, with its constraints.txt",
            facts=facts,
        )
    return Finding(name="packages", state="good", found=told, facts=facts)


def pinned() -> Finding:
    """Whether the packages are the set that was tested together."""
    file = ROOT / "constraints.txt"
    return judge_pinned(file.read_text(encoding="utf-8") if file.exists() else None, installed())


def judge_pinned(constraints: str | None, found: Mapping[str, str]) -> Finding:
    """`constraints`: lines of name==version; None where clicktower was installed without its repository."""
    if constraints is None:
        return Finding(
            name="tested set",
            state="note",
            found="not at hand: constraints.txt is in the repository, not in the installed package",
        )
    pins = dict(re.findall(r"^([\w.-]+)==([^\s;#]+)", constraints, re.M))
    pins = {canonicalize_name(name): version for name, version in pins.items()}
    here = {name: version for name, version in pins.items() if name in found}
    other = {name: found[name] for name, version in here.items() if Version(found[name]) != Version(version)}
    facts = {"pinned": len(pins), "installed": len(here), "other": other}
    if not other:
        return Finding(
            name="tested set",
            state="good",
            found=f"all {len(here)} packages of constraints.txt that are installed have its versions",
            facts=facts,
        )
    named = [f"{name} {version} (tested: {pins[name]})" for name, version in sorted(other.items(), key=_by_weight)]
    more = f" and {len(named) - _SHOWN} more" if len(named) > _SHOWN else ""
    return Finding(
        name="tested set",
        state="look",
        found=f"{len(other)} of {len(here)} packages have another version: {', '.join(named[:_SHOWN])}{more}",
        follows="it may well work; it is not what the tests ran with",
        do="in a checkout: rm -rf .venv && make setup; elsewhere: pip install -c constraints.txt 'clicktower[all]'",
        facts=facts,
    )


def needed(requires: Sequence[str]) -> list[Needed]:
    """The declared packages in lines like `torch>=2.6; extra == "train"`, without those of clicktower's own extras."""
    made = []
    for requirement in map(Requirement, requires):
        extra = re.search(r"""extra == ["']([\w-]+)["']""", str(requirement.marker or ""))
        name = canonicalize_name(requirement.name)
        if name != "clicktower":
            made.append(Needed(extra=extra.group(1) if extra else "", name=name, versions=requirement.specifier))
    return made


def installed() -> dict[str, str]:
    """The version of every installed package, by canonical name."""
    return {canonicalize_name(one.name): one.version for one in metadata.distributions() if one.name}


def _by_weight(item: tuple[str, str]) -> tuple[bool, str]:
    return (item[0] not in TOLD, item[0])
