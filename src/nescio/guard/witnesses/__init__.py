"""The witnesses, one file each; a file that is put into this folder and registers a class is found by itself."""

from importlib import import_module
from pkgutil import iter_modules

from nescio import scores
from nescio.guard.witnesses.appearance import Appearance
from nescio.guard.witnesses.base import WITNESSES, Anatomy, Kind, Rows, State, Witness, register
from nescio.guard.witnesses.doubt import Doubt
from nescio.guard.witnesses.strangeness import Strangeness
from nescio.scores import Method
from nescio.types import InputError

for _module in iter_modules(__path__):
    import_module(f"{__name__}.{_module.name}")

__all__ = ["Witness", "Doubt", "Strangeness", "Appearance", "WITNESSES", "register", "get"]
__all__ += ["Anatomy", "Rows", "State", "Kind"]


def get(witness: str | Witness, doubt: str | Method = "gen") -> Witness:
    """Return a witness by its name.

    Args:
        witness: The name; an object is returned as it is.
        doubt: The score that the witness of doubt uses.

    Returns:
        The witness.

    Raises:
        InputError: There is no such witness.

    Examples:
        >>> get("strangeness")
        Strangeness(neighbours=10, weight=0.5)
    """
    if isinstance(witness, Witness):
        return witness
    if witness == "doubt":
        return Doubt(scores.get(doubt))
    if not isinstance(witness, str) or witness not in WITNESSES:
        raise InputError(f"expected the name of a witness ({', '.join(WITNESSES)}) or an object, got {witness!r}")
    return WITNESSES[witness]()
