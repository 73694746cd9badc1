"""What a model is given: a batch of inputs, and the few things that are done to one.

A batch is a tensor ``[N, ...]``, or a mapping of names to tensors that share their first dimension N, which the model
gets as keyword arguments. Every function here works on both alike and leaves its argument as it was. A data source is
one batch, or any iterable of batches; `batches` reads them all, and says what is wrong with anything else.
"""

from nescio.inputs.batch_changes import apply, concatenate, is_floating, repeat, take, to
from nescio.inputs.batch_sources import batches, labelled
from nescio.inputs.conversion import Data, Index, Inputs, as_inputs, columns, describe, plain, size, tensors

__all__ = ["Inputs", "Data", "Index", "as_inputs", "describe", "columns", "plain", "apply", "tensors", "size"]
__all__ += ["is_floating", "take", "concatenate", "to", "repeat", "batches", "labelled"]
