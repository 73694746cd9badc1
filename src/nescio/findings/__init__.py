"""What a report says of a model on somebody's data (`gather`): what `nescio.report.model_page` lays out."""

from nescio.findings.gathering import gather, plain, usual

__all__ = ["gather", "plain", "usual"]
