"""The numbers of README and documentation, made from what is committed: `python benchmarks/readme.py` writes them.

Each stands between two comments, <!-- name:begin --> and <!-- name:end -->, in one of the files of `PAGES`.
"""

from __future__ import annotations

import json
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nescio
from nescio_papers import reproduce
from nescio_papers.runner.compare import table

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results"
BLOB = "https://github.com/nescio-uq/nescio/blob/main"
NAMES = {"cnn": "the papers' CNN, 28²", "resnet18": "ResNet18, CIFAR stem, 32²", "vit": "small ViT, 32²"}


def speed() -> str:
    """Exact class-gradient norms beside the papers' loop and the peers, one line a model and batch."""
    lines = []
    for name, read in (("gpu", _exact), ("gradients-cpu", lambda result: result["results"])):
        path = RESULTS / f"{name}.json"
        if path.exists():
            result = json.loads(path.read_text())
            machine = result["machine"]
            lines += [
                "Norms of ∂ log p_c/∂θ_l for all layers and ten classes on "
                f"{_device(machine)} (torch {machine['torch']}), from `benchmarks/results/{name}.json`:",
                "",
                "| model | batch | inputs/s | × the papers' loop | forward passes | peak GB | vmap × | BackPACK × |",
                "|---|---:|---:|---:|---:|---:|---:|---:|",
                *(_row(r) for r in read(result)),
                "",
            ]
    return "\n".join(lines).strip()


