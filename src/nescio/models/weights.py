"""Weights from a file into a module, each tensor to its name, and in words what does not fit.

They come from a safetensors file, or from a torch file that is read without executing anything. A torch file that
holds more than tensors is a pickle, and reading one runs whatever code it names: that happens only where it is asked.
"""

from __future__ import annotations

import io
import os
import pickle
import pickletools
import re
import warnings
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

import torch
from torch import Tensor, nn

from nescio._common.lazy_imports import need
from nescio.inputs import describe
from nescio.models.structure import listing
from nescio.types import InputError, ModelError

_HOLDERS = ("state_dict", "model_state_dict", "model")
_HARMLESS = re.compile(r"collections\.OrderedDict|__builtin__\.set|torch\.\w*Storage|torch\._utils\._rebuild_\w+")


def read_weights(path: str | os.PathLike[str], *, trust_pickle: bool = False) -> dict[str, Any]:
    """Read the state dict in a file, on the CPU, out of whatever a training script has put around it.

    Args:
        path: A ``.safetensors`` file, or one of ``torch.save``.
        trust_pickle: Whether to execute the code that a pickle names.

    Returns:
        The tensors by name.

    Raises:
        InputError: The file is not there, or holds no weights.

    Examples:
        >>> import tempfile
        >>> with tempfile.NamedTemporaryFile(suffix=".pt") as file:
        ...     torch.save({"model": torch.nn.Linear(4, 3).state_dict(), "epoch": 5}, file.name)
        ...     list(nescio.models.read_weights(file.name))
        ['weight', 'bias']
    """
    file = Path(path)
    if file.is_dir():
        raise InputError(f"expected a file of weights, got the folder {file}; name the file in it")
    if not file.is_file():
        raise InputError(f"expected a file of weights, but there is no {file} (seen from {Path.cwd()}); check the path")
    with file.open("rb") as opened:
        head = opened.read(64)
    if b"git-lfs" in head:
        raise InputError(
            f"expected a file of weights, but {file} is only a Git LFS pointer; fetch it with: git lfs pull"
        )
    if file.suffix == ".safetensors" or head[8:10] == b'{"':
        return _read_safetensors(file)
    return _state(_read_torch(file, trust_pickle), file)


def fill(module: nn.Module, state: Mapping[str, Any], source: str = "the file") -> None:
    """Load a state dict into a module; names that differ by wrappers only are matched, all that does not fit is listed.

    A wrapper is `torch.compile` (``_orig_mod.``) or a parallel one (``module.``), on either side.
    """
    expected = module.state_dict(keep_vars=True)
    renamed = renamed_to_fit(state, expected)
    other = [
        f"{name!r} (the model has {list(expected[name].shape)}, the file {list(value.shape)})"
        for name, value in renamed.items()
        if isinstance(value, Tensor)
        and isinstance(expected.get(name), Tensor)
        and not nn.parameter.is_lazy(expected[name])
        and value.shape != expected[name].shape
    ]
    if other:
        missing, unknown = [n for n in expected if n not in renamed], [n for n in renamed if n not in expected]
    else:
        missing, unknown = module.load_state_dict(renamed, strict=False)
    faults = [
        (missing, "the file lacks what the model has", False),
        (unknown, "the model lacks what the file has", False),
        (other, "the shape differs", True),
    ]
    words = [f"{text}: {listing(names, quoted=not plain)}" for names, text, plain in faults if names]
    if words:
        raise ModelError(
            f"expected weights that fit {type(module).__name__}, got others from {source}. {'; '.join(words)}. "
            "Build the model as it was trained: the same architecture, width and number of classes"
        )


def _read_safetensors(file: Path) -> dict[str, Tensor]:
    safetensors = need("safetensors", "files")
    try:
        result: dict[str, Tensor] = need("safetensors.torch", "files").load_file(file)
        return result
    except safetensors.SafetensorError as error:
        raise _damaged(file, "safetensors", error) from error


