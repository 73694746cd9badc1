"""Results as a page that opens offline and as a table for a terminal."""

from nescio.report.comparison import Comparison, MethodResult, PictureSet
from nescio.report.comparison_page import page
from nescio.report.plain_text import text_table

__all__ = ["Comparison", "MethodResult", "PictureSet", "page", "text_table"]
