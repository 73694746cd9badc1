"""Gradient scores at every position against plain autograd, one position and one class at a time."""

import itertools

import pytest
import torch
from torch import nn

import nescio
from nescio.dense.gradient_maps import scores
from nescio.dense.resize import MODES, Resize
from nescio.types import InputError, ModelError, NormTable
from tests.dense.networks import Tagger, UNet, Upsampled

METHODS = ["exgrad", "regrad", "evengrad", "gradnorm", "ungrad", "squared"]


def oracle(network, layers, x, places, norm=2, by="module", rows="classes", logits=None):
    """Norms of ∂ log p_c(q)/∂θ_l at some positions, one backward pass each: a NormTable of [M, R, L]."""
    z = (network(x) if logits is None else logits(network(x))).movedim(1, -1)
    log_p = z.log_softmax(-1)
    table, probabilities = [], []
    for place in places:
        own = log_p[place]
        wanted = own.unbind() if rows == "classes" else [own.mean()]
        table.append([])
        probabilities.append(own.detach().exp())
        for one in wanted:
            norms = []
            for layer in layers:
                gradients = torch.autograd.grad(one, list(layer.parameters()), retain_graph=True)
                flat = [g.flatten() for g in gradients]
                groups = flat if by == "tensor" else [torch.cat(flat)]
                norms += [float(torch.linalg.vector_norm(g, norm)) for g in groups]
            table[-1].append(norms)
    norms = torch.tensor(table, dtype=torch.float64)
    return NormTable(norms, torch.stack(probabilities), tuple(map(str, range(norms.shape[-1]))))


def places_in(shape, step=3):
    return list(itertools.product(*(range(0, n, step) for n in shape)))


def picture(*size, seed=0):
    return torch.rand(2, 3, *size, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def agree(classifier, network, layers, x, methods=METHODS, **more):
    maps = nescio.score(classifier, x, methods)
    for name, found in maps.items():
        method = nescio.scores.get(name)
        places = places_in(found.shape)
        table = oracle(network, layers, x, places, rows="uniform" if name == "gradnorm" else "classes", **more)
        wanted = method(table)
        torch.testing.assert_close(torch.stack([found[p] for p in places]), wanted, rtol=1e-9, atol=1e-13)


class Transposed(nn.Module):
    """A head that makes the picture larger itself."""

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 5, 3, stride=2, padding=1), nn.Tanh())
        self.head = nn.ConvTranspose2d(5, 4, 3, stride=2, padding=1, output_padding=1)

    def forward(self, x):
        return self.head(self.body(x))


@pytest.mark.parametrize(
    "build",
    [
        UNet,
        lambda: UNet(head=3),
        lambda: UNet(head=5, bias=False),
        Upsampled,
        lambda: Upsampled(align=True),
        lambda: Upsampled(mode="nearest"),
        lambda: Upsampled(mode="bicubic"),
        Transposed,
    ],
)
def test_every_gradient_score_is_that_of_autograd(build):
    torch.manual_seed(0)
    network = build().double().eval()
    agree(network, network, [network.head], picture(8, 12))


def test_a_larger_kernel_before_a_resize():
    torch.manual_seed(0)
    network = Upsampled().double().eval()
    network.head = nn.Conv2d(5, 4, 3, padding=1).double()
    agree(network, network, [network.head], picture(16, 12), ["exgrad", "gradnorm"])


@pytest.mark.parametrize("build", [UNet, lambda: UNet(head=3), Upsampled, lambda: Upsampled(mode="bicubic")])
@pytest.mark.parametrize("by", ["module", "tensor"])
@pytest.mark.parametrize("norm", [1, 2])
def test_both_norms_and_both_kinds_of_layers(build, by, norm):
    torch.manual_seed(0)
    network = build().double().eval()
    x = picture(8, 8)
    for method in (nescio.scores.ExGrad(norm=norm, layers=by), nescio.scores.GradNorm(norm=norm, layers=by)):
        found = nescio.score(network, x, method)
        places = places_in(found.shape)
        table = oracle(
            network, [network.head], x, places, norm, by, "uniform" if method.name == "gradnorm" else "classes"
        )
        torch.testing.assert_close(torch.stack([found[p] for p in places]), method(table), rtol=1e-9, atol=1e-13)


