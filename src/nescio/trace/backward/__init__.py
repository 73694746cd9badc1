"""Backward passes: gradients at the outputs of operations, for all classes at once, without any weight gradient."""
