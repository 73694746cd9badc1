# %% [markdown]
# # 4 · A newsroom: what does "70 % likely manipulated" mean?
#
# A desk gets pictures from everywhere and a detector that says how likely each is manipulated. Five things are
# known before it starts. Accuracy is paramount. No model is always right. Some pictures are ambiguous. Some answers
# are confidently wrong. And nobody knows what to do with "70 %".
#
# What the desk needs is not a number but a decision: **use the answer**, or **let a person look**. This page builds
# a small detector on bundled photographs and turns its doubt into that decision, with a promise that can be
# checked. Then it shows where the promise ends.

# %%
import torch
from sklearn.datasets import load_sample_images
from torch import nn
from torch.nn import functional as F

import nescio
from nescio.plots.style import panels
from nescio.posteriors import DeepEnsemble
from nescio.training import Recipe

torch.set_num_threads(1)
SIDE = 16
photographs = [torch.tensor(p).float().mean(2) / 255 for p in load_sample_images().images]

# %% [markdown]
# ## The pictures
#
# Windows of 16×16 pixels of two photographs, in four strips that do not touch: to train on, to tune what the
# detector says, to set the rule, to test it. A rule keeps its promise only on pictures that nothing was fitted to.
# Half of the windows are forged: a piece of another window, brought to its size by resampling, is pasted in.
# Resampling leaves a piece that is a little too smooth, and that is what a detector can find. In an even sky there
# is nothing to find.


# %%
def windows(left, right, count, seed):
    strips = [p[:, int(left * p.shape[1]) : int(right * p.shape[1])] for p in photographs]
    every = torch.cat(
        [s.unfold(0, SIDE, 6).unfold(1, SIDE, 6).reshape(-1, 1, SIDE, SIDE) for s in strips]
    )
    return every[torch.randperm(len(every), generator=torch.Generator().manual_seed(seed))[:count]]


def forged(x, seed, resampled=True):
    random = torch.Generator().manual_seed(seed)
    donors = x[torch.randperm(len(x), generator=random)]
    if resampled:
        donors = F.interpolate(F.avg_pool2d(donors, 2), scale_factor=2, mode="bilinear")
    made = x.clone()
    for picture, donor in zip(made, donors, strict=True):
        size = int(torch.randint(6, 11, (), generator=random))
        top, left = torch.randint(1, SIDE - size, (2,), generator=random).tolist()
        place = (slice(None), slice(top, top + size), slice(left, left + size))
        picture[place] = donor[place] - donor[place].mean() + picture[place].mean()
    return made.clamp(0, 1)


def labelled(left, right, count, seed):
    x = windows(left, right, count, seed)
    half = len(x) // 2
    return torch.cat([x[:half], forged(x[half:], seed)]), (torch.arange(len(x)) >= half).long()


fit, tuning, held_out, test = (
    labelled(0, 0.4, 2400, 0),
    labelled(0.43, 0.53, 600, 3),
    labelled(0.56, 0.73, 1400, 1),
    labelled(0.76, 1, 1000, 2),
)
NAMES = ["genuine", "manipulated"]

# %% Five genuine windows in the upper row; below, five with a piece that was pasted in and looks too smooth
figure, axes = panels(8.0, 3.6, rows=2, columns=5)
textured = (test[0].flatten(1).std(1) > 0.08).nonzero().squeeze(1)
for ax, i in zip(axes, [*textured[:5], *textured[-5:]], strict=True):
    ax.imshow(test[0][i, 0].numpy(), cmap="gray", vmin=0, vmax=1)
    ax.set_title(NAMES[test[1][i]], fontsize="small")
    ax.set_axis_off()
figure

# %% [markdown]
# ## The detector
#
# It looks at how rough the picture is in each of its parts (the energy of a Laplacian), and a small network
# decides. Three of them, trained apart, make an ensemble, so that doubt can be told apart.