def test_the_weight_alone():
    torch.manual_seed(0)
    network, x = UNet().double().eval(), picture(8, 8)
    method = nescio.scores.ExGrad(layers="tensor", select="head.weight")
    places = places_in((2, 8, 8))
    table = oracle(network, [network.head], x, places, by="tensor")
    alone = method(NormTable(table.norms[..., :1], table.probabilities, ("weight",)))
    torch.testing.assert_close(torch.stack([nescio.score(network, x, method)[p] for p in places]), alone)
    with pytest.raises(
        InputError, match=r"one of the last layers \(head\) at least, .*got none with select=\('down.0',\)"
    ):
        nescio.score(network, x, "exgrad", select="down.0")


@pytest.mark.parametrize(
    ("build", "names"),
    [
        ("fcn_resnet50", ["classifier.4"]),  # beside another head, which is called later
        ("deeplabv3_mobilenet_v3_large", ["classifier.4"]),
        ("lraspp_mobilenet_v3_large", ["classifier.low_classifier", "classifier.high_classifier"]),
    ],
)
def test_torchvisions_networks(build, names):
    segmentation = pytest.importorskip("torchvision").models.segmentation
    torch.manual_seed(0)
    more = {} if build.startswith("lraspp") else {"aux_loss": True}
    network = getattr(segmentation, build)(weights=None, weights_backbone=None, num_classes=3, **more).double().eval()
    x = picture(64, 48)
    found = nescio.score(network, x, "exgrad")
    places = [(0, 0, 0), (1, 17, 30), (1, 63, 47)]
    layers = [network.get_submodule(name) for name in names]
    table = oracle(network, layers, x, places, logits=lambda out: out["out"])
    torch.testing.assert_close(
        torch.stack([found[p] for p in places]), nescio.scores.ExGrad()(table), rtol=1e-8, atol=1e-12
    )


def test_tokens():
    torch.manual_seed(0)
    network, x = Tagger().double(), torch.arange(14).reshape(2, 7)
    classifier = nescio.Classifier(network, output="dense", class_dim=-1)
    found = nescio.score(classifier, x, "exgrad")
    places = places_in((2, 7), 1)
    table = oracle(network, [network.head], x, places, logits=lambda z: z.movedim(-1, 1))
    torch.testing.assert_close(
        torch.stack([found[p] for p in places]), nescio.scores.ExGrad()(table), rtol=1e-9, atol=0
    )


def test_one_logit_for_two_classes():
    torch.manual_seed(0)
    network, x = UNet(classes=1).double().eval(), picture(8, 8)
    classifier = nescio.Classifier(network, output="binary", class_dim=1)
    agree(classifier, network, [network.head], x, logits=lambda s: torch.cat([torch.zeros_like(s), s], 1))


def test_sure_positions_keep_their_digits():
    network = nn.Conv2d(2, 3, 1).double()
    nn.init.eye_(network.weight.data[:2, :, 0, 0])
    nn.init.zeros_(network.weight.data[2])
    nn.init.zeros_(network.bias)
    x = torch.tensor([[[[60.0]], [[-10.0]]]], dtype=torch.float64)
    found = nescio.score(nescio.Classifier(network, output="dense", class_dim=1), x, "exgrad")
    a, b = torch.tensor([-60.0, -70.0], dtype=torch.float64).exp()  # of the other classes
    wanted = (((a + b) ** 2 + a**2 + b**2).sqrt() + 2**0.5 * (a + b)) * (60.0**2 + 10.0**2 + 1.0) ** 0.5
    torch.testing.assert_close(found.flatten()[0], wanted, rtol=1e-12, atol=0)


def test_what_has_no_closed_form_says_so():
    torch.manual_seed(0)
    closed = nn.Sequential(nn.Conv2d(3, 4, 1), nn.Tanh())
    with pytest.raises(
        ModelError, match=r"does something else after its last layers \(0\); use a method that needs no"
    ):
        nescio.score(closed, torch.rand(2, 3, 8, 8))
    with pytest.raises(InputError, match=r"'exgrad' without noise at every position \(sigma=0\), got sigma=0\.1"):
        nescio.score(UNet(), torch.rand(2, 3, 8, 8), "exgrad", sigma=0.1, samples=4)
    with pytest.raises(ModelError, match="none was called"):
        nescio.score(lambda x: x * 2.0, torch.rand(2, 3, 8, 8), nescio.scores.ExGrad(), output="dense")


def test_hooks_and_features_are_given_back():
    torch.manual_seed(0)
    network = UNet()
    nescio.score(network, torch.rand(2, 3, 8, 8), "exgrad")
    assert all(not module._forward_hooks for module in network.modules())
    closed = nn.Sequential(nn.Conv2d(3, 4, 1), nn.Tanh())
    with pytest.raises(ModelError):
        nescio.score(closed, torch.rand(2, 3, 8, 8))
    assert not closed[0]._forward_hooks


