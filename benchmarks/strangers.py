"""Networks that nobody here wrote, in float64 against the oracle: does the engine ever give a wrong number?

    uv pip install timm torchvision transformers
    python benchmarks/strangers.py                      # hours on one core; results/strangers.json
    python benchmarks/strangers.py timm/levit hf/bert   # these alone, again

The smallest network of every module of timm and of torchvision's classifiers, and Hugging Face architectures from tiny
configurations, with random weights, three classes and two inputs of the smallest size that they take. Each is scored by
the engine, with two inputs at a time and with one, and by `nescio.trace.reference`. It is

    exact          to 1e-9
    float32        computes in float32 inside, whatever its type, and is exact to its own round-off: what the oracle
                   itself changes by when the parameters change in the eighth digit
    refused        with a sentence of nescio's own
    wrong, crashed what must not be
    left out       does not build, does not run, is too large, takes too long: with the reason

Networks run in a process of their own, which is ended where it takes too long. What is done stays done: a run that was
interrupted goes on where it was.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import time
import warnings
from collections import Counter
from collections.abc import Callable
from importlib.metadata import version
from itertools import product
from typing import Any

import torch
from measure import RESULTS, machine, save
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from nescio import trace
from nescio.types import InputError, ModelError

SECONDS = 600
LARGEST = 140_000_000
EXACT = 1e-9
ROUNDED = 10
"""How many times its own round-off a network that computes in float32 may be off."""
WORDS = (
    "test_",
    "zepto",
    "atto",
    "femto",
    "pico",
    "nano",
    "xxs",
    "xxt",
    "mini",
    "tiny",
    "_xs",
    "_t",
    "_s",
    "small",
    "18",
)
"""What the names of small networks say, the smallest first."""
TEXT = """
    albert bart bert big_bird bloom camembert canine convbert ctrl deberta deberta-v2 distilbert electra ernie falcon
    flaubert fnet funnel gemma gemma2 gpt2 gpt_neo gpt_neox gptj ibert llama longformer mbart mistral mixtral
    mobilebert modernbert mpnet mpt mt5 nystromformer olmo olmo2 openai-gpt opt persimmon phi phi3 qwen2 qwen2_moe
    qwen3 qwen3_moe reformer rembert roberta roformer squeezebert stablelm starcoder2 t5 umt5 xlm xlm-roberta
    yoso
"""
IMAGE = """
    beit bit convnext convnextv2 cvt data2vec-vision deit dinov2 efficientnet focalnet hiera levit mobilenet_v1
    mobilenet_v2 mobilevit mobilevitv2 poolformer pvt pvt_v2 regnet resnet segformer swiftformer swin swinv2 vit
    vit_msn
"""
SMALL = {
    16: "hidden_size d_model dim n_embd embed_dim model_dim emb_dim embedding_size qk_channels v_channels",
    2: "num_hidden_layers n_layer num_layers n_layers encoder_layers decoder_layers num_decoder_layers n_head "
    "num_heads num_attention_heads n_heads encoder_attention_heads decoder_attention_heads num_key_value_heads "
    "num_experts num_local_experts num_experts_per_tok num_encoder_layers",
    32: "intermediate_size ffn_dim d_ff d_inner encoder_ffn_dim decoder_ffn_dim n_inner moe_intermediate_size "
    "shared_expert_intermediate_size image_size hidden_dim",
    8: "head_dim d_kv patch_size num_buckets relative_attention_num_buckets attention_head_size",
    64: "max_position_embeddings n_positions n_ctx vocab_size max_seq_len",
    1: "bos_token_id eos_token_id",
}
"""Settings of configurations, where they have them, by their value here."""
EXTRA: dict[str, dict[str, Any]] = {
    "bit": {"embedding_size": 32},
    "efficientnet": {"hidden_dim": None},
    "falcon": {"head_dim": None},
    "funnel": {"num_hidden_layers": None, "block_sizes": [1, 1], "num_decoder_layers": 1},
    "gpt_neo": {"attention_types": [[["global", "local"], 1]]},
    "gptj": {"rotary_dim": 4},
    "mobilevitv2": {"image_size": 256},
    "reformer": {"axial_pos_embds_dim": (8, 8), "axial_pos_shape": (8, 8), "attn_layers": ["local", "local"]},
    "swinv2": {"embed_dim": 24, "hidden_size": None, "num_heads": None, "num_layers": None, "patch_size": None},
    **{kind: {"experts_implementation": "eager"} for kind in ("mixtral", "qwen2_moe", "qwen3_moe")},
}
"""What single architectures need besides; None: the setting is left alone."""


class Listening(TorchDispatchMode):
    """Inside, an operation that gives float32 is noted."""

    inside = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        self.inside |= isinstance(out, Tensor) and out.dtype == torch.float32 and out.numel() > 1
        return out


def judge(model: nn.Module, x: Any) -> dict[str, Any]:
    """What the engine makes of a network that runs."""
    with torch.no_grad(), Listening() as heard:
        model(**x) if isinstance(x, dict) else model(x)
    try:
        found = trace.class_gradients(model, x, layers="tensor")
        alone = trace.class_gradients(model, x, layers="tensor", chunk=1)
    except (ModelError, InputError) as error:
        return {"verdict": "refused", "says": str(error)}
    except Exception as error:  # whatever it is, it is ours
        return {"verdict": "crashed", "says": f"{type(error).__name__}: {error}"[:500]}
    try:
        wanted = trace.reference.class_gradients(model, x, layers="tensor")
    except Exception as error:
        return {"verdict": "crashed", "says": f"the oracle: {type(error).__name__}: {error}"[:500]}
    error = max(apart(found.norms, wanted.norms), apart(alone.norms, wanted.norms))
    row = {"error": error, "layers": len(wanted.layers)}
    if error <= EXACT:
        return {"verdict": "exact", **row}
    if not heard.inside:
        return {"verdict": "wrong", **row}
    own = 0.0
    for _ in range(3):  # a change of less than float32's last digit may happen to round to nothing
        with torch.no_grad():
            for p in model.parameters():
                p.mul_(1 + 3e-8 * torch.randn_like(p))
        own = max(own, apart(trace.reference.class_gradients(model, x, layers="tensor").norms, wanted.norms))
    return {"verdict": "float32" if error <= ROUNDED * own else "wrong", **row, "own": own}


def apart(found: Tensor, wanted: Tensor) -> float:
    """The largest relative error; a norm that is nothing but round-off is held against the input's largest."""
    largest = wanted.flatten(1).amax(1).view(-1, 1, 1)
    return float(((found - wanted).abs() / (wanted + 1e-6 * largest)).nan_to_num(0.0, torch.inf).max())


