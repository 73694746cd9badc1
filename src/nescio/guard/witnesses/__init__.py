"""The witnesses, one file each; a file that is put into this folder and registers a class is found by itself."""

from importlib import import_module
from pkgutil import iter_modules

from nescio.guard.witnesses.appearance import Appearance
from nescio.guard.witnesses.base import WITNESSES, Anatomy, Found, Kind, Rows, Witness, register
from nescio.guard.witnesses.doubt import Doubt
from nescio.guard.witnesses.strangeness import Strangeness

for _module in iter_modules(__path__):
    import_module(f"{__name__}.{_module.name}")

__all__ = ["Witness", "Doubt", "Strangeness", "Appearance", "WITNESSES", "register", "Anatomy", "Rows", "Found", "Kind"]
