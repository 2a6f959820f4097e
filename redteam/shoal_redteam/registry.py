"""All attacks: each module of `attacks` defines some."""

import importlib
import pkgutil
from collections.abc import Sequence

from shoal_redteam import attacks
from shoal_redteam.attack import Attack


def all_attacks() -> list[Attack]:
    """Return one of each attack, in the order of their modules' names.

    Raises:
        ValueError: two have the same name.
    """
    found: list[Attack] = []
    for each in sorted(pkgutil.iter_modules(attacks.__path__), key=lambda module: module.name):
        module = importlib.import_module(f"{attacks.__name__}.{each.name}")
        defined = (kind for kind in vars(module).values() if isinstance(kind, type))
        found += [
            kind()
            for kind in defined
            if issubclass(kind, Attack) and kind.__module__ == module.__name__
        ]
    names = [each.name for each in found]
    if len(set(names)) != len(names):
        raise ValueError("two attacks have the same name")
    return found


def chosen(names: Sequence[str]) -> list[Attack]:
    """Return the attacks of these names, or all of them if there are none.

    Raises:
        ValueError: there is no attack of such a name.
    """
    known = {each.name: each for each in all_attacks()}
    unknown = sorted(set(names) - known.keys())
    if unknown:
        raise ValueError(f"there is no attack called {unknown[0]!r}; --list shows them")
    return [each for name, each in known.items() if not names or name in names]
