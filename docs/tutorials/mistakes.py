# %% [markdown]
# # 1 · A network, its mistakes, and what is no digit
#
# A small network learns handwritten digits. Then we look at what it gets wrong, and at what it says of things that
# are no digits at all. Both show the same trouble: the network is often sure where it should not be.
#
# The digits are the 8×8 pictures that scikit-learn carries, so nothing is fetched. We train on few of them on
# purpose, and keep the rest to look at errors.

# %%
import torch
from sklearn.metrics import f1_score
from torch import nn

import nescio
from nescio.plots.style import panels
from nescio.training import Recipe, train

torch.set_num_threads(1)
data = nescio.data.digits(held_out=700, validation=0.6)
fit, tune, test = data.train, data.validation, data.held_out
print(
    f"{len(fit.x)} digits to train on, {len(tune.x)} to choose an epoch with, {len(test.x)} to test on"
)

# %% [markdown]
# ## Train
#
# A perceptron with two hidden layers. `nescio.training.train` is a plain loop: seeded, and it leaves the model with
# the weights of its best epoch. Any other loop would do.

# %%
torch.manual_seed(0)
model = nn.Sequential(
    nn.Flatten(), nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 10)
)
recipe = Recipe(
    epochs=40, optimizer="adam", lr=3e-3, weight_decay=0.0, batch_size=64, schedule="constant"
)
history = train(model, (fit.x, fit.y), (tune.x, tune.y), recipe=recipe, progress=False)

# %% The loss against the epoch: on training data it falls to zero, on validation data it falls and then stays
figure, (ax,) = panels(6.0, 3.0)
ax.plot([e.number for e in history], [e.loss for e in history], label="training")
ax.plot([e.number for e in history], [e.validation_loss for e in history], "--", label="validation")
ax.set(xlabel="epoch", ylabel="cross-entropy", ylim=(0, None))
ax.legend(frameon=False)
figure

# %% [markdown]
# ## How good is it

# %%
with torch.no_grad():
    probabilities = model(test.x).softmax(1)
confidence, predicted = probabilities.max(1)
right = predicted == test.y
accuracy = right.double().mean().item()
print(f"accuracy  {accuracy:.1%}")
print(f"macro F1  {f1_score(test.y, predicted, average='macro'):.1%}")
print(
    f"wrong     {int((~right).sum())} of {len(test.y)}, with a mean confidence of {confidence[~right].mean():.0%}"
)

# %% [markdown]
# ## What it gets wrong
#
# The mistakes of which it was surest come first. A wrong answer at 99 % is worse than a wrong answer at 40 %:
# nobody will look at it again.

# %% Ten digits that were taken for others, each with its label, the answer and the confidence
wrong = (~right).nonzero().squeeze(1)
wrong = wrong[confidence[wrong].argsort(descending=True)][:10]
figure, axes = panels(9.0, 4.2, rows=2, columns=5)
for ax, i in zip(axes, wrong.tolist(), strict=False):
    ax.imshow(test.x[i, 0].numpy(), cmap="gray_r")
    ax.set_title(f"{test.y[i]}, taken for {predicted[i]}\n{confidence[i]:.0%}", fontsize="small")
for ax in axes:
    ax.set_axis_off()
figure

# %% [markdown]
# ## Where the mistakes lie
#
# The last hidden layer has 64 numbers for each digit. Two principal components of them make a map. The colour is an
# uncertainty score, `regrad`: how hard the answer pulls at the network's weights. Wrong answers are framed. Most
# lie where the colour is dark, between the classes.

# %% A map of the test digits: the classes form clusters, and framed mistakes lie between them
body = model[:-1]
with torch.no_grad():
    features = body(test.x)
u = nescio.score(model, test.x)
nescio.plots.embedding(
    features, u.log10(), labels=test.y, marks={"wrong": ~right}, name="log₁₀ of REGrad"
)

# %% [markdown]
# ## Things that are no digits
#
# Two sets that the network was never meant for: windows of photographs, and drawn capitals. The network has ten
# answers and no eleventh, so it names a digit for each.

# %% Six windows of photographs and six drawn capitals, each with the digit that the network sees in it
patches, letters = nescio.data.photo_patches(200), nescio.data.drawn_letters(200)
foreign = torch.cat([patches, letters])
with torch.no_grad():
    claimed, claim = model(foreign).softmax(1).max(1)
shown = [*range(6), *range(200, 206)]
figure, axes = panels(9.0, 3.8, rows=2, columns=6)
for ax, i in zip(axes, shown, strict=True):
    ax.imshow(foreign[i, 0].numpy(), cmap="gray_r", vmin=0, vmax=1)
    ax.set_title(f"“{claim[i]}”\n{claimed[i]:.0%}", fontsize="small")
    ax.set_axis_off()
figure

# %%
for name, part in {"photo patches": claimed[:200], "drawn letters": claimed[200:]}.items():
    print(
        f"{name}: named a digit with at least 90 % confidence in {(part >= 0.9).double().mean():.0%} of the cases"
    )

# %% [markdown]
# In the space of features these pictures lie among the digits. The network has no place for what it does not know.

# %% The same map with photographs and letters framed: they lie between and upon the clusters of digits
with torch.no_grad():
    both = torch.cat([features, body(foreign)])
u_foreign = nescio.score(model, foreign)
group = torch.tensor([0] * len(test.x) + [1] * 200 + [2] * 200)
nescio.plots.embedding(
    both,
    torch.cat([u, u_foreign]).log10(),
    marks={"photo patch": group == 1, "letter": group == 2},
    name="log₁₀ of REGrad",
)

# %% [markdown]
# ## Does a score tell them apart?
#
# AUROC: how often a foreign picture has the higher score than a digit; 50 % is chance. The largest probability is
# one score among others.

# %%
methods = ["max_probability", "energy", "regrad", "mahalanobis"]
known = nescio.score(model, test.x, methods, fit=(fit.x, fit.y))
other = nescio.score(model, foreign, methods, fit=(fit.x, fit.y))
auroc = {name: nescio.evaluate.ood(known[name], other[name], bootstrap=0).auroc for name in methods}
for name, value in auroc.items():
    print(f"{name:16} {value:.1%}")

# %% [markdown]
# One network on one small data set says little about methods in general. [Choose a method](../choose.md) has what
# was measured on more.
