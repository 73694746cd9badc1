"""Table 2: whether the uncertain answers are the wrong ones, by the relative area under the lift curve."""

from nescio_papers.regrad.rows import BASELINES, BEYOND, NORMS, READINGS, REGRAD_STAR, SVHN
from nescio_papers.runner.study import Part, Study, pairs, paper_table

PAPER = paper_table("""
method | mnist | cifar10 | svhn | cifar100 | avg
NEGrad           | 0.143±.055 | 0.598±.039 | -0.861±.042 | 0.127±.050 | 0.002
UNGrad           | 0.934±.004 | 0.840±.022 | 0.429±.061 | 0.403±.038 | 0.652
GradNorm         | -2.810±.022 | -1.275±.095 | -1.176±.026 | -0.995±.098 | -1.564
ExGrad           | 0.985±.001 | 0.893±.016 | 0.868±.003 | 0.841±.017 | 0.897
Perturb x        | 0.985±.001 | 0.890±.014 | 0.830±.001 | 0.772±.032 | 0.869
Perturb θ        | 0.984±.001 | 0.892±.015 | 0.869±.001 | 0.705±.002 | 0.863
MC-AA            | 0.969±.002 | 0.879±.018 | 0.807±.000 | 0.784±.017 | 0.860
Inserted Dropout | 0.973±.003 | 0.891±.005 | 0.851±.006 | 0.783±.003 | 0.874
Entropy          | 0.985±.001 | 0.893±.015 | 0.867±.004 | 0.863±.017 | 0.902
ExGrad V Term    | 0.985±.001 | 0.893±.015 | 0.865±.004 | 0.854±.020 | 0.899
LA               | 0.983±.002 | 0.865±.003 | 0.857±.002 | 0.792±.007 | 0.874
REGrad*          | 0.985±.001 | 0.898±.016 | 0.873±.002 | 0.858±.013 | 0.904
""")

STUDY = Study(
    "table2",
    "Uncertainty calibration",
    (
        Part(
            "rAULC on the test sets",
            "calibration",
            pairs("mnist cifar10 svhn cifar100"),
            (*BASELINES, *REGRAD_STAR, *BEYOND),
            ("raulc",),
            PAPER,
            "joint",
        ),
    ),
    (NORMS, READINGS, SVHN, "The deep ensemble is asked about its own answers, every other row about the network's."),
)
