# %% [markdown]
# # 5 · Pixels: which part of a picture is unknown?
#
# A segmentation network answers at every pixel. So doubt is a map, and the question "does the model know this?" can
# be asked of each part of a picture. Here a tiny network is trained on digits pasted on photographs. Then something
# is pasted in that it has never seen.

# %%
import numpy as np
import torch
from sklearn.datasets import load_sample_images
from torch import nn
from torch.nn import functional as F

import nescio
from nescio.plots.style import panels

torch.set_num_threads(1)
SIDE, KINDS = 48, 5  # pixels of a picture; digits 0 to 4 are known
photographs = [torch.tensor(p).float().permute(2, 0, 1) / 255 for p in load_sample_images().images]
digits = nescio.data.digits(held_out=500, validation=0.5)


def pictures(count, digits, left, right, seed, strange=None):
    """Crops of the strip from `left` to `right` of the photographs, with two digits and the class of each pixel."""
    random = torch.Generator().manual_seed(seed)

    def whole(low, high):
        return int(torch.randint(low, high, (), generator=random))

    known = digits.x[digits.y < KINDS, 0], digits.y[digits.y < KINDS]
    x, y = torch.empty(count, 3, SIDE, SIDE), torch.zeros(count, SIDE, SIDE, dtype=torch.long)
    for i in range(count):
        photograph = photographs[whole(0, 2)]
        high, wide = photograph.shape[1:]
        top, start = whole(0, high - SIDE), whole(int(left * wide), int(right * wide) - SIDE)
        x[i] = photograph[:, top : top + SIDE, start : start + SIDE]
        corners = torch.randperm(4, generator=random)[:2].tolist()  # a digit lies in a quarter of the picture
        for nth, corner in enumerate(corners):
            size = whole(18, 24)
            down, across = (24 * half + whole(0, 25 - size) for half in divmod(corner, 2))
            at = whole(0, len(known[0]))
            if nth == 0 and strange is not None:
                ink, label = strange[whole(0, len(strange))], -1
            else:
                ink, label = known[0][at], int(known[1][at]) + 1
            ink = F.interpolate(ink[None, None], (size, size), mode="bilinear")[0, 0]
            place = (slice(down, down + size), slice(across, across + size))
            under = x[i][:, *place]
            away = (under.mean((1, 2)) + 0.5) % 1  # a colour that can be seen
            colour = (away + 0.2 * torch.randn(3, generator=random)).clamp(0, 1)
            x[i][:, *place] = under + ink * (colour[:, None, None] - under)
            y[i][*place][ink > 0.5] = label
    return x, y


fit = pictures(1500, digits.train, 0, 0.6, 0)
held_out = pictures(400, digits.validation, 0.6, 0.8, 1)
test = pictures(200, digits.held_out, 0.8, 1, 2)

# %% [markdown]
# The photographs are cut into strips and the digits into three parts, so that the network, what is held out, and the
# test share no pixel.
#
# ## A small U-Net
#
# Down twice, up again, with bridges. It gives logits `[N, 6, 48, 48]`: background and five digits.


# %%
def block(inside, outside):
    return nn.Sequential(
        nn.Conv2d(inside, outside, 3, padding=1), nn.BatchNorm2d(outside), nn.ReLU(),
        nn.Conv2d(outside, outside, 3, padding=1), nn.BatchNorm2d(outside), nn.ReLU(),
    )  # fmt: skip


class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.two, self.three = block(3, 8), block(8, 24), block(24, 48)
        self.back, self.out = block(48 + 24, 24), block(24 + 8, 16)
        self.head = nn.Conv2d(16, 1 + KINDS, 1)

    def forward(self, x):
        one = self.one(x)
        two = self.two(F.max_pool2d(one, 2))
        three = self.three(F.max_pool2d(two, 2))
        back = self.back(torch.cat([F.interpolate(three, scale_factor=2.0), two], 1))
        return self.head(self.out(torch.cat([F.interpolate(back, scale_factor=2.0), one], 1)))


