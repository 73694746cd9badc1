"""`nescio serve`: a model behind HTTP, until it is told to end."""

from __future__ import annotations

import argparse
import os
import re
import sys
from typing import TYPE_CHECKING

from nescio.cli.interrupting import until_ended
from nescio.cli.messages import say, tell_method
from nescio.cli.options import (
    add_address,
    add_command,
    add_guard,
    add_methods,
    add_model,
    add_posterior,
    add_preprocessing,
    add_running,
    positive,
)
from nescio.cli.specs import check_bundled, given_guard, methods_of, model_spec, training_pairs

if TYPE_CHECKING:
    from nescio.cli.options import Commands
    from nescio.serve import Engine

TOKEN = "NESCIO_TOKEN"
LIMITS = (
    *("max_body", "max_memory", "max_pixels", "max_inputs", "max_explained"),
    *("timeout", "explain_timeout", "grace", "batch_size", "batch_wait"),
)
EXAMPLES = """\
/check says whether an input is foreign; that needs a guard. /predict gives the answers, /score the scores, /explain the
maps. /health says what is served. The interface is described at /docs, and for programs at /openapi.json. /metrics is
for Prometheus, with the watch over the guard's p-values and the monitor of the policy's promise.

Others on this machine can see a token that is on the command line; put it into the environment variable NESCIO_TOKEN
instead. Nothing of what is sent is logged or kept.

examples:
  nescio serve                                                       (bundled digits, to try it)
  nescio serve --model timm:resnet18 --weights resnet18.safetensors --reference photos/
  nescio serve --guard guard --watch stream.json                      (what `nescio guard` wrote knows its model)
  nescio serve --model timm:resnet18 --weights resnet18.safetensors --method regrad --method entropy
  nescio serve --model mymodels:build --weights w.safetensors --policy policy.json --monitor drift.json --port 8080
  nescio serve --model hf:FOLDER --host 0.0.0.0 --max-body 1MB --timeout 10s        (token in $NESCIO_TOKEN)

  curl -F file=@picture.png http://127.0.0.1:8000/check
  curl -F file=@picture.png http://127.0.0.1:8000/predict
  curl -F file=@picture.png 'http://127.0.0.1:8000/explain?show=numbers'
  curl -H 'Content-Type: application/json' -d '{"inputs": [{"text": "so so"}]}' http://127.0.0.1:8000/score"""


def add(commands: Commands, common: argparse.ArgumentParser) -> None:
    """Add the sub-command."""
    command = add_command(
        commands,
        common,
        "serve",
        help="serve a model over HTTP: verdicts, answers, doubt, scores, maps, decisions",
        description="Serves a model over HTTP: /check, /predict, /score, /explain, /health, /metrics, /docs.",
        examples=EXAMPLES,
    )
    add_model(command, required=False, bundled=True)
    add_posterior(command)
    add_methods(command, "a score of `nescio methods`; may be repeated (default: gen)")
    command.add_argument("--fit", metavar="PATH", help="labelled training data, for the methods that need them")
    command.add_argument("--policy", metavar="FILE", help="which answers to accept; `nescio decide` writes it")
    command.add_argument("--monitor", metavar="FILE", help="a file for the counts of the drift monitor")
    add_guard(command)
    command.add_argument(
        "--label", default="auto", metavar="NAME", help="labels of the reference, or none (default: usual names)"
    )
    command.add_argument("--watch", metavar="FILE", help="a file for what the guard's watch over all inputs has seen")
    add_address(command, 8000)
    command.add_argument("--token", help=f"what callers have to send (default: the environment variable {TOKEN})")
    command.add_argument(
        "--allow-origin", action="append", default=[], metavar="URL",
        help="a site whose pages may use it from a browser, such as https://example.org; may be repeated",
    )  # fmt: skip
    _add_limits(command)
    add_preprocessing(command)
    add_running(command, None)
    command.set_defaults(run=run)


