"""Pictures of results: functions that take numbers and give a matplotlib figure, which a user may change and save.

No function here sees a model, and none touches pyplot or any other global state.
"""

from nescio.plots.histogram import histogram
from nescio.plots.roc import roc

__all__ = ["roc", "histogram"]
