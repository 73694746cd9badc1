"""`nescio reproduce`: run a table of the paper, or make a page of results."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from nescio.cli.interrupting import Interrupted

EXAMPLES = """examples:
  nescio reproduce --list                                        what there is
  nescio reproduce table1 --scale smoke                          a test of the machinery, no download, about a minute
  nescio reproduce table1 --scale quick --data DATA --device cuda
  nescio reproduce table2 --scale paper --data DATA --models MODELS --seeds 0 1 2
  nescio reproduce page papers/results/*.json --out tables.html

A run that was cut off goes on where it stopped when it is started again with the same folders. Results are written to
OUT/<study>-<scale>-<n>.json with a page and a Markdown table beside it; nothing is ever overwritten. `page` joins runs
of the same study and scale: of each number it shows the latest. Data that are not there are named, and their part is
left out; with NESCIO_DOWNLOAD=1 in the environment they are fetched."""


def add(commands: Any, common: argparse.ArgumentParser) -> None:
    """Add the sub-command."""
    command = commands.add_parser(
        "reproduce",
        help="run the tables of the REGrad paper and set ours beside the paper's",
        description="Trains or loads the models of a table, scores with every method, and shows our numbers beside the "
        "paper's. STUDY is a table or a question (see --list), or `page` to make a page of results.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        parents=[common],
    )
    command.add_argument("study", nargs="?", metavar="STUDY", help="table1 … table10, a question, or page")
    command.add_argument("results", nargs="*", metavar="RESULT.json", help="with `page`: the results to show")
    command.add_argument("--list", action="store_true", help="list the studies and end")
    command.add_argument(
        "--scale", choices=("smoke", "small", "quick", "paper"), default="quick", help="default: %(default)s"
    )
    command.add_argument("--models", metavar="DIR", help="folder of trained networks (default: in the work folder)")
    command.add_argument("--data", metavar="DIR", help="folder of data sets (default: NESCIO_DATA, or the cache)")
    command.add_argument(
        "--work", metavar="DIR", default="nescio-reproduce", help="finished scores are kept here (default: %(default)s)"
    )
    command.add_argument(
        "--out", metavar="PATH", help="folder of results (default: papers/results); with `page`: the file"
    )
    command.add_argument("--device", metavar="NAME", help="cpu, cuda, cuda:1 … (default: a GPU where there is one)")
    command.add_argument("--sets", nargs="+", metavar="NAME", help="only these known data sets (default: all)")
    command.add_argument("--seeds", type=int, nargs="+", metavar="N", help="default: those of the scale")
    command.add_argument(
        "--minutes", type=float, metavar="N", help="end after about so long; what is left is marked as not run"
    )
    command.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """List the studies, make a page of results, or run a study."""
    from nescio.types import InputError
    from nescio_papers import reproduce

    if args.list:
        studies = reproduce.studies()
        width = max(map(len, studies))
        for study in studies.values():
            print(f"{study.name:{width}}  {study.title}")
        return 0
    if args.study is None:
        raise InputError(f"expected a study ({', '.join(reproduce.studies())}), `page` or --list, got nothing")
    if args.study == "page":
        return _page(args)
    if args.results:
        raise InputError(f"expected results only with `page`, got {args.results[0]!r}; one study is run at a time")
    return _study(args)


def _page(args: argparse.Namespace) -> int:
    from nescio.data import check_writable, replacing
    from nescio.types import InputError
    from nescio_papers import reproduce

    if not args.results:
        raise InputError(
            "expected the files of results to show, got none; name them: nescio reproduce page RESULT.json"
        )
    out = Path(args.out or "nescio-reproduce.html")
    makers = {".html": reproduce.render, ".htm": reproduce.render, ".md": reproduce.markdown}
    if out.suffix.lower() not in makers:
        raise InputError(f"expected a file name that ends in .html or .md, but got '{out}'")
    check_writable(out)
    text = makers[out.suffix.lower()](reproduce.joined([reproduce.load(path) for path in args.results]))
    with replacing(out) as part:
        part.write_text(text, encoding="utf-8")
    print(f"Wrote {out}")
    return 0


def _study(args: argparse.Namespace) -> int:
    from nescio.data import replacing
    from nescio.progress import cheaper
    from nescio_papers import reproduce

    cheaper("--scale smoke takes less, --minutes N ends it; a run that is cut off can go on")
    try:
        results = reproduce.run(
            args.study,
            args.scale,
            work=args.work,
            models=args.models,
            data=args.data,
            device=args.device,
            seeds=args.seeds,
            minutes=args.minutes,
            sets=args.sets,
            say=lambda line: print(line, file=sys.stderr, flush=True),
        )
    except KeyboardInterrupt:
        kept = f"what is finished lies in {args.work}: the same command goes on from there"
        raise Interrupted(kept, goes_on=True) from None
    path = reproduce.save(results, args.out or reproduce.FOLDER)
    for ending, text in ((".html", reproduce.render(results)), (".md", reproduce.markdown(results))):
        with replacing(path.with_suffix(ending)) as part:
            part.write_text(text, encoding="utf-8")
    for part_ in results["parts"]:
        print(f"{part_['title']}: {reproduce.summary(part_, args.scale)}")
    print(f"Wrote {path}, and a page and a table beside it ({path.with_suffix('.html').name}, .md)")
    return 0
