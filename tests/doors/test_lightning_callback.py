"""The callback logs the numbers of a plain loop through any logger, and changes nothing of a training run."""

import csv
import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from nescio.doors.validation import measure
from nescio.types import MissingExtra

PACKAGES = ("lightning.pytorch", "pytorch_lightning")
pytest.importorskip("lightning.pytorch", reason="needs the extra lightning: pip install 'nescio[lightning]'")

from nescio.lightning import GuardCallback  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore:::(lightning|pytorch_lightning)", "ignore::DeprecationWarning")
NAMES = {"accuracy", "nll", "ece", "flagged", "drift_p_value", "auroc", "fpr95", "caught"}


@pytest.fixture(params=PACKAGES)
def pl(request: pytest.FixtureRequest) -> ModuleType:
    return pytest.importorskip(request.param)


def loader(x: Tensor, shuffle: bool = False) -> Any:
    return DataLoader(TensorDataset(x, torch.arange(len(x)) % 3), batch_size=64, shuffle=shuffle)


FOREIGN = 6 + torch.randn(60, 4, generator=torch.Generator().manual_seed(1))
HELD_OUT = torch.randn(700, 4, generator=torch.Generator().manual_seed(2))
TRAINING = torch.randn(128, 4, generator=torch.Generator().manual_seed(3))


def module(pl: ModuleType) -> Any:
    class Module(pl.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.net = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.2), nn.ReLU(), nn.Linear(8, 3))

        def forward(self, x: Tensor) -> Tensor:
            return self.net(x)

        def training_step(self, batch: Any, index: int) -> Tensor:
            return nn.functional.cross_entropy(self(batch[0]), batch[1])

        def validation_step(self, batch: Any, index: int) -> None:
            self.log("plain", self.training_step(batch, index))

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), 0.1)

    torch.manual_seed(0)
    return Module()


def trainer(
    pl: ModuleType, folder: Path, *callbacks: Any, logger: Any = False, epochs: int = 2, **settings: Any
) -> Any:
    return pl.Trainer(
        max_epochs=epochs,
        accelerator="cpu",
        default_root_dir=folder,
        callbacks=list(callbacks),
        logger=logger,
        enable_checkpointing=any(isinstance(one, pl.callbacks.ModelCheckpoint) for one in callbacks),
        enable_progress_bar=False,
        enable_model_summary=False,
        log_every_n_steps=1,
        **settings,
    )


def fit(pl: ModuleType, folder: Path, *callbacks: Any, **settings: Any) -> tuple[Any, Any]:
    own, run = module(pl), trainer(pl, folder, *callbacks, **settings)
    run.fit(own, loader(TRAINING, shuffle=True), loader(HELD_OUT))
    return own, run


