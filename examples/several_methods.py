"""Which method finds foreign inputs best with my model?

A data loader, several methods in one pass over it, and the figures of merit. Needs the extra `demo` for the digits.
Run with: python examples/several_methods.py
"""

from torch.utils.data import DataLoader, TensorDataset

import nescio
from nescio.data import digits, drawn_letters
from nescio.scores import REGrad


def main() -> None:
    data = digits(held_out=100)
    model = nescio.zoo.small_cnn(channels=1, size=8, classes=10, kernel=3, seed=0)
    tuning = (data.validation.x, data.validation.y)
    nescio.zoo.train(model, data.train.x, data.train.y, tuning, epochs=10, batch_size=32)

    known = DataLoader(TensorDataset(data.held_out.x, data.held_out.y), batch_size=32)  # labels are not looked at
    foreign = DataLoader(TensorDataset(drawn_letters(100)), batch_size=32)
    methods = [REGrad(samples=20), "exgrad", "entropy", "energy"]  # a name, or an object with settings
    u_known, u_foreign = nescio.score(model, known, methods), nescio.score(model, foreign, methods)

    for name in u_known:
        result = nescio.evaluate.ood(u_known[name], u_foreign[name])
        print(f"{name:8}  AUROC {result.auroc:6.1%}   AUPR {result.aupr:6.1%}   FPR95 {result.fpr95:6.1%}")


if __name__ == "__main__":
    main()