def _read_torch(file: Path, trust_pickle: bool) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of torch, about the version of a pickle or TorchScript: told below
        try:
            return torch.load(file, map_location="cpu", weights_only=not trust_pickle)
        except OSError:  # it cannot be opened, and the error says why
            raise
        except ImportError as error:
            raise ModelError(
                f"expected to read the pickle {file}, but it needs {error.name!r}, which cannot be imported; "
                "run from the folder that holds it, or save the weights alone: torch.save(model.state_dict(), file)"
            ) from error
        except Exception as error:  # a damaged file can raise anything
            if "TorchScript" in str(error):
                raise ModelError(
                    f"expected weights in {file}, got a whole TorchScript model; load it with torch.jit.load in the "
                    "factory, or save model.state_dict()"
                ) from error
            named = _named_in_pickle(file) if isinstance(error, pickle.UnpicklingError) and not trust_pickle else None
            if named is None:
                raise _damaged(file, "torch", error) from error
            raise ModelError(
                f"expected tensors alone in {file}, but it is a pickle that names other things"
                f"{f' ({listing(named, quoted=False)})' if named else ''}, and reading those executes code; save the "
                "weights alone with torch.save(model.state_dict(), file), or, if you trust where the file comes from, "
                "say trust_pickle=True (--trust-pickle)"
            ) from error


def _named_in_pickle(file: Path) -> list[str] | None:
    """What a sound pickle names beside what tensors need, found without executing it; None if it is no sound one."""
    names: list[str] = []
    try:
        if zipfile.is_zipfile(file):
            with zipfile.ZipFile(file) as archive:
                inside = next(name for name in archive.namelist() if name.endswith("data.pkl"))
                stream: IO[bytes] = io.BytesIO(archive.read(inside))
        else:
            stream = io.BytesIO(file.read_bytes())
        for _ in range(5):  # an old torch file is five pickles, followed by numbers
            if not stream.read(1):
                break
            stream.seek(-1, io.SEEK_CUR)
            for code, argument, _ in pickletools.genops(stream):
                if code.name == "GLOBAL":
                    names.append(str(argument).replace(" ", "."))
    except Exception:  # whatever is wrong with it, it is not sound
        return None
    return sorted({name for name in names if not _HARMLESS.fullmatch(name)})


def _damaged(file: Path, kind: str, error: Exception) -> ModelError:
    reason = (str(error).strip() or "it ends too soon").splitlines()[0].split(". ")[0]
    return ModelError(
        f"expected a {kind} file of weights, but {file} ({file.stat().st_size} bytes) is cut short, damaged or of "
        f"another kind ({reason}); copy or download it again and compare its size, or save it with "
        + ("safetensors.torch.save_file" if kind == "safetensors" else "torch.save(model.state_dict(), file)")
    )


def _state(content: object, file: Path) -> dict[str, Any]:
    """The state dict in what a torch file holds."""
    if isinstance(content, nn.Module):
        return content.state_dict()
    if isinstance(content, Mapping):
        if content and all(isinstance(v, Tensor) or str(k).endswith("_extra_state") for k, v in content.items()):
            return dict(content)
        for holder in _HOLDERS:
            if isinstance(content.get(holder), Mapping | nn.Module):
                return _state(content[holder], file)
        what = f"a mapping with {listing([str(key) for key in content]) or 'nothing'}"
    else:
        what = describe(content)
    raise ModelError(
        f"expected a state dict in {file}, or a mapping with one under {listing(list(_HOLDERS))}, got {what}; "
        "save it with torch.save(model.state_dict(), file)"
    )


def renamed_to_fit(state: Mapping[str, Any], expected: Mapping[str, Any]) -> dict[str, Any]:
    """The state by the names that the module uses; a tied tensor that was saved once is given to all its names."""
    for wrappers in (("module", "_orig_mod"), ("_orig_mod",), ()):  # a model may have a module of such a name itself
        names = {_plain(name, wrappers): name for name in expected}
        if len(names) == len(expected) and len({_plain(name, wrappers) for name in state}) == len(state):
            break
    renamed = {
        name if name in expected else names.get(_plain(name, wrappers), name): value for name, value in state.items()
    }
    by_tensor: dict[int, Any] = {id(expected[name]): value for name, value in renamed.items() if name in expected}
    for name, tensor in expected.items():
        if name not in renamed and id(tensor) in by_tensor:
            renamed[name] = by_tensor[id(tensor)]
    return renamed


def _plain(name: str, wrappers: tuple[str, ...]) -> str:
    return ".".join(part for part in name.split(".") if part not in wrappers)
