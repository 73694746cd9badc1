"""The engine room: gradients of a classifier's log-probabilities, for every input, class and layer.

class_gradients(model, x)      norms of ∂ log p_c/∂θ_l, [N, C, L]
gradient_norms(...)            the same for other cotangents
input_gradients(...)           gradients at the input for given cotangents
output_gradients(...)          values and gradients at the outputs of modules for given cotangents
replay                         recordings of passes on a GPU; `replay.clear()` lets go of their memory
reference                      the slow, obvious loop that all of it is tested against
"""

from nescio.trace import reference
from nescio.trace.api import class_gradients, gradient_norms
from nescio.trace.module_gradients import input_gradients, output_gradients
from nescio.trace.runtime import replay

__all__ = ["class_gradients", "gradient_norms", "input_gradients", "output_gradients", "reference", "replay"]
