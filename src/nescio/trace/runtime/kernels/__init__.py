"""GPU kernels for gradients of many cotangents that share one operand, in Triton.

In a backward pass of K cotangents each gradient has K times the rows of what the forward pass saved. PyTorch's own
kernels either copy the saved tensor K times or read it through slow broadcasting; these read each gradient once, write
the next one once, and take what the rules need (sums over positions) on the way:

* `times`           g[k] · d: every element-wise activation, whose derivative d all cotangents share; of two gradients
                    g that arrive there it takes the sum;
* `affine`          g[k] · γ r by channel with Σ g x̂ and Σ g over positions: batch norm as an affine map;
* `channel_map`     that map itself, forward, from the parameters of the norm;
* `layer_norm`      the data gradient of layer norm, with the same two sums for each input;
* `patches`         the patches of a picture under a convolution's positions, side by side;
* `depthwise`       convolutions in which every channel has a kernel of its own, and their data gradients;
* `depthwise_weight`  the gradients of their weights, written down;
* `turned`          gradients with those of all cotangents side by side, for one product with what they share;
* `contracted`      ⟨d dᵀ, a aᵀ⟩ for each gradient d, without ever writing d dᵀ;
* `attention`       the data gradients of softmax attention with heads of at most 64: up to 128 positions in one tile,
                    more of them tile by tile;
* `moments`         mean and standard deviation of rows, for statistics of activations: no gradient, but one pass;
* `scaled`          both gradients of pictures times one number for each input and channel;
* `product`, `weighted`  those of attention that is written out in products, for windows of at most 64 positions.

Triton comes with PyTorch's CUDA builds. Where it is missing (`ready` is False) every caller has a form in plain PyTorch
operations. Each kernel keeps its sums in float32. Sizes are not specialised on, so that few variants of a kernel are
compiled for all networks, side by side as soon as it is known that they will be needed (`ahead`). Triton keeps them on
disk (`~/.triton/cache`): a second process has nothing to compile.
"""

from nescio.trace.runtime.kernels import ahead
from nescio.trace.runtime.kernels.attention_kernel import attention
from nescio.trace.runtime.kernels.base import ready
from nescio.trace.runtime.kernels.channel_map import channel_map
from nescio.trace.runtime.kernels.contraction import contracted
from nescio.trace.runtime.kernels.depthwise import depthwise, depthwise_weight
from nescio.trace.runtime.kernels.product_kernel import product, weighted
from nescio.trace.runtime.kernels.row_moments import moments
from nescio.trace.runtime.kernels.scaling import scaled
from nescio.trace.runtime.kernels.single_pass import affine, layer_norm, patches, times, turned

__all__ = [
    "affine",
    "ahead",
    "attention",
    "channel_map",
    "contracted",
    "depthwise",
    "depthwise_weight",
    "layer_norm",
    "moments",
    "patches",
    "product",
    "ready",
    "scaled",
    "times",
    "turned",
    "weighted",
]
