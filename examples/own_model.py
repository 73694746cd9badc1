"""How sure is my model about each of these inputs?

Any torch.nn.Module that returns logits will do, with a tensor of inputs. Run with: python examples/own_model.py
"""

import torch
from torch import nn

import nescio


def main() -> None:
    torch.manual_seed(0)
    x = torch.cat([torch.randn(200, 2) + 2, torch.randn(200, 2) - 2])
    y = torch.arange(400) // 200
    model = nn.Sequential(nn.Linear(2, 32), nn.ReLU(), nn.Linear(32, 2))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(100):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()

    asked = torch.tensor([[2.0, 2.0], [-2.0, -2.0], [0.1, -0.1]])
    uncertainty = nescio.score(model, asked)  # REGrad; float64 [3], higher = more uncertain
    for point, u in zip(asked.tolist(), uncertainty.tolist(), strict=True):
        print(f"at ({point[0]:g}, {point[1]:g}): {u:.3g}")
    print("The last point lies between the two classes, and should be the most uncertain.")


if __name__ == "__main__":
    main()
