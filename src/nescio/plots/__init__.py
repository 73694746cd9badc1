"""Pictures of results: functions from numbers to a matplotlib figure, which a user may change and save.

No function here sees a model, and none touches pyplot or other global state.
"""

from nescio.plots.embedding_figure import embedding
from nescio.plots.histogram import histogram
from nescio.plots.kinds import kinds
from nescio.plots.map_figures import feature_bars, maps
from nescio.plots.reliability import reliability
from nescio.plots.risk_coverage import risk_coverage
from nescio.plots.roc import roc

__all__ = ["roc", "histogram", "reliability", "risk_coverage", "kinds", "embedding", "maps", "feature_bars"]
