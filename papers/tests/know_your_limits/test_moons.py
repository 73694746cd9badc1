"""The half-moons study, and small runs of all three."""

import pytest

from nescio import posteriors
from nescio_papers import reproduce
from nescio_papers.know_your_limits import moons
from nescio_papers.know_your_limits.doubts import reader
from papers.tests.know_your_limits.conftest import ROOT, network


def test_dropout_left_off_is_certain_of_itself():
    posterior = posteriors.MCDropout(network(6, 6, rate=0.4), samples=10)
    found = {name: value.detach() for name, value in reader(moons._off(posterior))(ROOT).items()}
    assert float(found["variance"].abs().max()) < 1e-30
    assert float(found["mutual_information"].abs().max()) < 1e-12
    assert float(reader(posterior)(ROOT)["variance"].detach().max()) > 1e-6


@pytest.mark.filterwarnings("ignore:the loss on the held-out data falls")
@pytest.mark.parametrize("name", ["kyl-moons", "kyl-scaling", "kyl-polytopes"])
def test_a_small_run(name, tmp_path):
    results = reproduce.run(name, "smoke", work=tmp_path, device="cpu", progress=False)
    assert results["complete"] and results["figures"]
    for part in results["parts"]:
        labels = {row["label"] for row in part["rows"]}
        places = {(cell["row"], cell["column"]) for cell in part["cells"]}
        assert places == {(label, column["key"]) for label in labels for column in part["columns"]}
        assert all(0 <= cell["metrics"]["auroc"] <= 1 for cell in part["cells"])
    page = reproduce.render(results)
    assert page.count("<figcaption>") == len(results["figures"]) and len(page) < 1.5e6
    assert all(figure["image"].startswith("<svg") for figure in results["figures"])
    if name == "kyl-scaling":
        again = reproduce.run(name, "smoke", work=tmp_path, device="cpu", progress=False)
        assert [part["cells"] for part in again["parts"]] == [part["cells"] for part in results["parts"]]


def test_a_run_that_is_out_of_time_says_so(tmp_path):
    results = reproduce.run("kyl-scaling", "smoke", work=tmp_path, device="cpu", minutes=0)
    assert not results["complete"]
    assert all("the time that was given was over" in cell["reason"] for cell in results["parts"][0]["cells"])
