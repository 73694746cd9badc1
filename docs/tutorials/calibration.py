# %% [markdown]
# # 2 · Calibration: does 90 % mean 90 %?
#
# A network is calibrated when, of the answers it gives with 90 % confidence, nine in ten are right. Most networks
# that are trained to the end are too sure. A single number, the temperature, mends much of that. It does not mend
# everything, and this page ends with what it leaves. The network below was trained long, so that there is something to
# mend; with few data the likelihood always got better in our trials, but the calibration error not always.

# %%
import torch
from torch import nn

import nescio
from nescio.plots.style import panels
from nescio.posteriors import Deterministic, Temperature
from nescio.training import Recipe, train

torch.set_num_threads(1)
data = nescio.data.digits(held_out=700, validation=0.6)
fit, tune, test = data.train, data.validation, data.held_out
torch.manual_seed(0)
model = nn.Sequential(
    nn.Flatten(), nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 10)
)
recipe = Recipe(
    epochs=100, optimizer="adam", lr=1e-2, weight_decay=0.0, batch_size=32, schedule="constant"
)
train(
    model, (fit.x, fit.y), recipe=recipe, progress=False
)  # to the end: no validation data, no best epoch
one = Deterministic(model)

# %% [markdown]
# ## Measure it
#
# The answers are sorted into bins by their confidence, bin m of M holding those in ((m − 1)/M, m/M]. In each bin
# the mean confidence is compared with the share of right answers. The expected calibration error is the mean gap,
# ECE = Σ_m (n_m/N) |acc(m) − conf(m)|.


# %%
def figures(p):
    measures = {
        "ECE": nescio.evaluate.ece,
        "NLL": nescio.evaluate.nll,
        "Brier": nescio.evaluate.brier,
    }
    found = {name: measure(p, test.y) for name, measure in measures.items()}
    return {"accuracy": (p.argmax(1) == test.y).double().mean().item()} | found


before = one.predict(test.x)[0]
print({name: round(value, 4) for name, value in figures(before).items()})

# %% The reliability diagram of the network: bars mostly below the diagonal, most inputs in the last bin
nescio.plots.reliability(nescio.evaluate.reliability(before, test.y))

# %% [markdown]
# ## Mend it: one temperature
#
# The logits are divided by T, p = softmax(z/T), and T is the one with the lowest negative log-likelihood on
# held-out digits. T above 1 makes all answers less sure. The order of the classes stays, so the accuracy does too.

# %%
scaled = Temperature(Deterministic(model)).fit((tune.x, tune.y))
after = scaled.predict(test.x)[0]
print(f"T = {scaled.temperature:.2f}")
print("before", {name: round(value, 4) for name, value in figures(before).items()})
print("after ", {name: round(value, 4) for name, value in figures(after).items()})

# %% Reliability before and after: the points after scaling lie nearer to the diagonal
nescio.plots.reliability(
    {
        "before": nescio.evaluate.reliability(before, test.y),
        "after": nescio.evaluate.reliability(after, test.y),
    }
)

# %% [markdown]
# A scale and a shift for each class (Platt) has more freedom, and needs more data to be worth it.

# %%
platt = Temperature(Deterministic(model), kind="platt").fit((tune.x, tune.y))
print(
    "Platt ", {name: round(value, 4) for name, value in figures(platt.predict(test.x)[0]).items()}
)

# %% [markdown]
# ## See the uncertainty
#
# The entropy of each answer, for right answers, wrong answers, and drawn letters, which are no digits.

# %% The entropy after scaling: right answers near zero, wrong answers and letters spread over higher values
letters = nescio.data.drawn_letters(300)
doubt = nescio.decompose(scaled.predict(test.x)).total
right = after.argmax(1) == test.y
of_letters = nescio.decompose(scaled.predict(letters)).total
groups = {"right": doubt[right], "wrong": doubt[~right], "letters": of_letters}
figure, (ax,) = panels(6.4, 3.2)
for (name, part), style in zip(groups.items(), ["-", "--", ":"], strict=True):
    shares = torch.histc(part, 24, 0, 2.4) / len(part)
    ax.stairs(
        shares,
        torch.linspace(0, 2.4, 25),
        linestyle=style,
        linewidth=1.6,
        label=f"{name} ({len(part)})",
    )
ax.set(xlabel="entropy (nats)", ylabel="share of the group", ylim=(0, 0.4))
ax.legend(frameon=False)
figure

# %% [markdown]
# ## What it leaves
#
# **The order.** For one network a temperature moves all confidences together. Which answers are refused first
# hardly changes, and with it how many errors are avoided: the relative area under the lift curve (rAULC, 1 is
# perfect) shows it.

# %%
for name, p in {"before": before, "after": after}.items():
    print(name, f"rAULC {nescio.evaluate.raulc(1 - p.max(1).values, p.argmax(1) == test.y):.3f}")

# %% [markdown]
# **Other inputs.** T was fitted on digits. Of the letters no answer is right, so an honest confidence would be
# zero.

# %%
confident = {}
for name, posterior in {"before": one, "after": scaled}.items():
    confident[name] = posterior.predict(letters)[0].max(1).values.mean().item()
    print(f"{name}: mean confidence on letters {confident[name]:.0%}, share right 0 %")

# %% [markdown]
# A calibrated network is still asked only "which digit", never "is it one". That is the question of the [next
# page](which-doubt.md).
#
# On more seeds, with a small convolutional network: `benchmarks/results/kinds.json`, made by `benchmarks/kinds.py`.
# The command for a model of your own is `nescio calibrate`.
