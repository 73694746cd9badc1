"""Networks that come inside packages of PyPI: one loader each, for `packages.py`."""
