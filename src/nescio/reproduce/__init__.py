"""The papers' tables as short declarations, run on real data, and shown beside the numbers they are compared with.

results = nescio.reproduce.run("table1", "smoke", work="work")
path = nescio.reproduce.save(results)
html = nescio.reproduce.render(results)
"""

from nescio.reproduce.compare import summary
from nescio.reproduce.markdown import markdown
from nescio.reproduce.page import render
from nescio.reproduce.results import FOLDER, Results, joined, load, save
from nescio.reproduce.run import run
from nescio.reproduce.scale import SCALES, Scale
from nescio.reproduce.study import Column, Part, Row, Study, studies

__all__ = [
    "run",
    "save",
    "load",
    "joined",
    "render",
    "markdown",
    "summary",
    "studies",
    "SCALES",
    "FOLDER",
    "Study",
    "Part",
    "Row",
    "Column",
    "Scale",
    "Results",
]