def test_the_numbers_are_those_of_a_plain_loop_and_reach_the_logger(pl: ModuleType, tmp_path: Path) -> None:
    callback = GuardCallback(foreign=loader(FOREIGN))
    own, run = fit(pl, tmp_path, callback, logger=pl.loggers.CSVLogger(tmp_path))
    assert callback.numbers.keys() == NAMES
    assert callback.numbers == measure(own, loader(HELD_OUT), foreign=FOREIGN)
    assert callback.guard is not None and callback.guard.check(FOREIGN).foreign(0.05).double().mean() > 0.9
    with (Path(run.logger.log_dir) / "metrics.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if row.get("nescio/auroc")]
    assert len(rows) == 2  # one for each epoch, and none for the check before the first
    for name, number in callback.numbers.items():
        assert float(rows[-1][f"nescio/{name}"]) == pytest.approx(number, rel=1e-5)


def test_a_run_with_the_callback_ends_with_the_same_weights(pl: ModuleType, tmp_path: Path) -> None:
    torch.manual_seed(7)
    plain, _ = fit(pl, tmp_path)
    state = torch.get_rng_state()
    torch.manual_seed(7)
    watched, _ = fit(pl, tmp_path, GuardCallback(foreign=FOREIGN))
    assert torch.equal(state, torch.get_rng_state())
    for a, b in zip(plain.state_dict().values(), watched.state_dict().values(), strict=True):
        assert torch.equal(a, b)
    assert [one.training for one in plain.modules()] == [one.training for one in watched.modules()]


def test_other_callbacks_can_monitor_the_numbers(pl: ModuleType, tmp_path: Path) -> None:
    checkpoint = pl.callbacks.ModelCheckpoint(tmp_path, monitor="nescio/auroc", mode="max")
    callback = GuardCallback(foreign=FOREIGN)
    fit(pl, tmp_path, callback, checkpoint, epochs=1)
    assert float(checkpoint.best_model_score) == pytest.approx(callback.numbers["auroc"])


def test_every_n_epochs_a_network_inside_and_a_reference(pl: ModuleType, tmp_path: Path) -> None:
    class Kept(pl.loggers.logger.Logger):
        name, version = "kept", 0

        def __init__(self) -> None:
            super().__init__()
            self.seen: list[Any] = []

        def log_hyperparams(self, *args: Any, **kwargs: Any) -> None: ...

        def log_metrics(self, metrics: Any, step: Any = None) -> None:
            self.seen += [step] if "mine/ece" in metrics else []

    logger, reference = Kept(), torch.randn(320, 4)
    callback = GuardCallback(reference, network="net", every_n_epochs=2, prefix="mine")
    own, run = fit(pl, tmp_path, callback, logger=logger, epochs=3)
    assert logger.seen == [3]  # two steps an epoch: the last step of the second one
    assert callback.guard is not None and callback.guard.classifier.model is own.net
    assert callback.guard.fitted.count == 320 and "auroc" not in callback.numbers
    callback.numbers = {}
    run.validate(own, loader(HELD_OUT), verbose=False)
    assert callback.numbers["accuracy"] > 0


def test_the_first_of_several_loaders_is_taken(tmp_path: Path) -> None:
    pl = import_module(PACKAGES[0])
    callback, own = GuardCallback(), module(pl)
    trainer(pl, tmp_path, callback).validate(own, [loader(HELD_OUT)], verbose=False)
    assert callback.numbers == measure(own, loader(HELD_OUT))


@pytest.mark.filterwarnings("ignore:the reference has")
def test_no_more_is_read_than_the_trainer_reads(tmp_path: Path) -> None:
    pl = import_module(PACKAGES[0])
    callback, own = GuardCallback(), module(pl)
    trainer(pl, tmp_path, callback, limit_val_batches=5).validate(own, loader(HELD_OUT), verbose=False)
    assert callback.numbers == measure(own, loader(HELD_OUT), batches=5)
    assert callback.numbers == measure(own, loader(HELD_OUT[: 5 * 64]))
    quick = GuardCallback()
    trainer(pl, tmp_path, quick, fast_dev_run=True).validate(own, loader(HELD_OUT), verbose=False)
    assert not quick.numbers


@pytest.mark.parametrize("package", PACKAGES)
def test_tensorboard_gets_the_numbers(package: str, tmp_path: Path) -> None:
    if not any(find_spec(name) for name in ("tensorboard", "tensorboardX")):
        pytest.skip("needs tensorboard or tensorboardX")
    pl, callback = import_module(package), GuardCallback(foreign=FOREIGN)
    logger, written = pl.loggers.TensorBoardLogger(tmp_path), {}
    logger.experiment.add_scalar = lambda name, number, step: written.update({name: number})
    fit(pl, tmp_path, callback, logger=logger, epochs=1)
    for name, number in callback.numbers.items():
        assert float(written[f"nescio/{name}"]) == pytest.approx(number, rel=1e-5)


def test_mlflow_gets_the_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tracking = pytest.importorskip("mlflow.tracking", reason="needs mlflow or mlflow-skinny")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    pl, callback = import_module(PACKAGES[0]), GuardCallback(foreign=FOREIGN)
    uri = (tmp_path / "runs").as_uri()
    logger = pl.loggers.MLFlowLogger("guarded", tracking_uri=uri)
    fit(pl, tmp_path, callback, logger=logger, epochs=1)
    metrics = tracking.MlflowClient(uri).get_run(logger.run_id).data.metrics
    for name, number in callback.numbers.items():
        assert metrics[f"nescio/{name}"] == pytest.approx(number, rel=1e-5)


def test_without_lightning_the_message_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    from nescio.doors import lightning_callback

    for name in (*PACKAGES, "lightning"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(MissingExtra, match=r"nescio\[lightning\]"):
        lightning_callback._callback_base()
