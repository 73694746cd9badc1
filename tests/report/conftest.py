import numpy as np
import pytest

from nescio.report import Comparison, MethodResult, PictureSet


def pictures(name, count, labels=None, seed=0):
    random = np.random.default_rng(seed)
    return PictureSet(
        name=name,
        about=f"what {name} are",
        pictures=random.random((count, 8, 8)),
        predicted=np.arange(count) % 10,
        probability=np.linspace(0.5, 1, count),
        labels=labels,
    )


def method(name, shift, seconds=0.001, seed=0):
    random = np.random.default_rng(seed)
    return MethodResult(
        name=name,
        summary=f"The {name} of it.",
        cost="1",
        settings={"shift": shift},
        seconds_per_input=seconds,
        known=random.random(20),
        foreign={"patches": random.random(10) + shift, "letters": random.random(10) + shift / 2},
    )


def tile(state):
    return {
        "name": f"a {state} one",
        "class": "3",
        "probability": 0.5,
        "picture": np.zeros((8, 8)),
        "state": state,
        "copies": 1,
        "words": "It is odd.",
        "rarity": "It is rare.",
    }


@pytest.fixture(scope="session")
def comparison():
    labels = np.arange(20) % 10
    labels[3] = 7  # one digit that is read wrongly
    return Comparison(
        known=pictures("held-out digits", 20, labels),
        foreign=(pictures("patches", 10, seed=1), pictures("letters", 10, seed=2)),
        methods=(method("regrad", 0.4, 0.0123), method("entropy", 0.9, 4.2e-5, seed=1), method("wrong", -2.0, 1.5)),
        accuracy=0.95,
        facts={"command": "nescio demo --seed 0", "versions": "torch 0"},
        front={
            "judged": True,
            "headline": "Do not trust the answers for 1 of 2 pictures.",
            "lines": ["In the whole test it is so."],
            "counts": {"foreign": 1, "unsure": 0, "fine": 1},
            "left": {},
            "strip": [tile("foreign"), tile("fine")],
            "cards": {"foreign": [tile("foreign")], "unsure": []},
            "listed": {"foreign": [], "unsure": []},
            "do": ["Look."],
            "command": {"about": "Yours:", "text": "nescio report"},
        },
        featured="regrad",
    )
