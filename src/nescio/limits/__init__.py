"""Where a network is certain far away from everything it has seen: regions, rays and limits of ReLU networks.

    limits.region(model, x)               # f(x) = V x + a, and the polytope on which that holds
    limits.ray(model, x, direction)       # every breakpoint, the limit of the softmax and of each uncertainty
    limits.audit(model, x)                # along which directions is it blindly certain? A table, and in words
    limits.surface(limits.uncertainty(model, "entropy"), (-3, 3), (-3, 3))

For networks that are linear piece by piece the answers are exact; for others the audit measures.
"""

from nescio.limits.audit_table import Audit, AuditRow
from nescio.limits.audits import audit
from nescio.limits.rays import Ray, ray
from nescio.limits.regions import Region, region
from nescio.limits.surfaces import Surface, surface, uncertainty
from nescio.limits.walk import Path

__all__ = ["region", "ray", "audit", "surface", "uncertainty", "Region", "Ray", "Path", "Audit", "AuditRow", "Surface"]
