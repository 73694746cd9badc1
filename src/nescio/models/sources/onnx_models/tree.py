"""Names of a file as names of modules, and the tree of modules that they make."""

from __future__ import annotations

import keyword
import re

from torch import Tensor, nn

RESERVED = frozenset({*dir(nn.Module()), "inputs", "output", "steps", "held", "constants"})
"""What the modules of a network have already."""


def word(name: str) -> str:
    """A name as an attribute of a module can have it: names in a file may be anything."""
    plain = re.sub(r"\W+", "_", name, flags=re.ASCII).strip("_") or "node"
    return f"{plain}_" if keyword.iskeyword(plain) or plain in RESERVED else plain


def path(name: str) -> str:
    """A dotted name of such words."""
    return ".".join(word(part) for part in name.split("."))


def put(root: nn.Module, place: str, module: nn.Module) -> str:
    """Put a module into the tree; gives the path, which differs where the place is taken."""
    owner, _, key = place.rpartition(".")
    holder = _holder(root, owner)
    key = _free(holder, key)
    holder.add_module(key, module)
    return f"{owner}.{key}" if owner else key


def hold(root: nn.Module, owner: str, key: str, value: Tensor) -> tuple[str, str]:
    """Keep a parameter or a constant in the module at that path; gives path and name."""
    holder = _holder(root, owner)
    key = _free(holder, key)
    if isinstance(value, nn.Parameter):
        holder.register_parameter(key, value)
    else:
        holder.register_buffer(key, value)
    return owner, key


def _holder(root: nn.Module, place: str) -> nn.Module:
    holder = root
    for key in place.split(".") if place else ():
        if key not in holder._modules:
            holder.add_module(key, nn.Module())
        holder = holder.get_submodule(key)
    return holder


def _free(holder: nn.Module, key: str) -> str:
    name, count = key, 1
    while hasattr(holder, name):
        count += 1
        name = f"{key}_{count}"
    return name
