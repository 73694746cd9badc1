"""The evidence for nescio: the experiments of four papers as studies, with the networks and data sets they need.

`nescio reproduce` and `nescio train` come from here; without an installation, `python -m nescio_papers reproduce …`.
"""
