"""Networks of other things than pictures: Magika (files), RXNFP (chemical reactions), ICLabel (EEG)."""

from __future__ import annotations

import json
import re
import sysconfig
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import nescio
from packaged.base import Opened, fetched, found, module_of
from packaged.onnx_files import answered, difference

ENDINGS = {
    ".py": "python", ".pyc": "pythonbytecode", ".so": "elf", ".json": "json", ".html": "html", ".css": "css",
    ".js": "javascript", ".png": "png", ".csv": "csv", ".md": "markdown", ".rst": "rst", ".h": "c", ".npz": "npz",
    ".npy": "npy", ".ttf": "ttf", ".svg": "svg", ".xml": "xml", ".zip": "zip", ".gz": "gzip", ".yaml": "yaml",
}  # fmt: skip
"""Endings of files on any machine with Python, and what Magika calls them."""


def magika() -> Opened:
    """Google's Magika: of which kind is a file, by its first and last 1,024 bytes?"""
    file = found("magika", "standard_v3_3/model.onnx")
    names = json.loads(file.with_name("config.min.json").read_text())["target_labels_space"]
    model = nescio.models.from_onnx(file)
    draw = np.random.default_rng(0)
    held = _files(draw, 30)
    x = torch.stack([as_bytes(content) for content, _ in held])
    y = torch.tensor([names.index(kind) for _, kind in held])
    answers = torch.cat([answered(model, part) for part in x.split(50)])
    half = len(x) // 3 * 2
    sources = [content for content, kind in held[half:] if kind == "python"][:20]
    return Opened(
        what="Magika, of bytes, 214 kinds of files, ONNX",
        model=model,
        reference=x[:half],
        own=x[half:],
        foreign={
            "sources with every bit turned": torch.stack([as_bytes(bytes(255 - b for b in one)) for one in sources]),
            "sources read backwards": torch.stack([as_bytes(one[::-1]) for one in sources]),
            "raw numbers in float32": torch.stack(
                [as_bytes(draw.standard_normal(2000).astype(np.float32).tobytes()) for _ in range(20)]
            ),
        },
        said=f"{half} files of this machine's Python, of {len({kind for _, kind in held})} kinds",
        facts={
            "difference from onnxruntime": difference(file, model, {"bytes": x[:16]}),
            "answers that agree with the ending": float((answers == y).double().mean()),
            "on": f"{len(x)} files",
        },
        classes=list(names),
        labels=y[half:],
    )


def as_bytes(content: bytes) -> Tensor:
    """The first and the last 1,024 bytes without white space around them; 256 where there are none."""
    first, last = content[:4096].lstrip()[:1024], content[-4096:].rstrip()[-1024:]
    row = np.full(2048, 256, np.int32)
    row[: len(first)] = np.frombuffer(first, np.uint8)
    row[2048 - len(last) :] = np.frombuffer(last, np.uint8)
    return torch.from_numpy(row)


def _files(draw: np.random.Generator, each: int) -> list[tuple[bytes, str]]:
    places = {Path(sysconfig.get_path(name)) for name in ("stdlib", "purelib")}
    by_ending: dict[str, list[Path]] = {ending: [] for ending in ENDINGS}
    for path in sorted(one for place in places for one in place.rglob("*.*")):
        if path.suffix in by_ending and path.is_file() and path.stat().st_size >= 64:
            by_ending[path.suffix].append(path)
    chosen = []
    for ending, paths in by_ending.items():
        for i in draw.permutation(len(paths))[:each]:
            chosen.append((paths[i].read_bytes()[:200_000], ENDINGS[ending]))
    return [chosen[i] for i in draw.permutation(len(chosen))]


