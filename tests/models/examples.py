"""Small models that the tests of this folder share."""

from pathlib import Path

import pytest
import torch
from torch import nn

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "a", "good", "bad", "film", "very", "it", "is"]


def mlp() -> nn.Sequential:
    return nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 4)).eval()


def conv() -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 2))


class Returns(nn.Module):
    """Gives the logits inside of something else."""

    def __init__(self, wrap):
        super().__init__()
        self.body, self.wrap = mlp(), wrap

    def forward(self, x):
        return self.wrap(self.body(x))


class Text(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.head = nn.Embedding(7, 4), nn.Linear(4, 3)

    def forward(self, input_ids, attention_mask):
        return self.head((self.embed(input_ids) * attention_mask[..., None]).sum(1))


def net() -> nn.Sequential:
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))


def equal(a: nn.Module, b: nn.Module) -> bool:
    return all(torch.equal(x, y) for x, y in zip(a.state_dict().values(), b.state_dict().values(), strict=True))


def save(model: nn.Module, file: Path, kind: str) -> Path:
    """Weights in a file of that kind: safetensors, torch or legacy (torch before 1.6)."""
    state = model.state_dict()
    if kind == "safetensors":
        from safetensors.torch import save_file

        save_file(state, file)
    elif kind == "legacy":
        torch.save(state, file, _use_new_zipfile_serialization=False)
    else:
        torch.save(state, file)
    return file


def never(*_):
    """A compiler that must not be called."""
    raise AssertionError("the model was compiled")


def tokenizer():
    """One of transformers, for a few words, made on the spot."""
    tokenizers = pytest.importorskip("tokenizers")
    transformers = pytest.importorskip("transformers")
    words = tokenizers.Tokenizer(
        tokenizers.models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="[UNK]")
    )
    words.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    words.post_processor = tokenizers.processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=words, unk_token="[UNK]", pad_token="[PAD]", cls_token="[CLS]", sep_token="[SEP]"
    )


def saved_text_model(folder: Path, **more) -> Path:
    """A text classifier of transformers, saved to a folder with its tokenizer."""
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=len(WORDS), hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32,
        max_position_embeddings=12, id2label={0: "no", 1: "yes", 2: "perhaps"}, **more,
        label2id={"no": 0, "yes": 1, "perhaps": 2},
    )  # fmt: skip
    transformers.BertForSequenceClassification(config).save_pretrained(folder)
    tokenizer().save_pretrained(folder)
    return folder


def saved_vit(folder: Path, num_labels: int = 4) -> Path:
    """A classifier of images of transformers, saved to a folder with its image processor."""
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.ViTConfig(
        hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32, image_size=16, patch_size=8,
        num_labels=num_labels,
    )  # fmt: skip
    transformers.ViTForImageClassification(config).save_pretrained(folder)
    transformers.ViTImageProcessor(size={"height": 16, "width": 16}, image_mean=[0.4] * 3).save_pretrained(folder)
    return folder
