"""Templates of pages: those of a package, over what all pages share."""

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined


def templates(package: str) -> Environment:
    """Return the templates of a package, over those of this one, which they extend.

    All values are escaped. A value that is missing is an error.
    """
    return Environment(
        loader=ChoiceLoader([PackageLoader(package, "."), PackageLoader(__package__, ".")]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