def reactions() -> Opened:
    """RXNFP: a BERT for 50 classes of chemical reactions, written as SMILES."""
    import transformers

    folder = fetched("rxnfp") / "rxnfp" / "models" / "transformers" / "bert_ft_10k_25s"
    model = transformers.BertForSequenceClassification.from_pretrained(folder, num_labels=50).eval()
    tokenizer = _tokenizer(folder / "vocab.txt")
    draw = np.random.default_rng(0)
    written, kinds = _reactions(draw, 600)
    tokens = _tokens(tokenizer, written)
    with torch.no_grad():
        answers = torch.cat([model(**part).logits.argmax(1) for part in _split(tokens, 50)])
    spread = {
        kind: round(float((answers[at] == answers[at].mode().values).double().mean()), 3)
        for kind in sorted(set(kinds))
        if len(at := torch.tensor([i for i, one in enumerate(kinds) if one == kind]))
    }
    prose = ["Once", "upon", "a", "time", "there", "was", "an", "old", "house", "near", "the", "Sea"]
    shuffled = ["".join(draw.permutation(re.findall(PATTERN, one))) for one in written[500:520]]
    foreign = {
        "prose": [" ".join(draw.permutation(prose)) for _ in range(20)],
        "tokens of reactions, shuffled": shuffled,
        "molecules alone": [one.partition(">>")[2] for one in written[500:520]],
    }
    return Opened(
        what="RXNFP, a BERT for 50 classes of reactions",
        model=model,
        reference=_rows(tokens, slice(0, 400)),
        own=_rows(tokens, slice(400, 600)),
        foreign={name: _tokens(tokenizer, lines) for name, lines in foreign.items()},
        said="400 reactions of six kinds, put together here from pieces of molecules",
        facts={"share of a kind's reactions that get one class": spread},
    )


PATTERN = (
    r"\%\([0-9]{3}\)|\[[^\]]+]|Br?|Cl?|N|O|S|P|F|I|b|c|n|o|s|p|\||\(|\)|\.|=|#|-|\+|\\|\/|:|~|@|\?|>>?|\*|\$|"
    r"\%[0-9]{2}|[0-9]"
)
"""As in rxnfp/tokenization.py: what a SMILES is cut into."""
LENGTH = 96


def _tokenizer(file: Path) -> Any:
    import transformers
    from tokenizers import Regex, Tokenizer, models, pre_tokenizers, processors

    words = {word: i for i, word in enumerate(file.read_text(encoding="utf-8").split("\n")) if word}
    made = Tokenizer(models.WordLevel(words, unk_token="[UNK]"))
    made.pre_tokenizer = pre_tokenizers.Split(Regex(PATTERN), behavior="removed", invert=True)
    ends = [(name, words[name]) for name in ("[CLS]", "[SEP]")]
    made.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=ends)
    return transformers.PreTrainedTokenizerFast(tokenizer_object=made, unk_token="[UNK]", pad_token="[PAD]")


def _tokens(tokenizer: Any, lines: list[str]) -> dict[str, Tensor]:
    given = tokenizer(lines, padding="max_length", truncation=True, max_length=LENGTH, return_tensors="pt")
    return {name: given[name] for name in ("input_ids", "attention_mask")}


def _rows(batch: dict[str, Tensor], which: slice) -> dict[str, Tensor]:
    return {name: value[which] for name, value in batch.items()}


def _split(batch: dict[str, Tensor], size: int) -> list[dict[str, Tensor]]:
    return [_rows(batch, slice(i, i + size)) for i in range(0, len(batch["input_ids"]), size)]


def _reactions(draw: np.random.Generator, count: int) -> tuple[list[str], list[str]]:
    """Reactions of six kinds: the same pieces on both sides."""
    alkyl = ["C", "CC", "CCC", "CC(C)", "CCCC", "CC(C)C", "COCC", "C1CCCC1", "C1CCCCC1", "FC(F)(F)C", "CCOC(=O)C"]
    tails = ["F", "Cl", "C", "OC", "C#N", "C(F)(F)F", "C(C)=O", "C(=O)OC", "N(C)C", "C(C)(C)C"]
    rings = [f"c1ccc({t})cc1" for t in tails] + [f"c1cc({t})ccn1" for t in tails] + ["c1ccc2ccccc2c1", "c1ccsc1"]
    forms = {
        "amide": lambda r, a, b: f"{r}C(=O)O.N{b}>>{r}C(=O)N{b}",
        "amide of a chloride": lambda r, a, b: f"{r}C(=O)Cl.N{b}>>{r}C(=O)N{b}",
        "ester": lambda r, a, b: f"O=C(O){a}.{r}O>>{r}OC(=O){a}",
        "Suzuki": lambda r, a, b: f"OB(O){a}.Br{b}>>{a}-{b}",
        "nitro to amine": lambda r, a, b: f"O=[N+]([O-]){b}>>N{b}",
        "Boc off": lambda r, a, b: f"CC(C)(C)OC(=O)N{b}>>N{b}",
    }
    written, kinds = [], []
    names = list(forms)
    while len(written) < count:
        kind = names[int(draw.integers(len(names)))]
        r, a, b = (str(draw.choice(pool)) for pool in (alkyl, rings, rings))
        b = re.sub(r"1", "3", b) if kind == "Suzuki" else b
        one = forms[kind](r, a, b)
        if one not in written or kind in ("nitro to amine", "Boc off"):
            written.append(one)
            kinds.append(kind)
    return written, kinds


