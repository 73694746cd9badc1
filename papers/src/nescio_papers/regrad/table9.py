"""Table 9: seconds for the uncertainty of 1,000 CIFAR-10 pictures."""

from nescio_papers.regrad.rows import BASELINES, BEYOND, LAMBDA, readings
from nescio_papers.runner.study import Part, Study, pairs, paper_table

PAPER = paper_table("""
method | cifar10
NEGrad                             | 18.73s
UNGrad                             | 33.45s
GradNorm                           | 18.54s
ExGrad                             | 34.72s
Perturb x                          | 32.56s
Perturb θ                          | 43.16s
MC-AA                              | 32.56s
Inserted Dropout                   | 16.15s
Entropy                            | 3.05s
ExGrad V Term                      | 2.52s
LA                                 | 22.61s
REGrad                             | 33.28s
REGrad + layer-selective           | 29.27s
REGrad + layer-selective + perturb | 75.87s
""")
DECAY = LAMBDA["cifar10"]
ROWS = (
    *BASELINES,
    *readings("REGrad", "REGrad", layer_decay=None, samples=0),
    *readings("REGrad + layer-selective", "REGrad + layer-selective", layer_decay=DECAY, samples=0),
    *readings(
        "REGrad + layer-selective + perturb",
        "REGrad + layer-selective + perturb",
        layer_decay=DECAY,
        sigma=0.02,
        samples=100,
        classes="exact",
        tolerance=0.0,
    ),
    *readings("REGrad*, samples = auto", None, layer_decay=DECAY, sigma=0.02, samples="auto"),
    *BEYOND,
)

STUDY = Study(
    "table9",
    "Runtime",
    (Part("Seconds for 1,000 pictures", "runtime", pairs("cifar10"), ROWS, ("seconds",), PAPER),),
    (
        "Every method is run alone, on pictures that are already in memory; what happens only on the first call is not "
        "counted, nor is fitting to training data. The paper's times are of an RTX 2080 Ti, gradients one picture at a "
        "time: the difference is that of machine and program together.",
    ),
)