def lively(model: nn.Module) -> nn.Module:
    """In float64 and eval mode, with something in the place of zeros, and batch norms as if they had seen data."""
    model = model.double().eval()
    with torch.no_grad():
        for p in model.parameters():
            if p.is_floating_point() and not p.any():
                p.normal_(0, 0.05)
        for name, b in model.named_buffers():
            if name.endswith("running_mean"):
                b.normal_(0, 0.1)
            elif name.endswith("running_var"):
                b.uniform_(0.5, 1.5)
    return model


def networks() -> list[str]:
    """The names of all."""
    import timm
    import torchvision

    vision = {torchvision.models.get_model_builder(n).__module__.rpartition(".")[2] for n in _torchvision()}
    names = [f"hf/{kind}" for kind in TEXT.split()] + [f"hf-image/{kind}" for kind in IMAGE.split()]
    return names + [f"torchvision/{m}" for m in sorted(vision)] + [f"timm/{m}" for m in timm.list_modules()]


def _torchvision() -> list[str]:
    from torchvision import models

    return models.list_models(module=models)


def _smallest(names: list[str], build: Callable[[str], nn.Module]) -> str:
    """The network of fewest parameters among those whose names say that they are small."""
    ranked = sorted(names, key=lambda n: (next((i for i, w in enumerate(WORDS) if w in n), len(WORDS)), len(n), n))
    counts = {}
    for name in ranked[:4]:
        try:
            with torch.device("meta"):
                counts[name] = sum(p.numel() for p in build(name).parameters())
        except Exception:  # some cannot be built without memory
            continue
    return min(counts, key=counts.__getitem__) if counts else ranked[0]


def made(name: str) -> tuple[str, nn.Module, list[Any]]:
    """The network's own name, the network, and inputs to try, the smallest first."""
    source, kind = name.split("/", 1)
    if source == "timm":
        import timm

        own = _smallest(timm.list_models(module=kind), lambda n: timm.create_model(n, num_classes=3))
        with torch.device("meta"):
            size = timm.create_model(own, num_classes=3).default_cfg["input_size"][-1]
        least = 64 if kind == "swin_transformer_v2" else 32  # of windows of one pixel it divides by zero
        for small, given in product((least, 64, 96, 128, 192, size), (True, False)):
            how = {"img_size": small} if given else {}
            try:
                with torch.device("meta"), torch.no_grad():  # what sizes it takes, before it is built
                    timm.create_model(own, num_classes=3, **how).eval()(torch.empty(2, 3, small, small))
            except Exception:
                continue
            return own, timm.create_model(own, num_classes=3, **how), [_pictures(small), _pictures(size)]
        return own, timm.create_model(own, num_classes=3), [_pictures(s) for s in (32, 64, 128, size)]
    if source == "torchvision":
        from torchvision.models import get_model, get_model_builder

        family = [n for n in _torchvision() if get_model_builder(n).__module__.endswith(f".{kind}")]
        extra: dict[str, Any] = {"init_weights": False} if kind in ("googlenet", "inception") else {}
        own = _smallest(family, lambda n: get_model(n, num_classes=3, **extra))
        return own, get_model(own, num_classes=3, **extra), [_pictures(s) for s in (32, 64, 96, 128, 224, 299)]
    return _from_transformers(kind, pictures=source == "hf-image")