class ICLabel(nn.Module):
    """The network of ICLabel: it sees four copies of a component, and its mean answer counts.

    The package joins the copies to one batch of 4 N rows, in which nobody can tell what belongs to which input. Here
    each copy goes through the same layers by itself: equal answers, and the guard sees every input's activations.
    """

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, topo: Tensor, psds: Tensor, autocorr: Tensor) -> Tensor:
        net = self.network
        rest = [net.reshape_concat(net.psds_conv(psds)), net.reshape_concat(net.autocorr_conv(autocorr))]
        copies = [topo, -topo, topo.flip(3), -topo.flip(3)]
        return torch.stack([net.seq(torch.cat([net.img_conv(one), *rest], 1)).flatten(1) for one in copies]).mean(0)


def components() -> Opened:
    """ICLabel: is a component of an EEG brain, muscle, eye, heart, or noise? Three inputs, seven classes."""
    place = found("mne-icalabel", "iclabel/network/torch.py")
    network = module_of(place, "icalabel_network").ICLabelNet()
    network.load_state_dict(torch.load(place.parent / "assets" / "ICLabelNet.pt", weights_only=True))
    model = ICLabel(network.eval()).eval()
    names = ["Brain", "Muscle", "Eye", "Heart", "Line Noise", "Channel Noise", "Other"]
    draw = np.random.default_rng(0)
    kinds = ["Brain", "Eye", "Muscle", "Line Noise", "Channel Noise"]
    drawn = [str(draw.choice(kinds)) for _ in range(500)]
    x = _stacked([component(kind, draw) for kind in drawn])
    with torch.no_grad():
        answers = torch.cat([model(*(v[i : i + 50] for v in x.values())).argmax(1) for i in range(0, 500, 50)])
    right = torch.tensor([names.index(kind) for kind in drawn])
    agree = {
        kind: round(float((answers == right)[[one == kind for one in drawn]].double().mean()), 3) for kind in kinds
    }
    generator = torch.Generator().manual_seed(0)
    checker = {"topo": (torch.arange(32)[:, None] + torch.arange(32)).remainder(2).mul(2.0).sub(1).expand(5, 1, 32, 32)}
    noise = {"topo": torch.rand(20, 1, 32, 32, generator=generator) * 2 - 1}
    rows = _stacked([component("Brain", draw) for _ in range(20)])
    return Opened(
        what="ICLabel, components of an EEG, three inputs, seven classes",
        model=nescio.Classifier(model, output="probabilities"),
        reference=_rows(x, slice(0, 400)),
        own=_rows(x, slice(400, 500)),
        foreign={
            "maps of noise": {**rows, **noise},
            "checkerboards as maps": {**_rows(rows, slice(0, 5)), **checker},
            "spectra of noise": {**rows, "psds": torch.rand(20, 1, 1, 100, generator=generator) * 2 - 1},
        },
        said="400 components of five kinds, made here: bumps as maps, spectra and echoes of waves",
        facts={"answers as intended": agree, "difference from onnxruntime": _against_onnx(place, model, x)},
        classes=names,
    )


