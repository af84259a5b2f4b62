"""The one HTML shell: templates that escape all they are given, with filters for numbers and names.

A page has no script and loads nothing. What comes from a table is text to a template; only drawings, made by
`widegp.report.svg`, are markup.
"""

from __future__ import annotations

from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any

from widegp.report import formatting

if TYPE_CHECKING:
    from jinja2 import Environment

# Nothing may be fetched and nothing may run, whatever a column is called.
POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
OWN = "widegp.report"
FILTERS = ("number", "percent", "exact", "moment", "seconds", "memory", "clean", "short")


def render(template: str, package: str = OWN, **values: Any) -> str:
    """The page of a template in ``package``/templates, which may extend and import those of the report."""
    return environment(package).get_template(template).render(**values)


@cache
def environment(package: str) -> Environment:
    """Names that a template uses and was not given are errors, not blanks."""
    from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup

    made = Environment(
        loader=ChoiceLoader([PackageLoader(package), PackageLoader(OWN)]), autoescape=True,
        undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    made.filters |= {name: getattr(formatting, name) for name in FILTERS}
    style = resources.files(OWN).joinpath("style.css").read_text(encoding="utf-8")
    made.globals |= {"style": Markup(style), "policy": POLICY}
    return made
