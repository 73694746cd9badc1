"""Names that another package adds to nescio's modules."""

import pytest

import nescio
from nescio import plugins
from nescio.plugins import lent_names


def test_names_of_the_papers_say_what_to_install_where_they_are_missing(monkeypatch) -> None:
    monkeypatch.setattr(plugins, "plugins", lambda group: {})
    for module, name in ((nescio.data, "load_set"), (nescio.zoo, "resnet18"), (nescio, "reproduce")):
        vars(nescio).pop("reproduce", None)
        with pytest.raises(AttributeError, match=r"comes with the package nescio_papers; install it: pip install "):
            getattr(module, name)


def test_only_known_names_are_looked_up(monkeypatch) -> None:
    monkeypatch.setattr(plugins, "plugins", None)  # it must not be called
    with pytest.raises(AttributeError, match="module 'here' has no attribute 'other'"):
        lent_names("here", ["one"])("other")
