"""What a type checker sees of nescio's names; mypy reads this file (`make lint`), and nothing runs it.

The names are loaded by `__getattr__` when they are first used, so each would be Any if `nescio/__init__.py` did not
import it for type checkers. Then every line here would be an error.
"""

from typing import assert_type

from torch import Tensor, nn

import nescio


def users(model: nn.Module, x: Tensor, y: Tensor) -> None:
    scores = nescio.score(model, x)
    assert_type(scores, Tensor)
    assert_type(nescio.score(model, x, ["gen", "entropy"]), dict[str, Tensor])
    assert_type(nescio.score(model, x, report=True), nescio.Scored)
    assert_type(nescio.Guard(model).fit(x).check(x), nescio.Verdict)
    assert_type(nescio.Guard(model).fit(x).check(x).foreign(0.05), Tensor)
    assert_type(nescio.posteriors.Laplace(model).fit((x, y)), nescio.posteriors.Laplace)
    assert_type(nescio.posteriors.Laplace(model).predict(x), Tensor)
    assert_type(nescio.decompose(nescio.posteriors.Laplace(model).predict(x)), nescio.Decomposition)
    assert_type(nescio.explain(model, x, of="total"), nescio.Attribution)
    assert_type(nescio.attribution.explain(model, x), nescio.Attribution)
    assert_type(nescio.trace.class_gradients(model, x), nescio.ClassGradients)
    assert_type(nescio.decide.threshold(scores, y, 0.05), nescio.decide.Policy)
    assert_type(nescio.limits.audit(model, x), nescio.limits.Audit)
    assert_type(nescio.evaluate.ece(x, y), float)
    assert_type(nescio.models.Classifier.of(model), nescio.Classifier)
    assert_type(nescio.specs.ModelSpec("timm:resnet18").weights, str | None)
    assert_type(nescio.serve.Settings().port, int)
    assert_type(nescio.app.Settings().host, str)
    assert_type(nescio.limits.ray(model, x, x), nescio.limits.Ray)
    assert_type(nescio.explain(model, x, of=["total", "epistemic"]), dict[str, nescio.Attribution])


def refused(model: nn.Module, x: Tensor) -> None:
    """What cannot work is told before it runs: mypy complains of each `ignore` that nothing needs."""
    nescio.score("resnet18", x)  # type: ignore[call-overload]
    nescio.score(model, 3)  # type: ignore[call-overload]
    nescio.score(x, model)  # type: ignore[call-overload]
    nescio.score(model, x, 7)  # type: ignore[call-overload]
    nescio.score(model, x, output="logit")  # type: ignore[call-overload]
    nescio.Guard("resnet18")  # type: ignore[arg-type]
    nescio.Guard(model).fit(model)  # type: ignore[arg-type]
    nescio.Guard(model).check(5)  # type: ignore[arg-type]
    nescio.explain(3, x)  # type: ignore[call-overload]
    nescio.explain(model, x, 7)  # type: ignore[call-overload]
    nescio.limits.audit(3, x)  # type: ignore[arg-type]
    nescio.limits.ray(model, 3, x)  # type: ignore[arg-type]
    nescio.trace.class_gradients("resnet18", x)  # type: ignore[arg-type]
    nescio.posteriors.Laplace(model).fit(5)  # type: ignore[arg-type]
