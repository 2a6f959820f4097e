"""Finds NumPyro models that are installed here, and imports one only if its sources are known.

A model is an entry point of the group "shoal.models". Its digest is over all sources of the
top-level package or module that holds it, so that two parties who agree on a digest run the same
code: of a digested package nothing else is loaded, neither compiled code nor what was added later.
Nothing is imported before the digest is right; no code comes over a wire.
"""

import hashlib
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from importlib.abc import MetaPathFinder
from importlib.machinery import SOURCE_SUFFIXES, ModuleSpec, PathFinder, SourceFileLoader
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from pathlib import Path
from threading import Lock
from types import CodeType, ModuleType
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from shoal_protocol.queries import Column, GradientSum
from shoal_protocol.queries.models import InstalledModel
from shoal_protocol.queries.models.numpyro_models import CompiledModel, compile_model
from shoal_protocol.wire.encoding import domain


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
        """Return a module's spec, or None for what is in no digested package.

        Raises:
            ImportError: the module is compiled code.
        """
        sources = self.sources.get(fullname.partition(".")[0])
        if sources is None:
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.loader is not None:  # a folder without code has no loader
            if not isinstance(spec.loader, SourceFileLoader):
                raise ImportError("the module is compiled code, which is not digested")
            spec.loader = _Loader(fullname, spec.loader.path, sources)
        return spec


_FINDER = _Finder()


GROUP: Final = "shoal.models"

_loaded: dict[str, tuple[str, Callable[..., Any]]] = {}  # by entry point: digest, model
_lock: Final = Lock()


class ModelNotUsable(ValueError):
    """A model is not installed, or not the one that is meant; the message says what to do."""


def digest_of(entry_point: str) -> str:
    """Return the digest of the sources that hold a model, without importing them.

    Raises:
        ModelNotUsable: there is no such model here, or its sources are not all there is of it.
    """
    return _digest(_contents(_entry_point(entry_point)))


def refusal(query: GradientSum) -> str | None:
    """Return why the model of a query cannot be used here, or None: also if it is built in.

    The model is loaded and tried, on no data.
    """
    try:
        gradients_for(query)
    except ModelNotUsable as error:
        return str(error)
    return None


def gradients_for(
    query: GradientSum,
) -> Callable[[NDArray[np.float64], NDArray[np.float64]], NDArray[np.float64]] | None:
    """Return the gradients that a query's model needs from here, or None for one that is built in.

    Where the model fails on a record, the gradient is NaN and counts as zero: what a client sends
    may depend on its records, but whether it sends anything may not.

    Raises:
        ModelNotUsable: as `model_for`.
    """
    if not isinstance(query.model, InstalledModel):
        return None
    compiled = model_for(query.model, query.columns)

    def gradients(point: NDArray[np.float64], values: NDArray[np.float64]) -> NDArray[np.float64]:
        try:
            return compiled.gradients(point, values)
        except KeyboardInterrupt:
            raise
        except BaseException:  # noqa: BLE001 -- foreign code, and its message may hold data
            return np.full((len(values), len(point)), np.nan)

    return gradients


@lru_cache(8)
def model_for(model: InstalledModel, columns: tuple[Column, ...]) -> CompiledModel:
    """Return a model, compiled for records of these columns.

    Raises:
        ModelNotUsable: it is not installed, is another version, does not compile, or does not
            have as many latents as `model` says.
    """
    function = _load(model.entry_point, model.digest)
    centres, scales = (
        np.array([getattr(column, part) for column in columns]) for part in ("centre", "scale")
    )
    lower, upper = centres - scales, centres + scales
    if model.normalised:
        lower, upper = np.full(len(columns), -1.0), np.ones(len(columns))
    names = [column.name for column in columns]
    try:
        compiled = compile_model(function, names, lower=lower, upper=upper)
    except ImportError as error:
        raise ModelNotUsable(
            "the model needs the extra: pip install 'shoal-holder[numpyro]'"
        ) from error
    except ValueError as error:
        raise ModelNotUsable(f"the model cannot be learned: {error}") from error
    except Exception as error:  # a model is foreign code
        raise ModelNotUsable(
            f"the model fails on the bounds of the columns: {type(error).__name__}"
        ) from error
    if compiled.dimension != model.unconstrained:
        raise ModelNotUsable(
            f"the model's latents are {compiled.dimension} unconstrained numbers, not "
            f"{model.unconstrained}: correct `unconstrained` in the task"
        )
    return compiled


def _load(name: str, digest: str) -> Callable[..., Any]:
    """Import the model, if its sources have this digest."""
    point = _entry_point(name)
    with _lock:
        if name in _loaded and _loaded[name][0] == digest:
            return _loaded[name][1]
        contents = _contents(point)
        if _digest(contents) != digest:
            raise ModelNotUsable(
                "the model that is installed under this name is another version: compare "
                f"`shoal model digest {name}` on both sides"
            )
        if name in _loaded:
            raise ModelNotUsable("the model was exchanged since it was loaded: restart the process")
        # and only from digested sources; what was imported before stays as it is
        _FINDER.sources[_root(point)] = {path: content for _, path, content in contents}
        if _FINDER not in sys.meta_path:
            sys.meta_path.insert(0, _FINDER)
        try:
            model: Callable[..., Any] = point.load()
        except Exception as error:  # a model is foreign code
            raise ModelNotUsable(f"the model cannot be imported: {type(error).__name__}") from error
        if not callable(model):
            raise ModelNotUsable("the entry point is not a function of one record")
        _loaded[name] = digest, model
        return model


def _entry_point(name: str) -> EntryPoint:
    found = {point.value: point for point in entry_points(group=GROUP, name=name)}
    if not found:
        raise ModelNotUsable(
            "the model is not installed here: install its distribution, with its entry point "
            f"of the group {GROUP}"
        )
    if len(found) > 1:
        raise ModelNotUsable("two distributions here offer a model of this name: remove one")
    return next(iter(found.values()))


def _digest(contents: Sequence[tuple[str, Path, bytes]]) -> str:
    hashed = hashlib.sha256(domain("model-sources"))
    for name, _, content in contents:
        hashed.update(f"{name}\n{len(content)}\n".encode() + content)
    return hashed.hexdigest()


def _root(point: EntryPoint) -> str:
    return point.module.partition(".")[0]


def _contents(point: EntryPoint) -> list[tuple[str, Path, bytes]]:
    """Return (relative path, file, content) of all sources of a model's package, in order."""
    contents = []
    try:
        spec = find_spec(_root(point))
        for folder in map(Path, (spec and spec.submodule_search_locations) or []):
            contents += [(path.relative_to(folder).as_posix(), path) for path in folder.rglob("*")]
        if spec is not None and not contents:
            contents = [(Path(spec.origin or "").name, Path(spec.origin or ""))]
        found = [
            (name, path, path.read_bytes())
            for name, path in sorted(contents)
            if path.suffix in SOURCE_SUFFIXES
        ]
    except (AttributeError, ValueError, OSError):  # of metadata that name nothing, and of files
        found = []
    if not found:
        raise ModelNotUsable("the model's distribution has no sources: install it again")
    return found
