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
        corners = torch.randperm(4, generator=random)[:2].tolist()
        for nth, corner in enumerate(corners):  # a digit lies in a quarter of the picture
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


fit = pictures(1200, digits.train, 0, 0.6, 0)
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
of_digits = right[test[1] > 0].double().mean()
print(f"right: {right.double().mean():.1%} of all pixels, {of_digits:.1%} of those of digits")

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
# doubt says nothing. No score is best everywhere: here energy tells most, the gradients least.

# %%
for name, one in maps.items():
    _, doubt, well = nescio.dense.flatten(test[1], one, right, mask=test[1] > 0)
    print(f"{name:8} rAULC on the pixels of digits: {nescio.evaluate.raulc(doubt, well):.2f}")

# %% [markdown]
# ## Something that it has never seen
#
# Now one of the two digits is something else, pasted in the same way: a capital letter, or a plain tile. The network
# has no answer for these. It must call each pixel background or a digit.

# %%
strange = {"letters": nescio.data.drawn_letters(200)[:, 0], "tiles": torch.ones(1, 8, 8)}
foreign = {name: pictures(60, digits.held_out, 0.8, 1, 3, ink) for name, ink in strange.items()}
inside = {name: y == -1 for name, (_, y) in foreign.items()}
entropy, said = {}, {}
for name, (x, _) in foreign.items():
    entropy[name] = nescio.score(network, x, "entropy")
    with torch.no_grad():
        said[name] = network(x).argmax(1)
    digit = (said[name][inside[name]] > 0).double().mean()
    print(f"{name}: {digit:.0%} of their pixels are called a digit")

# %% [markdown]
# Entropy asks whether the answer is clear. `RegionGuard` asks another question: has anything like this been seen
# before? It compares what the network sees at each region with regions of the held-out pictures, and needs no labels.
# Here it listens to the deepest layer, `three`, whose regions are 4 × 4 pixels each.

# %%
guard = nescio.dense.RegionGuard(network, layer="three").fit(held_out[0])
verdict = {name: guard.check(x) for name, (x, _) in foreign.items()}


def auroc(values, where):
    return nescio.evaluate.ood(values[~where], values[where], bootstrap=0).auroc


for name, where in inside.items():
    p_map = verdict[name].map((SIDE, SIDE))
    print(
        f"{name}: AUROC of their pixels by entropy {auroc(entropy[name], where):.2f}, "
        f"by the guard {auroc(1 - p_map, where):.2f}"
    )

# %% [markdown]
# So these are two questions with two answers. A letter looks like a digit from close by, and the network wavers
# between several digits: entropy sees it well. A tile is like nothing that the network has seen, yet most of it is
# called background, often without much doubt. In the maps bright is doubtful, or unlike all that is known.

# %% Two pictures with a letter and two with a tile: what the network says, its entropy, and the guard's p-values
figure, axes = panels(7.0, 7.2, rows=4, columns=4)
grid = np.reshape(axes, (4, 4))
heads = ("picture", "answer", "entropy", "p-value of regions")
shown = [(name, int(i)) for name in foreign for i in verdict[name].largest.argsort()[:8:4]]
for row, (name, i) in zip(grid, shown, strict=True):
    row[0].imshow(foreign[name][0][i].permute(1, 2, 0))
    row[1].imshow(said[name][i], cmap="tab10", vmin=0, vmax=9)
    row[2].imshow(entropy[name][i], cmap="magma", vmin=0, vmax=np.log(1 + KINDS))
    row[3].imshow(verdict[name].map((SIDE, SIDE))[i].log10(), cmap="magma_r", vmin=-2.3, vmax=0)
for ax in axes:
    ax.set_axis_off()
for ax, head in zip(grid[0], heads, strict=True):
    ax.set_title(head, fontsize="small")
figure

# %% [markdown]
# The guard's map comes with a promise: of the regions of a picture like the held-out ones at most 5 % have p ≤ 0.05,
# on average. `unknown` judges whole pictures by their most foreign region, with the same promise for pictures. And
# there are words.

# %%
usual = guard.check(test[0])
for name, one in {"usual": usual, **verdict}.items():
    print(f"{name}: {one.unknown(0.05).double().mean():.0%} of the pictures have an unknown part")
print()
print(verdict["tiles"].words()[shown[2][1]])

# %% [markdown]
# ## A promise
#
# Somebody must find the digits, and wants to know how many pixels are missed. `risk_control` chooses how likely
# "digit" must be for a pixel to be taken, so that of the pixels of digits in a new picture at most 5 % are missed, on
# average over pictures like the held-out ones. The promise needs no assumption about the network. The test has other
# strips of the photographs, so it may be a little more there.

# %%
with torch.no_grad():
    p_held_out, p = (network(x).softmax(1).movedim(1, -1) for x in (held_out[0], test[0]))
policy = nescio.decide.risk_control(
    p_held_out, held_out[1], 0.05, "misses", sought=range(1, 1 + KINDS)
)
print(policy)
found = policy.found(p)
missed = torch.stack([(~f[d]).double().mean() for f, d in zip(found, test[1] > 0, strict=True)])
print(
    f"on the test pictures: {missed.mean():.1%} missed, {found.double().mean():.1%} of all pixels taken"
)

# %% [markdown]
# ## What to take from this
#
# 1. Doubt and foreignness are two maps. Pixels at an edge are doubtful and well known; a tile can be
#    unknown and called background without much doubt.
# 2. A guard's promise and that of `risk_control` are for pictures like those held out. Here the test has other strips
#    of the photographs: nearly, but not quite, the same kind.
# 3. Gradient maps are those of the last layer. For one number of the whole network for a picture, or for one object
#    in it, see `nescio.dense.whole_network`.
