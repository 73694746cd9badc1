"""torchvision's models without the compiler of torch: it takes longer to load than torch itself, and one function of
torchvision's, which no classifier calls, asks it something.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from types import ModuleType
from typing import Any

from nescio._common.lazy_imports import need

COMPILER = "torch._dynamo"


def torchvision_models() -> ModuleType:
    """Import `torchvision.models`.

    Returns:
        The module. The compiler of torch is loaded when something asks for it.

    Raises:
        MissingExtra: If it cannot be imported.

    Examples:
        >>> torchvision_models().__name__
        'torchvision.models'
    """
    if "torchvision" not in sys.modules and COMPILER not in sys.modules:
        try:
            with _compiler_put_off():
                return import_module("torchvision.models")
        except ImportError:
            pass  # another version, which needs more of it; or there is none, as is told below
    return need("torchvision.models", "data")


@contextmanager
def _compiler_put_off() -> Iterator[None]:
    """Let names of ``torch._dynamo.utils`` be imported, each a function that loads the compiler when it is called."""
    names = (COMPILER, f"{COMPILER}.utils")
    stands = {name: ModuleType(name) for name in names}

    def is_compile_supported(*given: Any) -> Any:
        return import_module(names[1]).is_compile_supported(*given)

    stands[names[1]].is_compile_supported = is_compile_supported  # type: ignore[attr-defined]
    sys.modules.update(stands)
    try:
        yield
    finally:
        for name, module in stands.items():
            if sys.modules.get(name) is module:
                del sys.modules[name]