torch.manual_seed(0)
network = UNet().to(memory_format=torch.channels_last)
epochs, rows = 8, 32
optimizer = torch.optim.Adam(network.parameters())
cycle = torch.optim.lr_scheduler.OneCycleLR(
    optimizer, 0.01, epochs=epochs, steps_per_epoch=len(fit[0]) // rows
)
for _ in range(epochs):
    for batch in torch.randperm(len(fit[0])).split(rows)[: len(fit[0]) // rows]:
        x = fit[0][batch].contiguous(memory_format=torch.channels_last)
        loss = F.cross_entropy(network(x), fit[1][batch])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        cycle.step()
network.eval()

with torch.no_grad():
    answer = network(test[0]).argmax(1)
right = answer == test[1]
print(f"right: {right.double().mean():.1%} of all pixels, {right[test[1] > 0].double().mean():.1%} of those of digits")

# %% [markdown]
# ## Maps of doubt
#
# `nescio.score` takes the network as it is, and gives a number for each pixel. `exgrad` is a gradient score: how far
# the last layer would move to learn a pixel, expected over the answers that the network holds possible. It is known
# in closed form, so it costs no backward pass.

# %%
maps = nescio.score(network, test[0], ["entropy", "energy", "exgrad"])
print({name: list(one.shape) for name, one in maps.items()})

# %% A picture with two digits, and maps of its entropy and of its gradients
doubtful = int(nescio.dense.DenseScores(maps["entropy"]).summary("mean").argmax())
shown = {name: maps[name][doubtful] for name in ("entropy", "exgrad")}
nescio.plots.maps(shown, test[0][doubtful], unit="score")

# %% [markdown]
# Is the network wrong where it doubts? `flatten` makes one row of each pixel, and then every metric of
# `nescio.evaluate` is one over pixels. rAULC is 1 if all wrong pixels are more doubtful than all right ones, and 0 if
# doubt says nothing.

# %%
inside = test[1] > 0
for name, one in maps.items():
    _, doubt, well = nescio.dense.flatten(test[1], one, right, mask=inside)
    print(f"{name:8} rAULC on the pixels of digits: {nescio.evaluate.raulc(doubt, well):.2f}")

# %% [markdown]
# ## Something that it has never seen
#
# Now one of the two digits is a capital letter, pasted in the same way. The network has no answer "letter": it must
# call each pixel background or a digit.

# %%
letters = nescio.data.drawn_letters(200)[:, 0]
foreign = pictures(200, digits.held_out, 0.8, 1, 3, strange=letters)
letter = foreign[1] == -1
with torch.no_grad():
    said = network(foreign[0]).argmax(1)
print(f"pixels of letters that are called a digit: {(said[letter] > 0).double().mean():.0%}")

strange_maps = nescio.score(network, foreign[0], ["entropy", "exgrad"])
for name, one in strange_maps.items():
    print(f"{name:8} AUROC of the letters' pixels: {nescio.evaluate.ood(one[~letter], one[letter]).auroc:.2f}")

# %% [markdown]
# Entropy asks whether the answer is clear. `RegionGuard` asks another question: has anything like this been seen
# before? It compares what the network sees at each region with regions of the held-out pictures. It needs no labels.
# Here it listens to the deepest layer, `three`, whose regions are 4 × 4 pixels each.

# %%
guard = nescio.dense.RegionGuard(network, layer="three").fit(held_out[0])
verdict = guard.check(foreign[0])
usual = guard.check(test[0])
print(f"pictures with a letter that have an unknown part: {verdict.unknown(0.05).double().mean():.0%}")
print(f"pictures without: {usual.unknown(0.05).double().mean():.0%}")

# %% Four pictures with a letter, what the network says, the entropy, and the regions that the guard does not know
order = verdict.largest.argsort()[:40:10]
figure, axes = panels(7.0, 7.0, rows=4, columns=4)
heads = ("picture", "answer", "entropy", "p-value of regions")
for i, row in zip(order, np.reshape(axes, (4, 4)), strict=True):
    row[0].imshow(foreign[0][i].permute(1, 2, 0))
    row[1].imshow(said[i], cmap="tab10", vmin=0, vmax=9)
    row[2].imshow(strange_maps["entropy"][i], cmap="magma", vmin=0)
    row[3].imshow(verdict.map((SIDE, SIDE))[i].log10(), cmap="magma_r", vmin=-2.3, vmax=0)
    for ax, head in zip(row, heads, strict=True):
        ax.set_axis_off()
        ax.set_title(head if i == order[0] else "", fontsize="small")
figure

# %% In words
for i in order[:2].tolist():
    print(verdict.words()[i])

# %% [markdown]
# ## A promise
#
# Somebody must find the digits, and wants to know how many pixels are missed. `risk_control` chooses how likely
# "digit" must be for a pixel to be taken, so that of the pixels of digits in a new picture at most 5 % are missed, on
# average over pictures like the held-out ones. The promise needs no assumption about the network.

# %%
with torch.no_grad():
    p_held_out, p = (network(x).softmax(1).movedim(1, -1) for x in (held_out[0], test[0]))
policy = nescio.decide.risk_control(p_held_out, held_out[1], 0.05, "misses", sought=range(1, 1 + KINDS))
print(policy)
found = policy.found(p)
missed = torch.stack([(~f[d]).double().mean() for f, d in zip(found, test[1] > 0, strict=True)])
print(f"on the test pictures: {missed.mean():.1%} missed, {found.double().mean():.1%} of all pixels taken")

# %% [markdown]
# ## What to take from this
#
# 1. Doubt and foreignness are two maps. Pixels at an edge are doubtful and well known; a letter can be called a digit
#    without much doubt.
# 2. A guard's promise and that of `risk_control` are for pictures like those held out. Here the test has other strips
#    of the photographs: nearly, but not quite, the same kind.
# 3. Gradient maps are those of the last layer. For one number of the whole network for a picture, or for one object
#    in it, see `nescio.dense.whole_network`.