# %%
class Detector(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("laplacian", torch.tensor([[[[0.0, -1, 0], [-1, 4, -1], [0, -1, 0]]]]))
        self.decide = nn.Sequential(
            nn.Flatten(),
            nn.Linear(49, 64),
            nn.ReLU(),
            nn.Linear(64, 32),
            nn.ReLU(),
            nn.Linear(32, 2),
        )

    def forward(self, x):
        rough = F.conv2d(F.pad(x, (1, 1, 1, 1), mode="replicate"), self.laplacian)
        return self.decide((F.avg_pool2d(rough.square(), 4, 2) + 1e-5).log() / 3 + 2)


recipe = Recipe(
    epochs=16, optimizer="adam", lr=3e-3, weight_decay=0.0, batch_size=64, schedule="one-cycle"
)
detector = DeepEnsemble.train(Detector, fit, members=3, seed=0, recipe=recipe, progress=False)
detector = nescio.posteriors.Temperature(detector).fit(tuning)
p_held_out, p = detector.predict(held_out[0]), detector.predict(test[0])
doubt_held_out, doubt = nescio.decompose(p_held_out), nescio.decompose(p)
right_held_out, right = p_held_out.mean(0).argmax(1) == held_out[1], p.mean(0).argmax(1) == test[1]
print(f"right on the test strip: {right.double().mean():.1%}")

# %% [markdown]
# ## What "70 %" means
#
# If the detector is calibrated, of all pictures of which it says "70 % manipulated" about seven in ten are. That
# can be counted. It is a statement about many pictures. For the one on the desk it says: *do not rely on this
# answer*.

# %%
said = p.mean(0)[:, 1]
for low, high in [(0.0, 0.1), (0.3, 0.5), (0.5, 0.7), (0.7, 0.9), (0.9, 1.0)]:
    those = (said > low) & (said <= high)
    share = (test[1][those] == 1).double().mean()
    print(
        f"said {low:.0%} to {high:.0%}: {int(those.sum()):4} pictures, of which {share:.0%} were manipulated"
    )

# %% [markdown]
# ## From the doubt to a rule
#
# The desk says what it can live with: at most one wrong answer in ten among those that nobody checks. `threshold`
# finds the rule on the held-out strip: how much doubt is too much. If no rule can keep the promise it says so, and
# accepts nothing.

# %%
policy = nescio.decide.threshold(doubt_held_out.total, right_held_out, risk=0.10, confidence=0.9)
print(policy)
print()
print(nescio.decide.threshold(doubt_held_out.total, right_held_out, risk=0.01, confidence=0.9))

# %% The share of wrong answers among the accepted ones against the share that is accepted, and the rule
curves = {
    "total doubt": nescio.evaluate.risk_coverage(doubt_held_out.total, right_held_out),
    "epistemic doubt": nescio.evaluate.risk_coverage(doubt_held_out.epistemic, right_held_out),
}
nescio.plots.risk_coverage(curves, policy)

# %% [markdown]
# Does it hold on the strip that nobody has seen?

# %%
accepted = policy.accept(doubt.total)
wrong_share = (~right[accepted]).double().mean().item()
checked_share = (~right[~accepted]).double().mean().item()
print(
    f"accepted without a person: {accepted.double().mean():.0%}, of which wrong: {wrong_share:.1%}"
)
print(f"sent to a person: {(~accepted).double().mean():.0%}, of which wrong: {checked_share:.1%}")

# %% [markdown]
# ## In words
#
# The editor sees sentences, not nats. They come from where a picture ranks among known ones.

# %%
chosen = [int(doubt.total.argmin()), int(doubt.total.argmax()), int(doubt.epistemic.argmax())]
pick = torch.tensor(chosen)
words = nescio.decide.explain(
    nescio.decompose(p[:, pick]),
    doubt_held_out,
    policy,
    scores=doubt.total[pick],
    probabilities=p.mean(0)[pick],
    class_names=NAMES,
)
for place, said_of in zip(chosen, words, strict=True):
    print(f"picture {place}: {said_of.advice.upper()}. {said_of}\n")

# %% [markdown]
# Where does the doubt come from? `nescio.explain` spreads the total doubt over the pixels; the map adds up to it.

# %% One doubtful window and the map of its total doubt
i = int(textured[doubt.total[textured].argmax()])
why = nescio.explain(detector, test[0][i : i + 1], of="total", path="smoothgrad", progress=False)
nescio.plots.maps({"total": why.maps[0]}, test[0][i], values={"total": float(why.uncertainty[0])})

# %% [markdown]
# Read it so: a dark pixel carries much of the doubt, so that is where a person should look first. It does not say that
# something is wrong there, and a pixel that speaks *for* an answer can be as dark as one that disturbs. Which of the
# two it is, `explain(..., "blur_gradient")` tells:
# [which map to take](../how-to/explain.md#which-map-and-what-it-shows).
#
# ## Where the promise ends
#
# The promise holds *for pictures like the held-out ones*. Somebody pastes without resampling. The pasted piece is
# now as rough as the rest, and the detector has never seen that.

# %%
x_new = windows(0.76, 1, 500, 3)
new = forged(x_new, 3, resampled=False)
p_new = detector.predict(new)
missed = p_new.mean(0).argmax(1) == 0
accepted_new = policy.accept(nescio.decompose(p_new).total)
missed_share = missed[accepted_new].double().mean().item()
print(f"called genuine: {missed.double().mean():.0%}")
print(
    f"accepted without a person: {accepted_new.double().mean():.0%}, of which wrong: {missed_share:.0%}"
)

# %% [markdown]
# The doubt does not rise, because the detector looks at roughness and finds nothing odd. So the desk needs more
# than a threshold: labels for a sample of what was accepted, and a watch over what comes in. `monitor` counts how
# much is sent to people, and says when that share leaves what the held-out pictures allow, upwards or (`two_sided`)
# downwards. It may be asked after every picture. Here genuine pictures from a softer lens come after the test
# strip.

# %%
watch = nescio.decide.monitor(policy, two_sided=True)
print("usual pictures:", watch.update(doubt.total), "\n")
softer = F.avg_pool2d(F.pad(windows(0.76, 1, 1000, 4), (1, 1, 1, 1), mode="replicate"), 3, 1)
p_softer = detector.predict(softer)
verdict = watch.update(nescio.decompose(p_softer).total)
print("softer pictures:", verdict)
called = (p_softer.mean(0).argmax(1) == 1).double().mean().item()
print(f"all of the softer pictures are genuine, and {called:.0%} are called manipulated")

# %% [markdown]
# ## What a desk can take from this
#
# 1. Ask for a decision, not for a probability. A rule with a stated risk can be checked afterwards.
# 2. Explain what is accepted with care, and not at all what is refused: an explanation of an answer that is a guess
#    only confirms what its reader believes already.
# 3. "The model has not seen this kind" and "this picture is ambiguous" are different sentences, and call for
#    different people.
# 4. A promise is for pictures like those it was made on. Label a sample of what passes, for ever.
