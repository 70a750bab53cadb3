"""Import-only stand-in for triton, for machines where SGLang runs without a GPU.

SGLang imports triton at module level for kernels that a CPU run never launches. Here every name resolves to a placeholder and a launch
raises. torch sees a package without a driver, so `has_triton()` is false and torch.compile uses its C++ backend.
"""

import importlib.abc
import importlib.machinery
import sys
import types
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NoReturn

__version__ = "3.9.0"
__path__: list[str] = []

#: Real triton's words when no driver is active; SGLang catches this RuntimeError to decide that it runs on CPU.
_NO_DRIVER = "0 active drivers ([]). There should only be one."


class Placeholder:
    """Stands for any lower-case name: attributes, items, calls and bases of it are importable too."""

    def __init__(self, path: str) -> None:
        self._path = path
        self.__name__ = path.rpartition(".")[2]

    def __getattr__(self, name: str) -> Any:
        return _resolve(self._path, name)

    def __call__(self, *args: Any, **kwargs: Any) -> "Placeholder":
        return Placeholder(f"{self._path}()")

    def __getitem__(self, key: Any) -> "Placeholder":
        return self

    def __iter__(self) -> Iterator[Any]:
        # Without this Python would iterate through __getitem__, which never ends.
        return iter(())

    def __mro_entries__(self, bases: tuple[Any, ...]) -> tuple[type, ...]:
        return ()

    def __or__(self, other: Any) -> "Placeholder":
        return self

    __ror__ = __or__

    def __repr__(self) -> str:
        return f"<stand-in {self._path}>"


class PlaceholderType:
    """Base of what CamelCase names resolve to: they are used in isinstance() and as base classes, so they must be types."""

    def __init__(self, *args: Any, **kwargs: Any) -> None: ...


class Kernel:
    """A function under @jit: importable, not launchable."""

    def __init__(self, fn: Any) -> None:
        self.fn = fn
        self.__name__ = getattr(fn, "__name__", "kernel")
        self.__doc__ = getattr(fn, "__doc__", None)

    def __getitem__(self, grid: Any) -> Callable[..., NoReturn]:
        return self._launch

    def _launch(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise RuntimeError(f"triton stand-in: kernel {self.__name__} needs a GPU and the real triton")


def jit(fn: Any = None, **options: Any) -> Any:
    """@jit and @jit(...)."""
    return Kernel(fn) if callable(fn) else Kernel


def _keep(*args: Any, **kwargs: Any) -> Callable[[Any], Any]:
    return lambda fn: fn


autotune = heuristics = _keep


def cdiv(x: int, y: int) -> int:
    """x / y, rounded up; SGLang calls it on the host."""
    return -(-x // y)


def next_power_of_2(n: int) -> int:
    """Smallest power of two that is at least n, 0 for n <= 0."""
    return 1 << (n - 1).bit_length() if n > 0 else 0


def _resolve(owner: str, name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    if name == "active":
        raise RuntimeError(_NO_DRIVER)
    if name[0].isupper():
        return type(name, (PlaceholderType,), {"__module__": owner})
    return Placeholder(f"{owner}.{name}")


class _Module(types.ModuleType):
    def __getattr__(self, name: str) -> Any:
        value = _resolve(self.__name__, name)
        setattr(self, name, value)  # one name is one object, as with a real module
        return value


class _Submodules(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Any `triton.x.y` is a module of placeholders."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True) if fullname.startswith("triton.") else None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        return _Module(spec.name)

    def exec_module(self, module: types.ModuleType) -> None: ...


sys.meta_path.append(_Submodules())


def __getattr__(name: str) -> Any:
    value = globals()[name] = _resolve("triton", name)
    return value
