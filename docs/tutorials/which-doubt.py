# %% [markdown]
# # 3 · Which doubt is it?
#
# A network can doubt for two reasons. The picture may be ambiguous: more data would not help (*aleatoric*). Or the
# network has seen little like it: more data would help (*epistemic*). One network cannot tell them apart. Several
# that were trained apart can: where each of them is unsure, the picture is to blame; where each is sure of
# something else, they are.
#
# With p^s the prediction of member s, p̄ their mean and H the entropy:
#
#     total = H(p̄)      aleatoric = mean of H(p^s)      epistemic = total − aleatoric

# %%
import torch
from torch import nn

import nescio
from nescio.posteriors import DeepEnsemble, Evidential, MCDropout
from nescio.training import Recipe

torch.set_num_threads(1)
data = nescio.data.digits(held_out=700, validation=0.6)
fit, tune, test = data.train, data.validation, data.held_out
foreign = torch.cat([nescio.data.photo_patches(150), nescio.data.drawn_letters(150)])
recipe = Recipe(
    epochs=30, optimizer="adam", lr=3e-3, weight_decay=0.0, batch_size=64, schedule="constant"
)


def network():
    return nn.Sequential(
        nn.Flatten(),
        *(nn.Linear(64, 128), nn.ReLU(), nn.Dropout(0.2)),
        *(nn.Linear(128, 64), nn.ReLU(), nn.Dropout(0.2)),
        nn.Linear(64, 10),
    )


# %% [markdown]
# ## Three ways to get several answers
#
# - **An ensemble**: the same network, five times from other random weights. Each finds another solution.
# - **MC dropout**: one network, whose dropout stays on when it is asked. Cheap, and the answers stay near one
#   solution.
# - **An evidential network**: one pass gives evidence for each class, a Dirichlet distribution over answers.

# %%
ensemble = DeepEnsemble.train(
    network, (fit.x, fit.y), members=5, seed=0, recipe=recipe, progress=False
)
dropout = MCDropout(ensemble.classifiers[0], samples=50)
evidential = Evidential.train(
    network, (fit.x, fit.y), (tune.x, tune.y), seed=0, recipe=recipe, progress=False
)

everything = torch.cat([test.x, foreign])
doubts = {
    "ensemble": nescio.decompose(ensemble.predict(everything)),
    "MC dropout": nescio.decompose(dropout.predict(everything)),
    "evidential": evidential.decompose(everything),
}
answers = {
    "ensemble": ensemble.predict(test.x).mean(0),
    "MC dropout": dropout.predict(test.x).mean(0),
    "evidential": evidential.predict(test.x).mean(0),
}
members = [(p.argmax(1) == test.y).double().mean().item() for p in ensemble.predict(test.x)]
print("the members alone:", ", ".join(f"{a:.1%}" for a in members))
for name, p in answers.items():
    print(
        f"{name:11} accuracy {(p.argmax(1) == test.y).double().mean():.1%}   ECE {nescio.evaluate.ece(p, test.y):.3f}"
    )

# %% [markdown]
# ## The kinds of doubt of right answers, wrong answers and foreign pictures

# %% Three kinds of doubt of the ensemble: low for right answers, higher for wrong ones and for no digits
right = answers["ensemble"].argmax(1) == test.y
known = torch.arange(len(everything)) < len(test.x)
correct = torch.zeros(len(everything), dtype=torch.bool)
correct[: len(test.x)] = right
groups = {"right": correct, "wrong": known & ~correct, "not a digit": ~known}
nescio.plots.kinds(doubts["ensemble"], groups, log=True)

# %% [markdown]
# The wrong answers one by one, those with the most epistemic doubt first. A: aleatoric, E: epistemic, T: their sum,
# in nats.

# %% Ten misread digits with label, answer and the three kinds of doubt
d = doubts["ensemble"]
wrong = (~right).nonzero().squeeze(1)
wrong = wrong[d.epistemic[wrong].argsort(descending=True)][:10]
figure, axes = nescio.plots.style.panels(9.2, 4.6, rows=2, columns=5)
for ax in axes:
    ax.set_axis_off()
for ax, i in zip(axes, wrong.tolist(), strict=False):
    ax.imshow(test.x[i, 0].numpy(), cmap="gray_r")
    answer = int(answers["ensemble"][i].argmax())
    ax.set_title(
        f"{test.y[i]}, taken for {answer}\nA {d.aleatoric[i]:.2f}  E {d.epistemic[i]:.2f}  T {d.total[i]:.2f}",
        fontsize="small",
    )
figure

# %% [markdown]
# ## What each kind finds
#
# AUROC for two tasks: telling wrong answers from right ones, and foreign pictures from digits.

# %%
aurocs = {}
for name, d in doubts.items():
    both = {}
    for task, (low, high) in {
        "errors": ("right", "wrong"),
        "foreign": (known, "not a digit"),
    }.items():
        a = groups[low] if isinstance(low, str) else low
        b = groups[high]
        parts = {"aleatoric": d.aleatoric, "epistemic": d.epistemic, "total": d.total}
        both[task] = {
            part: nescio.evaluate.ood(u[a], u[b], bootstrap=0).auroc for part, u in parts.items()
        }
    aurocs[name] = both
    for task, found in both.items():
        print(
            f"{name:11} {task:8}", "  ".join(f"{part} {value:.1%}" for part, value in found.items())
        )

# %% [markdown]
# ## Are they two things at all?
#
# The two kinds are meant to measure different things. Often they do not: where members are unsure they also
# disagree. The rank correlation between them says how far they go together (1: they order the pictures alike).

# %%
correlation = {}
for name, d in doubts.items():
    correlation[name] = nescio.evaluate.disentanglement(d, correct=None, is_ood=~known).spearman
    print(f"{name:11} rank correlation of aleatoric and epistemic: {correlation[name]:.2f}")

# %% [markdown]
# So read "epistemic" for what it is: a measure of how far the members *disagree*, not of what they do not know. Far
# from all data they may agree, and be wrong together: see [the limits of ReLU networks](../mathematics/relu.md).
# With labels by several people (`soft_labels` of `nescio.evaluate.disentanglement`) the aleatoric part can be held
# against how far people disagree.
#
# ## A distance instead of a disagreement
#
# The Mahalanobis distance asks another question: how far do the features lie from the nearest class of the training
# data? It needs those data, and one network.

# %%
member = ensemble.classifiers[0]
distance = nescio.score(member, everything, "mahalanobis", fit=(fit.x, fit.y))
by_distance = {
    "errors": nescio.evaluate.ood(
        distance[groups["right"]], distance[groups["wrong"]], bootstrap=0
    ).auroc,
    "foreign": nescio.evaluate.ood(distance[known], distance[~known], bootstrap=0).auroc,
}
print("Mahalanobis:", "  ".join(f"{task} {value:.1%}" for task, value in by_distance.items()))

# %% Foreign pictures and digits in a histogram of the Mahalanobis distance: the two overlap in part
nescio.plots.histogram(
    {"digits": distance[known].numpy(), "not a digit": distance[~known].numpy()},
    xlabel="Mahalanobis distance²",
)

# %% [markdown]
# What to take from it: no single number serves every task. Disagreement and entropy find errors; for foreign inputs
# compare several scores on data like yours. [The next page](newsroom.md) turns a score into a decision.
