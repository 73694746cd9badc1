"""The same scores and maps bit for bit, in this tree and in earlier revisions: what a change of the house must keep.

    OMP_NUM_THREADS=1 python benchmarks/same_scores.py 744b0e4 1e46412     # results/same-scores.json
    OMP_NUM_THREADS=1 python benchmarks/same_scores.py 2f8ba4e --only mlp gru

The networks are those on which the engine is tested (`tests/trace/subjects.py`), in float32 and float64. Of each are
asked: every method of the registry, the gradient scores with other settings, the table of classes × layers, maps, and
the guard. Answers are the same if their bits are; of what is refused, the class of the error is compared. Of the
others the result says how far they are: the largest difference in an answer, divided by the largest number in it.
Each tree runs in a process of its own, one after the other, for a quarter of an hour; with `--keep FOLDER` what a
revision has answered is read from there the next time.
"""

from __future__ import annotations

import argparse
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


Answer = dict[str, Any] | str  # the numbers of an answer by their names, or the class of the error


def numbers(answer: Any) -> dict[str, Any]:
    """Return all numbers of an answer, a tensor or several under names, on the host."""
    named = answer if isinstance(answer, dict) else {"": answer}
    return {name: value.detach().cpu() for name, value in named.items()}


def distance(before: Answer, now: Answer) -> float | str:
    """Return how far two answers are: 0.0 for the same bits, a share of the largest number, or words."""
    import torch

    if isinstance(before, str) or isinstance(now, str):
        words = [answer if isinstance(answer, str) else "numbers" for answer in (before, now)]
        return 0.0 if before == now else " → ".join(words)
    shapes = [{name: (value.shape, value.dtype) for name, value in answer.items()} for answer in (before, now)]
    if shapes[0] != shapes[1]:
        return "other shapes or types"
    pairs = [(before[name].contiguous(), now[name].contiguous()) for name in before]
    if all(torch.equal(a.flatten().view(torch.uint8), b.flatten().view(torch.uint8)) for a, b in pairs):
        return 0.0
    far = [(a.double() - b.double()).abs().max() / a.double().abs().max().clamp(min=1e-300) for a, b in pairs]
    return float(f"{max(float(share) for share in far):.1e}")


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


def answers(only: list[str] | None) -> dict[str, Answer]:
    """Return the answers of the tree that Python imports `nescio` from."""
    import torch

    spec = importlib.util.spec_from_file_location("subjects", SUBJECTS)
    assert spec is not None and spec.loader is not None
    if importlib.util.find_spec("nescio._common") is None:  # a revision in which the papers are a part of nescio
        sys.modules["nescio_papers"] = importlib.import_module("nescio")
    subjects = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(subjects)
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    answer_by_case: dict[str, Answer] = {}
    for network in only or subjects.SUBJECTS:
        for dtype in (torch.float32, torch.float64):
            model, x = subjects.make(network)
            model, x = model.to(dtype), x.to(dtype) if x.is_floating_point() else x
            for name, ask in cases(model, x):
                torch.manual_seed(0)
                case = f"{network}, {str(dtype).removeprefix('torch.')}, {name}"
                try:
                    answer_by_case[case] = numbers(ask())
                except Exception as error:  # what is refused is to be refused in both trees
                    answer_by_case[case] = type(error).__name__
        print(f"{network}: {len(answer_by_case)}", file=sys.stderr, flush=True)
    return answer_by_case


def of_revision(revision: str, only: list[str] | None, keep: Path | None) -> dict[str, Answer]:
    """Return the answers of a revision, whose files are unpacked in a folder of their own.

    Args:
        revision: A name that git knows.
        only: The networks, or None for all.
        keep: A folder in which the answers are kept for the next time.

    Returns:
        The answers by their cases.
    """
    import torch

    kept = keep / f"{'-'.join([revision, *(only or [])])}.pt" if keep else None
    if kept is not None and kept.exists():
        return dict(torch.load(kept))
    archive = subprocess.run(["git", "archive", revision], cwd=ROOT, check=True, capture_output=True).stdout
    with tempfile.TemporaryDirectory() as folder, tarfile.open(fileobj=BytesIO(archive)) as tar:
        tar.extractall(folder, filter="data")
        answer_by_case = of_tree(Path(folder).resolve(), only)
    if kept is not None:
        kept.parent.mkdir(parents=True, exist_ok=True)
        torch.save(answer_by_case, kept)
    return answer_by_case


def of_tree(tree: Path, only: list[str] | None) -> dict[str, Answer]:
    """Return the answers that a process gives with the sources of a tree first on its path."""
    import torch

    path = os.pathsep.join(str(tree / folder) for folder in ("src", "papers/src"))
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "answers.pt"
        command = [sys.executable, __file__, "--answers", str(file), *(["--only", *only] if only else [])]
        subprocess.run(command, env={**os.environ, "PYTHONPATH": path}, check=True)
        kept = torch.load(file)
    if not kept["nescio"].startswith(str(tree)):
        raise SystemExit(f"expected nescio from {tree}, but Python took {kept['nescio']}")
    return dict(kept["answers"])


def compared(before: dict[str, Answer], now: dict[str, Answer]) -> dict[str, Any]:
    """Return how many answers there are, how many are the same, and how far the others are.

    What one tree alone has been asked, such as a method that was added, is counted and left out.
    """
    both = [case for case in now if case in before]
    far = {case: distance(before[case], now[case]) for case in both}
    other = {case: share for case, share in far.items() if share != 0.0}
    return {
        "in one tree alone": len(before.keys() ^ now.keys()),
        "asked": len(both),
        "same": len(both) - len(other),
        "of_these_refused": sum(isinstance(now[case], str) and case not in other for case in both),
        "other": other,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before", nargs="*", metavar="REVISION", help="the revisions to compare with")
    parser.add_argument("--only", nargs="+", metavar="NETWORK", help="these networks alone; nothing is written")
    parser.add_argument("--now", metavar="REVISION", help="the revision that is compared (default: this tree)")
    parser.add_argument("--keep", metavar="FOLDER", type=Path, help="keep the answers of revisions for the next time")
    parser.add_argument("--answers", metavar="FILE", help="write the answers of the nescio that is imported")
    args = parser.parse_args()
    if args.answers:
        import torch

        import nescio

        torch.save({"nescio": nescio.__file__, "answers": answers(args.only)}, args.answers)
        return
    if not args.before:
        parser.error("expected a revision to compare with, such as 2f8ba4e")
    import torch
    from measure import machine, save

    before = {revision: of_revision(revision, args.only, args.keep) for revision in args.before}
    now = of_revision(args.now, args.only, args.keep) if args.now else of_tree(ROOT, args.only)
    result = {f"since {revision}": compared(answers, now) for revision, answers in before.items()}
    print(json.dumps(result, indent=1))
    if not args.only:
        save(
            "same-scores",
            {"now": args.now or "this tree", "machine": machine(torch.device("cpu")), **result},
        )


if __name__ == "__main__":
    main()