def _against_onnx(place: Path, model: nn.Module, x: dict[str, Tensor]) -> float:
    import onnxruntime

    session = onnxruntime.InferenceSession(place.parent / "assets" / "ICLabelNet.onnx")
    few = _rows(x, slice(0, 8))
    topo = few["topo"]
    feed = {"topo": torch.cat([topo, -topo, topo.flip(3), -topo.flip(3)])}
    feed |= {name: few[name].repeat(4, 1, 1, 1) for name in ("psds", "autocorr")}
    right = session.run(None, {name: value.numpy() for name, value in feed.items()})[0]
    with torch.no_grad():
        return float(np.abs(model(**few).numpy() - right).max())


def component(kind: str, draw: np.random.Generator) -> dict[str, Tensor]:
    """A map of the scalp, the spectrum from 1 to 100 Hz and the autocorrelation of a second, each up to 0.99."""
    rate, seconds = 200, 20
    t = np.arange(rate * seconds) / rate
    white = draw.standard_normal(len(t))
    pink = np.fft.irfft(np.fft.rfft(white) / np.maximum(np.fft.rfftfreq(len(t), 1 / rate), 0.5), len(t))
    pink /= pink.std()
    place, width = draw.uniform(-0.6, 0.6, 2), draw.uniform(0.35, 0.7)
    if kind == "Brain":
        wave = pink + draw.uniform(0.8, 2) * np.sin(2 * np.pi * draw.uniform(8.5, 11.5) * t + draw.uniform(0, 6))
    elif kind == "Eye":
        blinks = np.zeros(len(t))
        blinks[draw.integers(0, len(t), seconds // 3)] = 1
        wave = np.convolve(blinks, np.hanning(rate // 2), "same") * 12 + pink * 0.3
        place, width = np.array([draw.uniform(-0.15, 0.15), 0.95]), draw.uniform(0.3, 0.45)
    elif kind == "Muscle":
        wave = np.diff(white, prepend=0)
        angle = draw.choice([-1, 1]) * draw.uniform(1.3, 1.8)
        place, width = np.array([np.sin(angle), np.cos(angle)]) * 0.85, draw.uniform(0.15, 0.25)
    elif kind == "Line Noise":
        wave = 0.3 * pink + draw.uniform(2, 4) * np.sin(2 * np.pi * draw.choice([50, 60]) * t)
    else:
        wave, width = white + 0.3 * pink, 0.12
    return {"topo": _map(place, width, draw), "psds": _spectrum(wave, rate), "autocorr": _echo(wave, rate)}


def _map(place: Any, width: float, draw: np.random.Generator) -> Tensor:
    side = np.linspace(-1, 1, 32)
    x, y = np.meshgrid(side, -side)  # the front is up
    bump = np.exp(-((x - place[0]) ** 2 + (y - place[1]) ** 2) / (2 * width**2))
    bump -= draw.uniform(0, 0.5) * np.exp(-((x + place[0]) ** 2 + (y + place[1]) ** 2) / (2 * (1.5 * width) ** 2))
    bump[x**2 + y**2 > 1] = 0
    return torch.from_numpy((0.99 * bump / np.abs(bump).max()).astype(np.float32))[None]


def _spectrum(wave: Any, rate: int) -> Tensor:
    parts = wave[: len(wave) // rate * rate].reshape(-1, rate) * np.hamming(rate)
    power = 10 * np.log10(np.median(np.abs(np.fft.rfft(parts)) ** 2, 0)[1:101] + 1e-12)
    return torch.from_numpy((0.99 * power / np.abs(power).max()).astype(np.float32))[None, None]


def _echo(wave: Any, rate: int) -> Tensor:
    power = np.abs(np.fft.rfft(wave - wave.mean(), 2 * len(wave))) ** 2
    echo = np.fft.irfft(power)[: rate + 1]
    at = np.interp(np.linspace(0, rate, 101)[1:], np.arange(rate + 1), echo / echo[0])
    return torch.from_numpy((0.99 * at).astype(np.float32))[None, None]


def _stacked(rows: list[dict[str, Tensor]]) -> dict[str, Tensor]:
    return {name: torch.stack([row[name] for row in rows]) for name in rows[0]}
