"""Optional packages: imported where they are there, named with the command that installs them where they are not."""

import math

import pytest

from nescio._common.lazy_imports import need
from nescio.types import MissingExtra


def test_a_package_that_is_there_is_imported() -> None:
    assert need("math", "none") is math


def test_a_package_that_is_missing_is_named_with_the_command_that_installs_it() -> None:
    words = r"expected the package 'not_there' .*; install it with: pip install 'nescio\[files\]'"
    with pytest.raises(MissingExtra, match=words):
        need("not_there.at_all", "files")
