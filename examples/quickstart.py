"""Which answers of a classifier not to trust: a digit, a letter and a patch of a photograph. Seconds on a laptop.

pip install 'nescio[demo]'        # in a copy of the repository: pip install '.[demo]'
python quickstart.py
"""

import torch

import nescio
from nescio.data import digits, drawn_letters, photo_patches

# A classifier, trained as you would: digits of 8 × 8 pixels that scikit-learn brings.
torch.manual_seed(0)
data = digits(held_out=700)
model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
for _ in range(100):
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(model(data.train.x), data.train.y).backward()
    optimizer.step()

# The guard: what is usual, learned from 400 digits that the model was not trained on.
reference, new = data.held_out.x[:400], data.held_out.x[400:]
guard = nescio.Guard(model).fit(reference)
letters, patches = drawn_letters(200), photo_patches(200)
for name, x in (("new digits", new), ("letters", letters), ("patches of photographs", patches)):
    print(f"{name + ':':24}{guard.check(x).foreign(0.05).double().mean():4.0%} foreign")

x = torch.stack([new[0], letters[0], patches[0]])
verdict = guard.check(x)
for state, p, sentence in zip(verdict.states(), verdict.p_value, verdict.words(), strict=True):
    print(f"{state:8} p = {p:.3f}  {sentence}")

# How unsure is the model, and which pixels are to blame?
print("doubt:", [round(u, 1) for u in nescio.score(model, x).tolist()])
why = nescio.explain(model, x)  # each map adds up to the doubt of its picture
print("most doubtful pixel of the letter:", divmod(int(why.maps[1].argmax()), 8))
