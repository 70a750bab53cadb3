"""Python and packages against what the distribution declares, by its own metadata: no second list of versions."""

import sys
from collections.abc import Iterator
from importlib import metadata
from typing import TYPE_CHECKING

from console.doctor.finding import Finding, fail, ok, warn

if TYPE_CHECKING:
    from packaging.requirements import Requirement

DISTRIBUTION = "pbkv-console"
#: What each extra is for; a missing one is only a warning.
EXTRAS = {
    "web": "the web page (pbkv web)",
    "demo": "the load of pbkv demo",
    "sglang": "serving with the plugin on this machine",
}
MIN_PYTHON = (3, 11)


def check_python(version: tuple[int, int] = sys.version_info[:2]) -> Finding:
    """The interpreter."""
    text = ".".join(map(str, version))
    if version < MIN_PYTHON:
        return fail("python", text, "install Python 3.11 or newer and make the environment anew")
    return ok("python", text)


def check_packages() -> Iterator[Finding]:
    """The base packages as one line, then one line per extra."""
    try:
        declared = _declared()
    except metadata.PackageNotFoundError:
        yield fail("packages", f"{DISTRIBUTION} is not installed", "run `make install` in the source tree, or pip install it")
        return
    base = problems(declared.get("", []))
    if base:
        yield fail("packages", "; ".join(base), f"pip install --upgrade {DISTRIBUTION}")
    else:
        yield ok("packages", f"{len(declared.get('', []))} required packages in range")
    for extra, purpose in EXTRAS.items():
        wrong = problems(declared.get(extra, []))
        if wrong:
            yield warn(f"extra {extra}", "; ".join(wrong), f"needed for {purpose}: pip install '{DISTRIBUTION}[{extra}]'")
        else:
            yield ok(f"extra {extra}", ", ".join(f"{r.name} {metadata.version(r.name)}" for r in declared.get(extra, [])))


def _declared() -> "dict[str, list[Requirement]]":
    """Requirements by extra, "" = always."""
    from packaging.requirements import Requirement

    declared: dict[str, list[Requirement]] = {}
    for text in metadata.requires(DISTRIBUTION) or []:
        requirement = Requirement(text)
        for extra in ("", *EXTRAS):
            applies = requirement.marker is None or requirement.marker.evaluate({"extra": extra})
            if applies and (not extra or requirement.marker is not None):
                declared.setdefault(extra, []).append(requirement)
    return declared


def problems(requirements: "list[Requirement]") -> list[str]:
    """What is missing or out of range, one phrase each."""
    found: list[str] = []
    for requirement in requirements:
        try:
            version = metadata.version(requirement.name)
        except metadata.PackageNotFoundError:
            found.append(f"{requirement.name} is not installed")
            continue
        if not requirement.specifier.contains(version, prereleases=True):
            found.append(f"{requirement.name} {version}, expected {requirement.specifier}")
    return found
