"""The names that autograd gives to the nodes of its graph, and what the engine knows of each: they stand here alone.

PyTorch names a node after the operation, ``AddmmBackward0`` for `torch.addmm`, and after the class of a
`torch.autograd.Function`, ``DataConvolutionBackward`` for our `DataConvolution`.
"""

# operations whose operands have rules
ADD = "AddBackward0"
SUB = "SubBackward0"
MUL = "MulBackward0"
EXPAND = "ExpandBackward0"
REPEAT = "RepeatBackward0"
PRELU = "PreluKernelBackward0"
ADDMM = "AddmmBackward0"
MM = "MmBackward0"
LINEAR = "LinearBackward0"
CONVOLUTION = "ConvolutionBackward0"
EMBEDDING = "EmbeddingBackward0"
BATCH_NORM = "NativeBatchNormBackward0"
LAYER_NORM = "NativeLayerNormBackward0"
GROUP_NORM = "NativeGroupNormBackward0"
RMS_NORM = "FusedRmsNormBackward0"

# our own, in the place of PyTorch's (`backward.substitutes`)
DATA_CONVOLUTION = "DataConvolutionBackward"
AFFINE_BATCH_NORM = "AffineBatchNormBackward"
DATA_LINEAR = "DataLinearBackward"
DATA_LAYER_NORM = "DataLayerNormBackward"
PARTS = "PartsBackward"
POINTWISE = "PointwiseBackward"
ATTENTION = "AttentionBackward"
PACKED_ATTENTION = "PackedBackward"
SCORES = "ScoresBackward"
ROWS_SOFTMAX = "RowsSoftmaxBackward"
WEIGHTED = "WeightedBackward"
CHANNEL_SCALE = "ChannelScaleBackward"

INDEX = "IndexBackward0"
INDEX_SELECT = "IndexSelectBackward0"
LEAF = "torch::autograd::AccumulateGrad"
"""The leaf of a parameter or of an input."""

EMBEDDINGS = "Embedding"
"""How the names of all look-ups in a table begin."""

FUSED_ATTENTION = "ScaledDotProduct"
"""How the names of all fused attention kernels begin."""

BATCH_NORMS = {
    "NativeBatchNormBackward0": "eps", "CudnnBatchNormBackward0": "epsilon", "MiopenBatchNormBackward0": "epsilon",
    AFFINE_BATCH_NORM: None,
}  # fmt: skip
"""Names of the operation, and under which name it keeps ε (None: our own, which keeps things its own way)."""

SPLITS = {"SplitBackward0", "SplitWithSizesBackward0", "UnsafeSplitBackward0", "UnbindBackward0"}
"""Operations that cut a tensor into disjoint blocks."""

PLAIN = {"TBackward0", "AliasBackward0", "CloneBackward0", "ToCopyBackward0"}
"""Operations on one tensor through which equal steps are known to address equal entries."""

TURNS = PLAIN | {"TransposeBackward0", "TransposeBackward1", "PermuteBackward0"}
"""Operations that keep every entry, and of a matrix its rows or columns as well."""

CHAIN = TURNS | SPLITS | {
    "ViewBackward0", "ReshapeAliasBackward0",
    "UnsafeViewBackward0", "UnsqueezeBackward0", "UnsqueezeBackward1", "SqueezeBackward0", "SqueezeBackward1",
    "SqueezeBackward2", "SliceBackward0", "SelectBackward0",
}  # fmt: skip
"""Operations that only re-arrange one tensor."""

VIEWS = CHAIN - {"CloneBackward0", "ToCopyBackward0"} | {EXPAND, PARTS}
"""Operations that give a view of what they take, and so keep nothing."""

UNARY = {
    "SigmoidBackward0", "TanhBackward0", "ExpBackward0", "LogBackward0", "NegBackward0", "ReluBackward0",
    "SoftplusBackward0", "ClampBackward0", "ClampBackward1", "ClampMinBackward0", "ClampMaxBackward0",
}  # fmt: skip
"""Operations on one tensor alone."""

PRODUCTS = {ADDMM: ("mat1", 1), MM: ("self", 0), LINEAR: ("input", 0)}
"""Matrix products: under which name they keep their data, and in which slot it is."""

BLIND = "NotImplemented"
"""In the name of an operation without a derivative: autograd warns there, and goes on with zeros."""

DIMS = ("_saved_dim", "_saved_dim0", "_saved_dim1", "_saved_dims")
"""Where operations keep the dimensions that they work along."""

ALONG = {
    "GatherBackward0", INDEX_SELECT, "SortBackward0", "SortBackward1", "TopkBackward0", "KthvalueBackward0",
}  # fmt: skip
"""Operations that move along one dimension of one tensor."""

MOVERS = ALONG | {
    INDEX, "IndexPutBackward0", "IndexAddBackward0", "IndexCopyBackward0", "IndexReduceBackward0",
    "ScatterBackward0", "ScatterBackward1", "ScatterAddBackward0", "ScatterReduceBackward0", "MaskedSelectBackward0",
    "MaskedScatterBackward0", "TakeBackward0", "PutBackward0",
}  # fmt: skip
"""Operations that pick or move rows by an index."""
