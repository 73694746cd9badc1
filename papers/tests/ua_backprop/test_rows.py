"""What maps depend on."""

import nescio
from nescio_papers.ua_backprop.rows import FLOOR, OURS, RIVALS, described
from papers.tests.ua_backprop.conftest import SMALLER


def test_what_is_kept_knows_all_settings_of_a_method():
    """Maps that were kept with other defaults must not be taken for today's."""
    about = described(OURS, SMALLER)
    assert about["tau1"] == nescio.attribution.UABackprop().tau1 and about["path"] == "fullgrad"
    assert described(OURS, SMALLER, tau1=0.7)["tau1"] == 0.7
    clue = next(row for row in RIVALS if row.method == "delta_clue")
    assert described(clue, SMALLER) == {
        "method": "delta_clue", "steps": 2, "lr": 0.1, "delta": 3.5, "starts": 1, "seed": 0
    }  # fmt: skip
    assert described(FLOOR, SMALLER) == {"method": "random"}