def _from_transformers(kind: str, pictures: bool) -> tuple[str, nn.Module, list[Any]]:
    from transformers import AutoConfig, AutoModelForImageClassification, AutoModelForSequenceClassification

    settings = {word: value for value, words in SMALL.items() for word in words.split()}
    usual = AutoConfig.for_model(kind)
    ours = {k: v for k, v in settings.items() if isinstance(getattr(usual, k, None), int)}
    ours = {k: v for k, v in (ours | EXTRA.get(kind, {})).items() if v is not None}
    config = AutoConfig.for_model(kind, **ours)
    config.num_labels, config.pad_token_id, config.decoder_start_token_id = 3, 0, 0
    auto = AutoModelForImageClassification if pictures else AutoModelForSequenceClassification
    model = auto.from_config(config)
    if pictures:
        return type(model).__name__, model, [_pictures(s, "pixel_values") for s in (32, 64, 224, 256)]
    tokens = torch.randint(2, 60, (2, 8))
    tokens[:, -1] = 1  # some look for the end
    return (
        type(model).__name__,
        model,
        [{"input_ids": tokens, "attention_mask": torch.ones_like(tokens)}, {"input_ids": tokens}],
    )


def _pictures(size: int, name: str | None = None) -> Any:
    x = torch.randn(2, 3, size, size, dtype=torch.float64)
    return x if name is None else {name: x}


def work(pipe: Any) -> None:
    """Take names and give verdicts."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    while (name := pipe.recv()) is not None:
        torch.manual_seed(0)
        start = time.perf_counter()
        try:
            own, model, tries = made(name)
            row = {"network": own, **_run(model, tries)}
        except Exception as error:
            row = {"verdict": "left out", "says": f"does not build: {type(error).__name__}: {error}"[:300]}
        pipe.send({**row, "seconds": round(time.perf_counter() - start, 1)})


def _run(model: nn.Module, tries: list[Any]) -> dict[str, Any]:
    size = sum(p.numel() for p in model.parameters())
    if size > LARGEST:
        return {"verdict": "left out", "says": f"{size:,} parameters"}
    model, says = lively(model), ""
    for x in tries:
        try:
            with torch.no_grad():
                out = model(**x) if isinstance(x, dict) else model(x)
        except Exception as error:
            says = f"does not run: {type(error).__name__}: {error}"[:300]
            continue
        logits = getattr(out, "logits", out)
        if isinstance(logits, Tensor) and not bool(logits.isfinite().all()):
            says = "gives logits that are not finite"
            continue
        shape = list((next(iter(x.values())) if isinstance(x, dict) else x).shape)
        return {"parameters": size, "input": shape, **judge(model, x)}
    return {"verdict": "left out", "says": says}


class Worker:
    """A process that judges networks, and another one after it had to be ended."""

    def __init__(self) -> None:
        self.process: Any = None

    def verdict(self, name: str) -> dict[str, Any]:
        """What it says, or that it took too long or died."""
        if self.process is None:
            context = multiprocessing.get_context("spawn")
            self.pipe, inner = context.Pipe()
            self.process = context.Process(target=work, args=(inner,), daemon=True)
            self.process.start()
            inner.close()
        self.pipe.send(name)
        try:
            if self.pipe.poll(SECONDS):
                return self.pipe.recv()
            row = {"verdict": "left out", "says": f"more than {SECONDS} s"}
        except EOFError:
            row = {"verdict": "crashed", "says": "the process died"}
        self.end()
        return row

    def end(self) -> None:
        """End the process."""
        if self.process is not None:
            self.process.kill()
            self.process.join()
            self.process = None


def counts(rows: dict[str, dict[str, Any]]) -> dict[str, int]:
    """How many networks had each verdict."""
    found = Counter(row["verdict"] for row in rows.values())
    return {verdict: found[verdict] for verdict in ("exact", "float32", "refused", "wrong", "crashed", "left out")}


def main() -> None:
    """Judge, and write what was found after each network."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "names", nargs="*", help="networks to judge again, such as timm/levit; none: all that are not done"
    )
    args = parser.parse_args()
    file = RESULTS / "strangers.json"
    rows: dict[str, dict[str, Any]] = json.loads(file.read_text(encoding="utf-8"))["networks"] if file.exists() else {}
    every = networks()
    todo = args.names or [name for name in every if name not in rows]
    packages = {name: version(name) for name in ("torch", "timm", "torchvision", "transformers")}
    worker = Worker()
    for at, name in enumerate(todo, 1):
        rows[name] = worker.verdict(name)
        print(f"{at}/{len(todo)} {name}: {rows[name]['verdict']} {rows[name].get('says', '')[:100]}", flush=True)
        rows = {n: rows[n] for n in every if n in rows}
        save(
            "strangers",
            {"machine": machine(torch.device("cpu")), "packages": packages, "counts": counts(rows), "networks": rows},
        )
    worker.end()
    print(json.dumps(counts(rows), indent=1))


if __name__ == "__main__":
    main()
