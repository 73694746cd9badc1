"""Whether gradients add anything over functions of the probabilities p and the features' norm ‖h‖ alone."""

from nescio_papers.regrad.rows import EXGRAD, LAMBDA, REGRAD, REGRAD_LAYERS, REGRAD_STAR, SVHN
from nescio_papers.runner.study import Part, Row, Study, pairs

WORDS = {
    "p_exgrad": "Σ p_c ‖e_c − p‖, ExGrad of the logits",
    "p_regrad1": "Σ √p_c ‖e_c − p‖",
    "p_regrad2": "Σ √p_c ‖e_c − p‖²",
    "h": "‖h‖",
    "minus_h": "−‖h‖",
    "h_exgrad": "Σ p_c ‖e_c − p‖ ‖(h, 1)‖, ExGrad of the last layer",
    "h_regrad1": "Σ √p_c ‖e_c − p‖ ‖(h, 1)‖, REGrad of the last layer, k = 1",
    "h_regrad2": "Σ √p_c ‖e_c − p‖² ‖(h, 1)‖², REGrad of the last layer, k = 2",
    "entropy_over_h": "entropy / ‖h‖",
}
WITHOUT = (
    Row("Entropy", "entropy"),
    Row("Max probability", "max_probability"),
    Row("ExGrad V Term", "exgrad_v"),
    Row("Energy", "energy"),
    Row("GEN", "gen"),
    *(Row(label, "closed", {"form": form}) for form, label in WORDS.items()),
)

STUDY = Study(
    "no-gradient",
    "Do gradients add anything over p and ‖h‖?",
    (
        Part(
            "AUROC and AUPR",
            "ood",
            pairs(
                "mnist→omniglot mnist→fashion cifar10→svhn cifar10→scenes svhn→cifar10 svhn→cifar100 "
                "cifar100→svhn cifar100→scenes"
            ),
            (*WITHOUT, *EXGRAD, *REGRAD, *REGRAD_LAYERS, *REGRAD_STAR),
            ("auroc", "aupr"),
            averages="each",
        ),
        Part(
            "rAULC",
            "calibration",
            pairs(" ".join(LAMBDA)),
            (*WITHOUT, *EXGRAD, *REGRAD, *REGRAD_LAYERS, *REGRAD_STAR),
            ("raulc",),
            averages="each",
        ),
    ),
    (
        "Rows up to `entropy / ‖h‖` need one forward pass and no gradient: they are functions of the probabilities p "
        "and of the features h that the last layer is given. The rows after it need gradients of all layers.",
        SVHN,
    ),
)