def test_a_head_that_was_replaced_is_found_anew():
    """Where the last layer was found before, its calls alone are noted: another one takes a second forward pass."""

    class Either(nn.Module):
        def __init__(self):
            super().__init__()
            self.heads = nn.ModuleList([nn.Conv2d(3, 4, 1).double(), nn.Conv2d(3, 4, 3, padding=1).double()])
            self.at = 0

        def forward(self, x):
            return self.heads[self.at](x)

    network, x = Either(), picture(6, 7)
    agree(network, network, [network.heads[0]], x)
    network.at = 1
    agree(network, network, [network.heads[1]], x)
    network.at = 0
    agree(network, network, [network.heads[0]], x)


@pytest.mark.parametrize(("mode", "align"), MODES)
@pytest.mark.parametrize("size", [(9, 14), (20, 15), (3, 30)])
def test_lengths_of_resized_features(mode, align, size):
    a = torch.randn(2, 7, 5, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    resize = Resize(size, mode, align)
    large = nn.functional.interpolate(a, size, mode=mode, align_corners=align)
    torch.testing.assert_close(resize.squares(a), large.square().sum(1), rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(resize.sizes(a), large.abs().sum(1), rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(resize.ones(a), torch.ones(size, dtype=torch.float64), rtol=1e-12, atol=0)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("norm", [1, 2])
def test_float32_gives_the_numbers_of_float64(method, norm):
    """Logits as large as those of sure networks, with classes far below what float32 can say of a probability."""
    logits = 30 * torch.randn(500, 21, generator=torch.Generator().manual_seed(0))
    chosen = nescio.scores.get(method, norm=norm, samples=0, layer_decay=0.0)
    sizes = torch.full((len(logits), 1), 1.7, dtype=torch.float64)
    single, double = (
        scores(chosen, given, sizes, ("head",), chosen.needs[0], False) for given in (logits, logits.double())
    )
    torch.testing.assert_close(single, double, rtol=5e-6, atol=0)


@pytest.mark.parametrize("method", ["exgrad", "regrad", "squared"])
@pytest.mark.parametrize("settings", [{}, {"norm": 1}, {"variant": "literal"}])
def test_sums_without_a_table_are_those_of_a_table(method, settings):
    logits = 4 * torch.randn(300, 7, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    logits[:100, 3] = logits[:100].amax(1)  # two classes that are alike
    chosen = nescio.scores.get(method, samples=0, layer_decay=0.0, **settings)
    sizes = torch.rand(300, 1, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    delta = torch.eye(7, dtype=torch.float64) - logits.softmax(1)[:, None]
    norms = torch.linalg.vector_norm(delta, chosen.norm, dim=2)[..., None] * sizes[:, None]
    found = scores(chosen, logits, sizes, ("head",), chosen.needs[0], False)
    torch.testing.assert_close(found, chosen(NormTable(norms, logits.softmax(1), ("head",))), rtol=1e-8, atol=0)


@pytest.mark.parametrize("method", ["exgrad", "regrad", "ungrad", "gradnorm", "squared"])
@pytest.mark.parametrize("norm", [1, 2])
def test_sure_rows_of_float32_lose_no_digits(method, norm):
    """Gaps between logits from 0 (two classes alike) to 300, where squares and exponentials vanish in float32."""
    gaps = torch.tensor([0.0, 1e-3, 1.0, 10.0, 30.0, 34.0, 36.0, 45.0, 90.0, 110.0, 300.0])
    logits = torch.stack([gaps, torch.zeros_like(gaps), -torch.ones_like(gaps)], 1).repeat(3, 1)
    logits[11:22, 2] = -130.0  # below what float32 holds, beside a row that is not sure
    chosen = nescio.scores.get(method, norm=norm, samples=0, layer_decay=0.0)
    sizes = torch.ones(len(logits), 1, dtype=torch.float64)
    single, double = (
        scores(chosen, given, sizes, ("head",), chosen.needs[0], False) for given in (logits, logits.double())
    )
    assert single.dtype == torch.float64 and bool((double[:11].abs() > 0).all())
    torch.testing.assert_close(single, double, rtol=2e-6, atol=0)
    p = logits.double().softmax(1)
    if (method, norm) == ("exgrad", 2):  # by the definition, where that has digits
        delta = torch.eye(3, dtype=torch.float64) - p[:, None]
        torch.testing.assert_close(double[:5], (p * delta.norm(dim=2)).sum(1)[:5], rtol=1e-3, atol=0)
