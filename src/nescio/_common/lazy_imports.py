"""Import an optional package inside the function that uses it, or say how to install it."""

from __future__ import annotations

import importlib
from types import ModuleType

from nescio.types import MissingExtra


def need(module: str, extra: str) -> ModuleType:
    """Import a module of an optional package.

    Args:
        module: Its dotted name, such as ``"PIL.Image"``.
        extra: The extra of nescio that installs it, such as ``"data"``.

    Returns:
        The module.

    Raises:
        MissingExtra: If it cannot be imported. The message names the command that installs it.

    Examples:
        >>> need("math", "data").pi > 3
        True
        >>> need("no_such_package", "data")
        Traceback (most recent call last):
        nescio.types.MissingExtra: expected the package 'no_such_package' for this, but it cannot be ...
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise MissingExtra(
            f"expected the package '{module.partition('.')[0]}' for this, but it cannot be imported ({error}); "
            f"install it with: pip install 'nescio[{extra}]'"
        ) from error
