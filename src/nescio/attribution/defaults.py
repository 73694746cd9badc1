"""The settings that are used where none are given, all in one place.

No paper states TAU1 and TAU2: they are those of a sweep on held-out pictures (`nescio reproduce ua-sweep`).
"""

TAU1 = 0.05
"""Temperature of the step from probabilities to logits: small leaves a class's doubt with its own logit."""
TAU2 = 0.3
"""Temperature of the softmax over places: small makes a map sharp, large makes it flat."""
MEMBERS = 10
"""Samples of the distribution that is made around a single network."""
COPIES = 25
"""Noisy copies of SmoothGrad."""
NOISE = 0.1
"""Their noise, as a share of the range of each input."""
STEPS = 50
"""Points on the path of integrated gradients."""
BLUR_STEPS = 50
"""Points on the path of blur integrated gradients."""
BLUR = 1.5
"""Width of the blur of `blur_gradient`, and of signs, in pixels: that of the blurring test."""
FEW = 20
"""Of as many classes the logits of all members have a map each; of more some are drawn."""
DRAWN = 16
"""Maps of logits that are drawn for an input where there are many classes."""
