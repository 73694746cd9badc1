"""Table 2: networks retrained with attention."""

import numpy as np

from nescio import mitigate
from nescio_papers import reproduce
from nescio_papers.ua_backprop import table2
from papers.tests.ua_backprop.conftest import SMALLER, numbers, went

ROWS = ("UA-Backprop + FullGrad", "Grad", "No attention", "Random attention", "Flat attention", "Shuffled maps")


def test_table_2_measures_networks_with_and_without_attention(small, tmp_path, models, monkeypatch):
    real, seen = mitigate.retrain, []

    def watched(model, data, maps, **more):
        seen.append((None if maps is None else np.asarray(maps).shape, len(data[0]), more["alpha"]))
        return real(model, data, maps, **more)

    monkeypatch.setattr(mitigate, "retrain", watched)
    monkeypatch.setattr(table2, "ROWS", [row for row in table2.ROWS if row.label in ROWS])
    done = went(table2, tmp_path, models)
    plain, attended = done["parts"]
    runs = len(table2.ROWS) * SMALLER.runs
    assert len(plain["cells"]) == len(attended["cells"]) == runs == len(seen)
    assert all({"acc", "nll"} == set(c["metrics"]) for part in done["parts"] for c in part["cells"])
    assert seen.count((None, 30, mitigate.ALPHA)) == SMALLER.runs
    assert seen.count(((30, 8, 8), 30, mitigate.ALPHA)) == runs - 2 * SMALLER.runs  # flat attention has its own α
    assert numbers(went(table2, tmp_path, models)) == numbers(done) and len(seen) == runs
    assert done["settings"]["alpha"] == mitigate.ALPHA
    assert [(m["plan"], m["seed"]) for m in done["models"]] == [("digits, 30 pictures", 0), ("digits, 30 pictures", 1)]
    assert "tested on the first 20 test pictures; the first 4 of them get maps" in done["notes"][-2]
    reproduce.render(done)
