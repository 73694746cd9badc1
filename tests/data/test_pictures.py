"""A set of pictures in memory."""

import pytest
import torch

from nescio.data import subset, to_float
from nescio.data.pictures import PictureSet
from nescio.types import InputError


class TestPictures:
    def small(self, n: int = 10) -> PictureSet:
        x = torch.arange(n, dtype=torch.uint8).reshape(n, 1, 1, 1).expand(n, 1, 8, 8)
        return PictureSet(x, torch.arange(n), "small", "test", tuple(map(str, range(n))), "made up")

    def test_subset(self) -> None:
        whole = self.small()
        part = subset(whole, 4, seed=3)
        assert torch.equal(part.x[:, 0, 0, 0].long(), part.y)  # pictures and labels stay together
        assert part.y.tolist() == sorted(set(part.y.tolist()))
        assert torch.equal(part.y, subset(whole, 4, seed=3).y)
        assert any(not torch.equal(part.y, subset(whole, 4, seed=seed).y) for seed in range(3))
        assert set(part.y.tolist()) <= set(subset(whole, 7, seed=3).y.tolist())
        assert subset(whole, 10) is whole
        assert "4 of these 10" in part.about

    def test_subset_leaves_the_generator_alone(self) -> None:
        state = torch.get_rng_state()
        subset(self.small(), 4)
        assert torch.equal(state, torch.get_rng_state())

    @pytest.mark.parametrize("n", [0, 11, 2.0, True])
    def test_subset_of_a_wrong_size(self, n: object) -> None:
        with pytest.raises(InputError, match=r"from 1 to 10, got .*; there are 10 pictures of small test"):
            subset(self.small(), n)  # type: ignore[arg-type]

    def test_to_float(self) -> None:
        got = to_float(torch.tensor([0, 51, 255], dtype=torch.uint8))
        assert got.dtype == torch.float32
        assert torch.equal(got, torch.tensor([0, 0.2, 1.0]))
        with pytest.raises(InputError, match=r"uint8 tensor, but got torch\.float32"):
            to_float(got)

    def test_a_set_is_checked(self) -> None:
        with pytest.raises(InputError, match=r"uint8 \[N, C, H, W\], at least one, but got float32 \[2, 1, 8, 8\]"):
            PictureSet(torch.zeros(2, 1, 8, 8), torch.zeros(2).long(), "a", "test", ("b",), "")
        with pytest.raises(InputError, match="at least one"):
            PictureSet(torch.zeros(0, 1, 8, 8).byte(), torch.zeros(0).long(), "a", "test", ("b",), "")
        with pytest.raises(InputError, match="one int64 label"):
            PictureSet(torch.zeros(2, 1, 8, 8).byte(), torch.zeros(3).long(), "a", "test", ("b",), "")
