"""Imports packages from the very bytes that were digested.

Python would rather run the compiled code that it finds in `__pycache__`, which no digest of
sources covers, and reads a source when it is imported, which may be later.
"""

import sys
from collections.abc import Mapping, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType


class _Loader(SourceFileLoader):
    """Compiles one source as it was digested; it reads and writes no compiled code."""

    def __init__(self, name: str, path: str, sources: Mapping[Path, bytes]) -> None:
        super().__init__(name, path)
        self._sources = sources

    def get_code(self, fullname: str) -> CodeType:
        """Return the module's code.

        Raises:
            ImportError: the source was not there when the package was digested.
        """
        source = self._sources.get(Path(self.path))
        if source is None:
            raise ImportError("the module's source was not digested")
        code: CodeType = self.source_to_code(source, self.path)
        return code


class _Finder(MetaPathFinder):
    """Finds modules where Python finds them, and has those of digested packages loaded so."""

    def __init__(self) -> None:
        self.sources: dict[str, Mapping[Path, bytes]] = {}  # by top-level package or module

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return a module's spec, or None for what is in no digested package."""
        sources = self.sources.get(fullname.partition(".")[0])
        if sources is None:
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and isinstance(spec.loader, SourceFileLoader):
            spec.loader = _Loader(fullname, spec.loader.path, sources)
        return spec


_FINDER = _Finder()


def import_from(root: str, sources: Mapping[Path, bytes]) -> None:
    """From now on import the top-level package or module `root` from these contents of its files.

    What of it was imported before stays as it is.
    """
    _FINDER.sources[root] = sources
    if _FINDER not in sys.meta_path:
        sys.meta_path.insert(0, _FINDER)
