"""Adapters to other libraries, one file each. Each loads its library with itself, so it is imported when it is used.

nescio.pipeline                transformers: a pipeline whose answers say how far to trust them
nescio.sklearn                 scikit-learn: `GuardedClassifier`, `UncertaintyScorer`
nescio.lightning               Lightning: `GuardCallback`
nescio.doors.validation        the numbers of that callback, for a training loop of your own
nescio.doors.pytorch_ood       pytorch-ood: a method as a detector (`nescio.scores.from_pytorch_ood` is the way back)
nescio.doors.openood           OpenOOD: a method as a post-processor
"""
