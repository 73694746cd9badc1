"""Pictures of the study: what was shown, what the network says, where it doubts, and what the guard does not know."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from torch import Tensor

from nescio.plots.style import INK, panels
from nescio_papers.runner.drawing import svg
from nescio_papers.runner.program import Figure

HEADS = ("picture", "answer", "entropy", "p of the RegionGuard")


def drawn(rows: Sequence[tuple[str, Tensor, Tensor, Tensor, Tensor]]) -> Figure:
    """Draw two pictures a line: picture, answer, entropy, p-values of regions.

    Args:
        rows: The name of the kind, the picture uint8 ``[3, H, W]``, and ``[H, W]``: classes, entropy, p-values.
    """
    lines = (len(rows) + 1) // 2
    figure, axes = panels(8.8, 1.15 * lines + 0.3, lines, 8)
    for ax in axes:
        ax.set_axis_off()
    for at, (name, x, answer, entropy, p) in enumerate(rows):
        own = axes[4 * at : 4 * at + 4]
        own[0].imshow(np.moveaxis(x.numpy(), 0, -1))
        own[1].imshow(answer.numpy(), cmap="tab20", vmin=0, vmax=19)
        own[2].imshow(entropy.numpy(), cmap="magma", vmin=0, vmax=float(np.log(11)))
        own[3].imshow(np.log10(p.numpy()), cmap="magma_r", vmin=-2.5, vmax=0)
        own[0].set_title(name, fontsize=7, color=INK, pad=2)
        if at < 2:
            for ax, head in zip(own[1:], HEADS[1:], strict=True):
                ax.set_title(head, fontsize=7, color=INK, pad=2)
    alt = "Pictures with a foreign object, the network's answer, its entropy and the p-values of the RegionGuard"
    text = (
        "The first two test pictures of each kind of foreign object, and the last seed. Entropy from 0 (black) to "
        "log 11; p-values from 1 (black) to 0.003 (pale)."
    )
    return Figure("What is shown and what is seen", text, alt, svg(figure, alt, "segmentation"))
