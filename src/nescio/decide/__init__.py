"""From scores to decisions: rules with a promise, prediction sets, words for people, and two watches.

policy = nescio.decide.threshold(scores, correct, risk=0.05)   # of held-out examples, and which were right
print(policy)                                                  # the promise, or that none can be made, in a sentence
policy.accept(new_scores)                                      # True where the answer may be used without a person
"""

from nescio.decide.binomial import binomial_cdf, upper_bound
from nescio.decide.conformal import ConformalPolicy, conformal
from nescio.decide.drift import DriftMonitor, DriftTest, DriftVerdict, drift, drift_test
from nescio.decide.explanation import Explanation, explain
from nescio.decide.loading import load
from nescio.decide.monitor import Monitor, Verdict, monitor
from nescio.decide.policy import Policy
from nescio.decide.risk_control import RiskPolicy, risk_control
from nescio.decide.thresholds import quantile, threshold

__all__ = [
    "threshold",
    "quantile",
    "conformal",
    "risk_control",
    "explain",
    "monitor",
    "drift",
    "drift_test",
    "load",
    "Policy",
    "ConformalPolicy",
    "RiskPolicy",
    "Explanation",
    "Monitor",
    "Verdict",
    "DriftMonitor",
    "DriftVerdict",
    "DriftTest",
    "binomial_cdf",
    "upper_bound",
]
