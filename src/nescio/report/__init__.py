"""Results as a page that opens offline and as a table for a terminal."""

from nescio.report.comparison import Comparison, MethodResult, PictureSet
from nescio.report.page import page
from nescio.report.text import text_table

__all__ = ["Comparison", "MethodResult", "PictureSet", "page", "text_table"]