def kinds() -> str:
    """Calibration and kinds of doubt on bundled digits, one line a distribution."""
    result = json.loads((RESULTS / "kinds.json").read_text())
    lines = [
        f"On bundled digits (means over {len(result['runs'])} seeds, from `benchmarks/results/kinds.json`; AUROC tells "
        "digits from things that are none):",
        "",
        "| distribution | accuracy | ECE | NLL | AUROC of total | AUROC of epistemic | AUROC of vacuity |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    for name, found in result["means"].items():
        cells = [f"{100 * found['accuracy']:.1f} %", f"{found['ece']:.4f}", f"{found['nll']:.4f}"]
        parts = [found.get(f"auroc of {part}") for part in ("total", "epistemic", "vacuity")]
        cells += ["" if value is None else f"{100 * value:.1f}" for value in parts]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def truth() -> str:
    """AUROC of the pairs that were run, our mean over the seeds of each, and the paper's average beside ours."""
    runs = [reproduce.load(path) for path in sorted((ROOT / "papers" / "results").glob("table1-quick-*.json"))]
    (result,) = reproduce.joined(runs)
    found = [table(part, result["scale"]) for part in result["parts"]]
    columns = [(part, column) for part in found for column in part.columns]
    places = range(len(found[0].lines))
    rows = [[part.lines[at].values[column["key"], "auroc"] for part, column in columns] for at in places]
    most = [sum(row[at].mean is not None for row in rows) / len(rows) for at in range(len(columns))]
    shown = [at for at, share in enumerate(most) if share > 0]
    common = [at for at, share in enumerate(most) if share > 0.7]  # the rest is shown, but in no average
    best = {at: max(row[at].mean or 0.0 for row in rows) for at in shown}
    heads = ["method", *(columns[at][1]["label"] for at in shown), "average", "paper"]
    lines = [f"| {' | '.join(heads)} |", "|---|" + "---:|" * (len(heads) - 1)]
    for line, row in zip(found[0].lines, rows, strict=True):
        cells = [_number(row[at].mean, best[at]) for at in shown]
        cells.append(_average([row[at].mean for at in common]))
        compared = [at for at in common if row[at].paper is not None and row[at].mean is not None]
        paper, there = (_average([getattr(row[at], kind) for at in compared]) for kind in ("paper", "mean"))
        cells.append(f"{paper} (ours there {there})" if line.paper_row else "")
        lines.append(f"| {line.label} | {' | '.join(cells)} |")
    accuracy: dict[str, list[float]] = {}
    for model in result["models"]:
        accuracy.setdefault(model["plan"], []).append(100 * model["accuracy"])
    right = ", ".join(
        f"{plan} {min(values):.1f}{f'–{max(values):.1f}' if len(values) > 1 else ''} % ({len(values)})"
        for plan, values in accuracy.items()
    )
    left_out = ", ".join(columns[at][1]["label"] for at in shown if at not in common)
    return "\n".join(
        [
            f"AUROC in percent, mean over seeds, on one {result['machine']['name']} at the scale `{result['scale']}`: "
            f"{result['about']}; REGrad* with the paper's λ and σ. Test accuracy (networks): {right}. An empty cell "
            "was not run"
            + (f"; {left_out} is in no average" if left_out else "")
            + ". The paper's averages are over those of its pairs that were run here; for REGrad* it prints 94.56 and "
            "85.91 over all pairs (AUROC and AUPR together).",
            "",
            *lines,
        ]
    )


def _number(value: float | None, best: float) -> str:
    if value is None:
        return ""
    return f"**{value:.1f}**" if value > best - 0.05 else f"{value:.1f}"


def _average(values: list[float | None]) -> str:
    known = [value for value in values if value is not None]
    return f"{sum(known) / len(known):.1f}" if known and len(known) == len(values) else ""


def _guard() -> tuple[list[Any], dict[str, dict[str, float]]]:
    """The parts of the guard's study, and the AUROC of every score on every pair, in percent."""
    result = reproduce.load(ROOT / "papers" / "results" / "guard-quick-1.json")
    parts = [table(part, result["scale"]) for part in result["parts"]]
    found: dict[str, dict[str, float]] = {}
    for part, made in zip(result["parts"], parts, strict=True):
        if part["title"].endswith("AUROC of foreign pictures"):
            for line in made.lines:
                pairs = {f"{part['title']} {column}": value.mean for (column, _), value in line.values.items()}
                found.setdefault(line.label, {}).update(
                    {pair: mean for pair, mean in pairs.items() if mean is not None}
                )
    return list(zip(result["parts"], parts, strict=True)), found


def _of_part(parts: list[Any], title: str) -> dict[str, list[float]]:
    (made,) = (made for part, made in parts if part["title"] == title)
    return {line.label: [value.mean for value in line.values.values()] for line in made.lines}


def guard_summary() -> dict[str, float]:
    """What is said of the guard in one paragraph, from `papers/results/guard-quick-1.json`."""
    parts, found = _guard()
    means = {name: _mean(list(pairs.values())) for name, pairs in found.items()}
    singles = {name: mean for name, mean in means.items() if name != "guard"}
    best = {pair: max(found[name][pair] for name in singles) for pair in found["guard"]}
    sizes = _of_part(parts, "Size of the reference: mean AUROC")
    wrong = _of_part(parts, "Wrong answers told from right ones: AUROC")
    near = next(pair for pair in best if pair.startswith("CIFAR-100") and pair.endswith("cifar10"))
    return {
        "pairs": len(best),
        "guard": means["guard"],
        "best single": max(singles.values()),
        "vim": means["vim"],
        **{name: means[name] for name in ("knn", "gen", "regrad", "entropy")},
        "near": sum(found["guard"][pair] >= best[pair] - 0.5 for pair in best),
        "loss at 100": _mean(sizes["2,000 pictures"]) - _mean(sizes["100 pictures"]),
        **{f"near {name}": found[name][near] for name in ("guard", "gen", "regrad")},
        **{f"wrong {name}": _mean(wrong[name]) for name in ("guard", "max_probability")},
    }


def guard() -> str:
    """The paragraph of the README on how good the guard is."""
    n = guard_summary()
    assert n["best single"] == n["vim"], "the best single score is not ViM any more: the sentence says so"
    return wrapped(
        f"Over {n['pairs']:.0f} pairs of networks and foreign sets (MNIST, SVHN, CIFAR-10, CIFAR-100; CNN, ResNet18, "
        f"ViT; three seeds) its mean AUROC is **{n['guard']:.2f}**; of the single scores the best, ViM, which needs "
        f"labelled training data, has {n['vim']:.2f}, KNN {n['knn']:.2f}, GEN {n['gen']:.2f}, REGrad "
        f"{n['regrad']:.2f}. It is within half a point of the best single score of each pair, or above it, on "
        f"{n['near']:.0f} of {n['pairs']:.0f}; with 100 reference pictures it loses {n['loss at 100']:.1f} points on "
        "the mean over networks. It is worse on pictures that look *more* typical than the known ones (CIFAR-10 for a "
        f"network of CIFAR-100: {n['near guard']:.1f}, GEN {n['near gen']:.1f}, REGrad {n['near regrad']:.1f}), and at "
        f"telling wrong answers from right ones, another question ({n['wrong guard']:.1f}; the largest probability "
        f"{n['wrong max_probability']:.1f}). [All numbers]({BLOB}/papers/results/guard.md): `nescio reproduce guard`."
    )


def figure() -> str:
    """What the picture of the first screen shows, with the count of all that were judged."""
    result = json.loads((ROOT / "docs" / "figures" / "first-screen.json").read_text())
    passed, every = result["passed"]
    caught, others = (sum(counts) for counts in zip(*result["caught"].values(), strict=True))
    wrong = [row["picture"] for row in result["rows"] if row["kind"] == "photographs" and row["foreign"]]
    missed = f" (here {', '.join(wrong)} does not)" if wrong else ""
    return wrapped(
        "*A network of ImageNet that nobody here trained, and a guard, as it comes, that has seen "
        f"{result['reference']} photographs of two publishers. Beside each picture: the map of its doubt; below: the "
        f"verdict at {100 * result['level']:.0f} %, the p-value, what the network answers and how sure it is. Of all "
        f"that were tried {passed} of {every} photographs of others pass{missed}, and "
        f"{caught} of {others} pictures that are no photographs are caught.* "
        f"[How it is made]({BLOB}/docs/building/first_screen.py)."
    )


def thousand() -> str:
    """REGrad as it comes at 1,000 classes, one line a network; where one was measured again the later run counts."""
    lines = [
        "| network | H200, forward passes | five scores ÷ one | inputs/s | a CPU, forward passes | five scores ÷ one |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    gpu, cpu = (_result(f"affordable-{device}") for device in ("cuda", "cpu"))
    found = [
        {
            row["network"]: row
            for run in (result, *result.get("later", ()))
            for row in run["rows"]
            if "zeros" not in row.get("note", "")  # such a head has gradients of zero below it
        }
        for result in (gpu, cpu)
    ]
    for name in dict.fromkeys([*found[0], *found[1]]):
        cells = [name]
        for rows, rate in zip(found, (True, False), strict=True):
            row = rows.get(name)
            cells += ["", ""] if row is None else [f"{row['forwards']:.1f}", f"{_five(row):.2f}"]
            cells += [] if not rate else [""] if row is None else [f"{row['inputs_per_second']:.0f}"]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def first() -> str:
    """What the first call takes beyond the second, with no kernels on disk and with those of an earlier process."""
    told = []
    for device, unit, where in (("cuda", "s", "On one H200"), ("cpu", "cpu_s", "On a CPU, CPU time of one thread")):
        times: dict[str, dict[str, float]] = {}
        for row in _result(f"first-call-{device}")["rows"]:
            times.setdefault(row["network"], {})[row["cache"]] = row[f"first_call_{unit}"] - row[f"second_call_{unit}"]
        each = "; ".join(f"{name} {own['cold']:.1f} s and {own['warm']:.1f} s" for name, own in times.items())
        told += [f"- {where}, cold and warm: {each}."] if times else []
    return "\n".join(told)


def small() -> str:
    """Small work beside the plain loop."""
    n = _result("small-cpu")["summary"]
    return wrapped(
        f"Of {n['networks']} foreign networks (three inputs, three classes, one thread) the second call takes "
        f"{n['second']['median']:.2f} times the plain loop's CPU time in the median (worst "
        f"{n['second']['worst']:.1f}), "
        f"the first {n['first']['median']:.2f} (worst {n['first']['worst']:.1f}), and five scores "
        f"{n['five_to_one']['median']:.2f} times one (worst {n['five_to_one']['worst']:.2f})."
    )


def ten() -> str:
    """Exact norms at ten classes, one line a run."""
    lines = ["| | network | batch | precision | forward passes | inputs/s |", "|---|---|---:|---|---:|---:|"]
    for device, where in (("cuda", "H200"), ("cpu", "a CPU")):
        for row in _result(f"exact-{device}")["rows"]:
            last = ", channels last" if row["channels_last"] and row["batch"] > 1 else ""
            lines.append(
                f"| {where} | {row['network']}, {row['pixels']}² | {row['batch']} | {row['precision']}{last} | "
                f"{row['forwards']:.1f} | {row['inputs_per_second']:,.1f} |"
            )
    return "\n".join(lines)


def maps() -> str:
    """Maps of many classes, and a page with some."""
    words = {
        "map": "a map of {network} takes {forwards:.0f} forward passes, and may be off by {median_told_error:.1%}",
        "report": "a report of {pictures} pictures, with maps of the {doubtful_drawn} most doubtful and half as many "
        "others, takes {s:.0f} s by the clock with {cores}, and {cpu_s:.0f} s of CPU time",
    }
    pages = _result("pages-cpu")
    rows = [*_result("maps-cpu")["rows"], *({**row, "cores": _threads(pages)} for row in pages["rows"])]
    return "\n".join(f"- {words[row.get('what', 'map')].format(**row)}".replace("%", " %") for row in rows)


def _threads(result: dict[str, Any]) -> str:
    count = result["machine"]["threads"]
    return "one thread" if count == 1 else f"{count} threads"


def strangers() -> str:
    """The engine beside the oracle on networks of others."""
    result = _result("strangers")
    n, later = result["counts"], result.get("earlier", {}).get("networks", ())
    return wrapped(
        f"`python benchmarks/strangers.py` sets the engine beside the oracle on {sum(n.values())} networks of others: "
        f"{n['exact']} exact, {n['float32']} exact to their own float32, {n['refused']} refused, {n['wrong']} wrong, "
        f"{n['crashed']} crashed, {n['left out']} left out ([numbers](results/strangers.json))."
        + (f" {len(later)} of them were judged with an earlier engine." if later else "")
    )


def _result(name: str) -> dict[str, Any]:
    path = RESULTS / f"{name}.json"
    result: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {"rows": []}
    return result


def _five(row: dict[str, Any]) -> float:
    return float(row["forwards_of_five_scores"] / row["forwards"])


def wrapped(text: str) -> str:
    """The text in lines of at most 119 characters."""
    return "\n".join(textwrap.wrap(text, 119, break_long_words=False, break_on_hyphens=False))


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)


def fill(text: str, marker: str, block: str) -> str:
    """The text with what stands between the marker's two comments replaced."""
    before, _, rest = text.partition(f"<!-- {marker}:begin -->")
    _, _, after = rest.partition(f"<!-- {marker}:end -->")
    return f"{before}<!-- {marker}:begin -->\n{block}\n<!-- {marker}:end -->{after}"


PAGES: dict[str, dict[str, Callable[[], str]]] = {
    "README.md": {"figure": figure, "guard": guard},
    "docs/choose.md": {"methods": lambda: nescio.methods().to_markdown().strip()},
    "docs/measured.md": {"guard": guard, "truth": truth, "kinds": kinds, "speed": speed},
    "docs/index.md": {"figure": figure},
    "benchmarks/README.md": {make.__name__: make for make in (thousand, first, small, ten, strangers, maps)},
}
"""Which numbers stand on which page."""


def render(text: str, page: str) -> str:
    """The text of a page with its numbers up to date."""
    for marker, block in PAGES[page].items():
        assert text.count(f"<!-- {marker}:begin -->") == text.count(f"<!-- {marker}:end -->") == 1, (page, marker)
        text = fill(text, marker, block())
    return text


def _exact(result: dict[str, Any]) -> list[dict[str, Any]]:
    """The exact norms among what `gpu.py` measured, in the form of `gradients.py`."""
    found: dict[tuple[str, int], dict[str, Any]] = {}
    for row in result["parts"]["exact"]:
        found.setdefault((row["model"], row["batch"]), {})[row["way"]] = row
    return [{"model": model, "batch": batch, "ways": ways} for (model, batch), ways in found.items()]


def _row(result: dict[str, Any]) -> str:
    own = result["ways"]["nescio"]
    peers = [_ratio(result["ways"].get(way, {})) for way in ("vmap", "backpack")]
    cells = [
        NAMES[result["model"]], str(result["batch"]), f"{own['inputs_per_second']:,.0f}", f"**{own['ratio']:.1f}**",
        f"{own['forwards']:.1f}", f"{own['peak_gb']:.2f}", *peers,
    ]  # fmt: skip
    return "| " + " | ".join(cells) + " |"


def _ratio(way: dict[str, Any]) -> str:
    return f"{way['ratio']:.1f}" if "ratio" in way else "fails"


def _device(machine: dict[str, Any]) -> str:
    threads = machine["threads"]
    return f"one {machine['device']}" if machine["tf32"] else f"{threads} cores ({machine['device']})"


if __name__ == "__main__":
    for page in PAGES:
        (ROOT / page).write_text(render((ROOT / page).read_text(), page))