def _add_limits(command: argparse.ArgumentParser) -> None:
    """Add what the service allows: sizes, counts and times."""
    for name, type_, default, metavar, words in (
        ("--max-body", _amount, "10MB", "SIZE", "the most bytes of a request"),
        ("--max-memory", _amount, "1GB", "SIZE", "the most bytes of all requests together"),
        ("--max-pixels", _amount, "25M", "N", "the most pixels in a request"),
        ("--max-inputs", positive, 128, "N", "the most inputs in a request"),
        ("--max-explained", positive, 8, "N", "the most inputs in a request to /explain"),
        ("--timeout", _seconds, "30s", "TIME", "how long a request may take"),
        ("--explain-timeout", _seconds, "30s", "TIME", "how long a request to /explain may take"),
        ("--grace", _seconds, "10s", "TIME", "how long it goes on with what has begun, once it is told to end"),
        ("--batch-size", positive, 32, "N", "how many inputs go to the model at a time"),
        ("--batch-wait", _seconds, "5ms", "TIME", "how long an input waits for others"),
    ):
        command.add_argument(name, type=type_, default=default, metavar=metavar, help=f"{words} (default: %(default)s)")


def run(args: argparse.Namespace) -> int:
    """Open, serve, end."""
    from nescio import serve
    from nescio._common.lazy_imports import need

    for package in ("fastapi", "uvicorn", "prometheus_client", "python_multipart", "PIL"):
        need(package, "serve")  # said before the model is opened, not after it
    settings = serve.Settings(
        host=args.host,
        port=args.port,
        token=os.environ.get(TOKEN) if args.token is None else args.token,
        origins=tuple(args.allow_origin),
        **{name: getattr(args, name) for name in LIMITS},
    )
    serve.listening(settings).close()  # where that fails it is said now; the port is taken when the model is ready
    engine = _engine(args)
    say(f"model: {engine.source.about}")
    if engine.source.preprocess is not None:
        say(f"pre-processing: {engine.source.preprocess}")
    say(f"methods: {', '.join(engine.methods)}")
    tell_method(args.method)
    say(f"policy: {'none' if engine.policy is None else engine.policy}")
    say(f"guard: {engine.about_guard or 'none; /check needs one (--reference, --guard)'}")
    with until_ended():
        try:
            serve.run(engine, settings, drift_path=args.monitor, watch_path=args.watch)
        except serve.Ended as ended:
            print(ended, file=sys.stderr, flush=True)
            if ended.busy:  # in the middle of a map that nobody waits for; Python would wait or crash
                os._exit(0)
    return 0


def _engine(args: argparse.Namespace) -> Engine:
    from nescio import decide
    from nescio.serve import Engine
    from nescio.serve.bundled import bundled
    from nescio.serve.networks import fitted, guarded
    from nescio.specs import DataSpec, open_source
    from nescio.types import InputError

    policy = None if args.policy is None else decide.load(args.policy)
    own_model = args.model is not None or args.guard is not None
    if args.monitor is not None and policy is None and args.model is not None:
        raise InputError("--monitor: expected a policy to watch, got none; name one with --policy")
    methods = methods_of(args.method, args.set)
    if not own_model:
        check_bundled(args, ("weights", "posterior", "reference", "fit", "device", "class_names"))
        return bundled(methods, policy=policy)
    source = open_source(model_spec(args))
    if args.fit is not None:
        training = training_pairs(DataSpec(args.fit, name=None, on_error="skip"), source, args.batch_size)
        methods = fitted(source, methods, training)
    reference = None
    if args.reference is not None:
        label = None if args.label == "none" else args.label
        reference = DataSpec(args.reference, label=label, name=None, on_error="skip")
    guard, _ = given_guard(args.guard, reference, source, lambda: guarded(source))
    if args.watch is not None and guard is None:
        raise InputError("--watch: expected a guard whose verdicts are watched, got none; give --guard or --reference")
    return Engine(source, methods, policy=policy, guard=guard)


def _amount(text: str) -> int:
    """10MB, 500k, 25M or a plain number."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([kmg]?)b?", text.strip().lower())
    if match is None:
        raise argparse.ArgumentTypeError(f"expected a number such as 10MB, 500k or 25M, got '{text}'")
    return int(float(match[1]) * {"": 1, "k": 1_000, "m": 1_000_000, "g": 1_000_000_000}[match[2]])


def _seconds(text: str) -> float:
    """5ms, 30s, 2min or plain seconds."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(ms|s|min|)", text.strip().lower())
    if match is None:
        raise argparse.ArgumentTypeError(f"expected a time such as 5ms, 30s or 2min, got '{text}'")
    return float(match[1]) * {"ms": 0.001, "s": 1.0, "": 1.0, "min": 60.0}[match[2]]
