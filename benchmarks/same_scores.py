"""The same scores and maps bit for bit, in this tree and in an earlier revision: what a change of the house must keep.

    OMP_NUM_THREADS=1 python benchmarks/same_scores.py 2f8ba4e             # half an hour; results/same-scores.json
    OMP_NUM_THREADS=1 python benchmarks/same_scores.py 2f8ba4e --only mlp gru

The networks are those on which the engine is tested (`tests/trace/subjects.py`), in float32 and float64. Of each are
asked: every method of the registry, the gradient scores with other settings, the table of classes × layers, maps, and
the guard. The numbers of an answer are hashed, and the hashes are compared; of what is refused, the class of the error.
Each tree runs in a process of its own, one after the other.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import json
import os
import subprocess
import sys
import tarfile
import tempfile
import warnings
from collections.abc import Callable, Iterator
from dataclasses import fields
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
SUBJECTS = ROOT / "tests" / "trace" / "subjects.py"
FEW = {"samples": 4, "k": 3}
GRADIENT_SETTINGS: dict[str, dict[str, Any]] = {
    "tolerance=0.05": {"tolerance": 0.05},
    "classes=3": {"classes": 3},
    "noise": {"sigma": 0.1, "samples": 4},
    "tensors": {"layers": "tensor"},
}
TABLE_SETTINGS: dict[str, dict[str, Any]] = {
    "table": {},
    "table, noise": {"sigma": 0.1, "samples": 4},
    "table, squares": {"sigma": 0.1, "samples": 4, "smoothing": "mean"},
    "table, one input at a time": {"chunk": 1},
}


def digest(answer: Any) -> str:
    """Return the hash of all numbers of an answer: a tensor, or several under names."""
    import torch

    total = hashlib.sha256()
    for name, value in sorted(answer.items()) if isinstance(answer, dict) else [("", answer)]:
        numbers = value.detach().cpu().contiguous()
        total.update(f"{name} {tuple(numbers.shape)} {numbers.dtype}".encode())
        total.update(numbers.flatten().view(torch.uint8).numpy().tobytes())
    return total.hexdigest()[:16]


def cases(model: Any, x: Any) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Yield everything that is asked of a network, by a name."""
    import torch

    import nescio
    from nescio import attribution, scores
    from nescio.posteriors.inserted import InsertedDropout

    draws = torch.Generator().manual_seed(8)
    if x.is_floating_point():
        known = torch.rand(40, *x.shape[1:], generator=draws, dtype=torch.float64).to(x.dtype)
    else:
        known = torch.randint(0, int(x.max()) + 1, (40, *x.shape[1:]), generator=draws)
    dropout = InsertedDropout(model, samples=4)
    for name in scores.names():
        method = scores.get(name)
        own = {field.name for field in fields(method)}
        settings = {key: value for key, value in FEW.items() if key in own and not ("sigma" in own and "layers" in own)}
        if method.needs_training_data:
            settings["fit"] = (known, torch.arange(40) % 3)
        source = dropout if method.requires == "posterior" else model
        yield name, partial(nescio.score, source, x, name, **settings)
        if "tolerance" in own:
            for words, more in GRADIENT_SETTINGS.items():
                yield f"{name}, {words}", partial(nescio.score, model, x, name, **more)
    for words, more in TABLE_SETTINGS.items():
        yield words, lambda more=more: nescio.trace.class_gradients(model, x, **more).norms
    for name in sorted(attribution.METHODS.keys() - {"clue", "delta_clue"}):  # these need a VAE
        for of in ("total", "epistemic"):
            yield f"map {name}, {of}", lambda name=name, of=of: nescio.explain(dropout, x, name, of=of).maps
    yield "guard", lambda: nescio.Guard(model).fit(known).check(x).score


def hashes(only: list[str] | None) -> dict[str, str]:
    """Return the hashes of the tree that Python imports `nescio` from."""
    import torch

    spec = importlib.util.spec_from_file_location("subjects", SUBJECTS)
    assert spec is not None and spec.loader is not None
    subjects = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(subjects)
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    found = {}
    for network in only or subjects.SUBJECTS:
        for dtype in (torch.float32, torch.float64):
            model, x = subjects.make(network)
            model, x = model.to(dtype), x.to(dtype) if x.is_floating_point() else x
            for name, ask in cases(model, x):
                torch.manual_seed(0)
                try:
                    value = digest(ask())
                except Exception as error:  # what is refused is to be refused in both trees
                    value = type(error).__name__
                found[f"{network}, {str(dtype).removeprefix('torch.')}, {name}"] = value
        print(f"{network}: {len(found)}", file=sys.stderr, flush=True)
    return found


def of_revision(revision: str, only: list[str] | None) -> dict[str, str]:
    """Return the hashes of a revision, whose files are unpacked in a folder of their own."""
    archive = subprocess.run(["git", "archive", revision], cwd=ROOT, check=True, capture_output=True).stdout
    with tempfile.TemporaryDirectory() as folder, tarfile.open(fileobj=BytesIO(archive)) as tar:
        tar.extractall(folder, filter="data")
        return of_tree(Path(folder).resolve(), only)


def of_tree(tree: Path, only: list[str] | None) -> dict[str, str]:
    """Return the hashes that a process gives with the sources of a tree first on its path."""
    path = os.pathsep.join(str(tree / folder) for folder in ("src", "papers/src"))
    command = [sys.executable, __file__, "--hashes", *(["--only", *only] if only else [])]
    done = subprocess.run(
        command, env={**os.environ, "PYTHONPATH": path}, check=True, stdout=subprocess.PIPE, text=True
    )
    answer = json.loads(done.stdout)
    if not answer["nescio"].startswith(str(tree)):
        raise SystemExit(f"expected nescio from {tree}, but Python took {answer['nescio']}")
    return dict(answer["hashes"])


def compared(before: dict[str, str], now: dict[str, str]) -> dict[str, Any]:
    """Return how many answers there are, how many are the same, and the names of the others."""
    both = before.keys() | now.keys()
    other = sorted(name for name in both if before.get(name) != now.get(name))
    refused = sum(value.endswith("Error") and before.get(name) == value for name, value in now.items())
    return {"asked": len(both), "same": len(both) - len(other), "of_these_refused": refused, "other": other}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before", nargs="?", metavar="REVISION", help="the revision to compare with")
    parser.add_argument("--only", nargs="+", metavar="NETWORK", help="these networks alone; nothing is written")
    parser.add_argument("--now", metavar="REVISION", help="the revision that is compared (default: this tree)")
    parser.add_argument("--hashes", action="store_true", help="print the hashes of the nescio that is imported")
    args = parser.parse_args()
    if args.hashes:
        import nescio

        print(json.dumps({"nescio": nescio.__file__, "hashes": hashes(args.only)}))
        return
    if not args.before:
        parser.error("expected a revision to compare with, such as 2f8ba4e")
    import torch
    from measure import machine, save

    before = of_revision(args.before, args.only)
    now = of_revision(args.now, args.only) if args.now else of_tree(ROOT, args.only)
    result = compared(before, now)
    print(json.dumps(result, indent=1))
    if not args.only:
        save(
            "same-scores",
            {"before": args.before, "now": args.now or "this tree", "machine": machine(torch.device("cpu")), **result},
        )


if __name__ == "__main__":
    main()
