"""A fitted model as one file: numbers and text, nothing that runs.

    file = safetensors(arrays, metadata = {"header": JSON, "sha256": digest})
    digest = SHA-256 of the whole file with the 64 characters of the digest written as zeros

The header holds everything but the arrays, which it names: {"$array": "posterior.Z"}. An object is written
as its class name and fields, {"$type": "Tanh", ...}; reading builds the classes of `widegp.registry` and no
others.
Training rows are in the file only where prediction conditions on them. A model that was fitted to a table has
a `TablePart` besides, which readers of the model alone pass over.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import math
import os
import stat
from collections.abc import Callable, Iterator, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
from safetensors import numpy as safetensors

# What these define may stand in a file.
import widegp.approximations.registry
import widegp.data.value_means
import widegp.trees  # noqa: F401
from widegp.compute.backend import choose_backend
from widegp.data.preprocessing import InputScaler, TargetScaler
from widegp.files import FileError, write_whole
from widegp.fitted import FittedGP
from widegp.inference.objective import with_values
from widegp.inference.priors import Beta, InverseGamma, LogNormal, Relative
from widegp.inference.result import Direction, FitResult, Growth, Reason
from widegp.kernels import exact_sigmoid, exact_tanh
from widegp.kernels.base import Kernel
from widegp.kernels.quadrature import FromActivation
from widegp.kernels.registry import named
from widegp.registry import is_saveable, saveable, saved_class

FORMAT = "widegp-model"
FORMAT_VERSION = 1
LARGEST_HEADER = 100_000_000  # the limit of safetensors itself
BLANK = "0" * 64

PRIORS = (InverseGamma, LogNormal, Relative, Beta)
for cls in (*PRIORS, InputScaler, TargetScaler, FitResult, Direction, Growth):
    saveable(cls)
ACTIVATIONS = {"exact_tanh": exact_tanh.fn, "exact_sigmoid": exact_sigmoid.fn}

# Parts of a `FittedGP` by name.
PARTS = (
    "seed", "inputs", "target", "warp", "kernel", "params", "approximation", "result", "n_features",
    "feature_names", "input_importance", "calibration", "posterior", "rows", "noise_model", "likelihood",
    "level", "tails", "theta", "members", "noise_start",
)  # fmt: skip


class ModelFileError(ValueError):
    """A file that is not a model, is damaged, or comes from a newer version; the message names the cure."""


class TablePart(NamedTuple):
    """What a model of a table keeps beside the regressor: ``text``, JSON values; ``arrays``, by name."""

    text: Mapping[str, Any]
    arrays: Mapping[str, np.ndarray]


def save_model(model: Any, path: str | os.PathLike[str], table: TablePart | None = None) -> None:
    """Write a fitted estimator to ``path``: the whole new file, or the old one untouched.

    A classifier has its classes and one process for each, or one for two classes; a model of several outputs
    one process for each of them.
    """
    packer = _Packer()
    state: dict[str, Any] = {}
    if isinstance(model.fitted_, tuple):
        state = {"processes": [_state(one) for one in model.fitted_]}
        if hasattr(model, "classes_"):
            values = {"values": model.classes_.tolist(), "dtype": model.classes_.dtype.kind}
            state["classes"] = values | {"calibration": model.calibration_}
    else:
        state = _state(model.fitted_)
    parameters = model.get_params(deep=False)
    if not isinstance(parameters["random_state"], int | np.integer | None):
        # A generator has moved since the fit; its state would not give the same fit again.
        parameters["random_state"] = None
    # A place on the machine that fitted, not a property of the model.
    parameters.pop("checkpoint", None)
    # A cluster or a set of devices is not part of a model; its kind is.
    parameters["engine"] = getattr(parameters["engine"], "name", parameters["engine"])
    state["parameters"] = parameters
    header = {"format": FORMAT, "format_version": FORMAT_VERSION, "package_version": _package_version()}
    header |= {key: packer.pack(value, key) for key, value in state.items()}
    if table is not None:
        # As text: the names of columns are keys here, and a column may be called "$type".
        header["table"] = json.dumps(table.text, allow_nan=False)
        header["table_arrays"] = packer.pack(table.arrays, "table")
    try:
        write_whole(path, _seal(header, packer.arrays))
    except FileError as error:
        raise ModelFileError(str(error)) from error


def _state(fitted: FittedGP) -> dict[str, Any]:
    """The parts of a fitted process by name."""
    found = {name: getattr(fitted, name) for name in PARTS}
    return {name: value for name, value in found.items() if value is not None or name == "rows"}


def load_model(path: str | os.PathLike[str], make: Callable[..., Any], backend: str | None = None) -> Any:
    """The model in ``path``; ``make`` builds an unfitted estimator from its parameters.

    A file of a classifier gives parameters that ``make`` must tell apart: they have a ``class_weight``.

    ``backend`` computes the predictions, by default the one that fitted.
    """
    header, arrays = _read(Path(path))
    return _model(header, arrays, path, make, backend)


def load_with_table(
    path: str | os.PathLike[str], make: Callable[..., Any], backend: str | None = None
) -> tuple[Any, TablePart]:
    """The model in ``path`` and what `save_model` was given as ``table``."""
    header, arrays = _read(Path(path))
    if "table" not in header:
        raise ModelFileError(
            f"{path} holds a regressor without the columns of a table; read it with widegp.load,"
            " or fit with 'widegp fit'."
        )
    model = _model(header, arrays, path, make, backend)
    with _contents(path):
        return model, TablePart(json.loads(header["table"]), _unpack(header["table_arrays"], arrays))


def _model(
    header: dict[str, Any], arrays: _Arrays, path: str | os.PathLike[str],
    make: Callable[..., Any], backend: str | None,
) -> Any:  # fmt: skip
    with _contents(path):
        own = {key: value for key, value in header.items() if key not in ("table", "table_arrays")}
        state = {key: _unpack(value, arrays) for key, value in own.items()}
        model = make(**state["parameters"])
        fitted = [_fitted(one, backend) for one in state.get("processes", [state])]
        first = fitted[0]
        if first.feature_names is not None:
            model.feature_names_in_ = np.array(first.feature_names, dtype=object)
        model.n_features_in_ = first.n_features
        model.fitted_ = tuple(fitted) if "processes" in state else first
        if "classes" in state:
            classes = state["classes"]
            model.classes_ = np.array(classes["values"], dtype=object if classes["dtype"] == "O" else None)
            model.calibration_ = classes.get("calibration")
            model.converged_ = all(one.converged for one in fitted)
            model.n_iter_ = max(1, *(one.n_iter for one in fitted))
    if backend is not None:
        # Asked here, a backend that does not serve this kernel is no fault of the file.
        choose_backend(first.kernel, backend)
    with _contents(path):
        # Made now, so that a file whose posterior is none is refused when it is read.
        _ = [(one.predictor, one.anchors) for one in fitted]
    return model


def _with_kernel(member: Any, kernel: Kernel) -> Any:
    """The member with what its file lacks: the kernel at its own parameters."""
    own = with_values(named(member.kernel_name) if member.kernel_name else kernel, member.params)
    parts = {name: getattr(member, name) for name in ("posterior", "rows")}
    return dataclasses.replace(member, **{name: part and part(own) for name, part in parts.items()})


def _fitted(state: dict[str, Any], backend: str | None) -> FittedGP:
    """The process whose parts are in ``state``."""
    found = {name: state[name] for name in PARTS if name in state}
    for part in ("posterior", "rows"):
        found[part] = found[part] and found[part](found["kernel"])
    if "members" in found:
        found["members"] = tuple(_with_kernel(member, found["kernel"]) for member in found["members"])
    if "feature_names" in found:
        found["feature_names"] = tuple(found["feature_names"])
    return FittedGP(**found, backend=backend or found["result"].backend)


@contextlib.contextmanager
def _contents(path: str | os.PathLike[str]) -> Iterator[None]:
    """Whoever writes a file can give it a right checksum and any contents: what fails then is the file."""
    try:
        yield
    except Exception as error:
        raise ModelFileError(
            f"{path} is a widegp model whose contents are not valid ({error!r}); save the model again."
        ) from error


def _package_version() -> str:
    try:
        return metadata.version("widegp")
    except metadata.PackageNotFoundError:
        return "unknown"


class _Packer:
    """Values to JSON; arrays are set aside under the dotted name of where they stood first."""

    def __init__(self) -> None:
        self.arrays: dict[str, np.ndarray] = {}
        # Arrays by their identity, each with what was written of it: a member shares most with its model.
        self._written: dict[int, tuple[Any, dict[str, Any]]] = {}

    def pack(self, value: Any, where: str) -> Any:
        if isinstance(value, Reason):
            return {"$reason": str(value)}
        if value is None or isinstance(value, bool | int | str):
            return value
        if isinstance(value, float):
            return float(value) if math.isfinite(value) else {"$float": repr(float(value))}
        if isinstance(value, np.generic):
            return self.pack(value.item(), where)
        if isinstance(value, list | tuple):
            items = [self.pack(item, f"{where}.{i}") for i, item in enumerate(value)]
            return items if isinstance(value, list) else {"$tuple": items}
        if isinstance(value, Mapping) and not all(isinstance(key, str) for key in value):
            return {"$pairs": [[self.pack(part, where) for part in pair] for pair in value.items()]}
        if isinstance(value, Mapping):
            return {str(key): self.pack(item, f"{where}.{key}") for key, item in value.items()}
        if dataclasses.is_dataclass(value):
            return self._object(value, where)
        if hasattr(value, "__array__"):
            if id(value) not in self._written:
                self._written[id(value)] = value, self._array(np.asarray(value), where)
            return self._written[id(value)][1]
        raise ValueError(
            f"{where} is of type {type(value).__name__}, which cannot be saved; use numbers or text."
        )

    def _object(self, value: Any, where: str) -> dict[str, Any]:
        name = type(value).__name__
        fields = {f.name: getattr(value, f.name) for f in dataclasses.fields(value) if f.name[0] != "_"}
        if isinstance(value, FromActivation):
            fields["fn"] = _activation_name(value, where)
        elif not is_saveable(value):
            raise ValueError(
                f"{where} is of the class {name}, which cannot be saved; fit with a class of widegp.kernels."
            )
        if not isinstance(value, Kernel):
            # The posterior and the rows share the kernel of the model, which is written once.
            fields.pop("kernel", None)
        return {"$type": name} | {key: self.pack(item, f"{where}.{key}") for key, item in fields.items()}

    def _array(self, value: np.ndarray, where: str) -> dict[str, Any]:
        if value.dtype.kind not in "fiub":
            raise ValueError(f"{where} holds {value.dtype} values, which cannot be saved; use numbers.")
        # BLAS sums in another order for transposed arrays: the last bit of a prediction hangs on it.
        by_column = value.flags.f_contiguous and not value.flags.c_contiguous
        self.arrays[where] = np.asarray(value.T if by_column else value, order="C")
        return {"$array": where, "order": "F" if by_column else "C"}


def _activation_name(kernel: FromActivation, where: str) -> str:
    for name, fn in ACTIVATIONS.items():
        if kernel.fn is fn:
            return name
    raise ValueError(
        f"{where}: an activation given as a Python function cannot be saved;"
        f" fit with {' or '.join(ACTIVATIONS)}, or with a closed-form kernel."
    )


class _Arrays:
    """The arrays of a file by name, each copied once, when it is first asked for, and let go there."""

    def __init__(self, read: dict[str, np.ndarray]) -> None:
        self._read, self._own = read, dict[str, np.ndarray]()

    def __getitem__(self, name: str) -> np.ndarray:
        if name not in self._own:
            # What was read lies in a buffer that cannot be written to, which compiled code tells apart.
            self._own[name] = np.array(self._read.pop(name))
        return self._own[name]


def _unpack(value: Any, arrays: _Arrays) -> Any:
    """The value that `_Packer.pack` wrote; a class that lacks its kernel comes as a function of it."""
    if isinstance(value, list):
        return [_unpack(item, arrays) for item in value]
    if not isinstance(value, dict):
        return value
    if "$array" in value:
        array = arrays[value["$array"]]
        return array.T if value["order"] == "F" else array
    if "$float" in value:
        return float(value["$float"])
    if "$pairs" in value:
        return {_unpack(key, arrays): _unpack(item, arrays) for key, item in value["$pairs"]}
    if "$reason" in value:
        return Reason(value["$reason"])
    if "$tuple" in value:
        return tuple(_unpack(item, arrays) for item in value["$tuple"])
    fields = {key: _unpack(item, arrays) for key, item in value.items() if key != "$type"}
    if "$type" not in value:
        return fields
    if value["$type"] == FromActivation.__name__:
        return FromActivation(**(fields | {"fn": ACTIVATIONS[fields["fn"]]}))
    cls = saved_class(value["$type"])
    if "kernel" not in fields and any(f.name == "kernel" for f in dataclasses.fields(cls)):
        return lambda kernel: cls(kernel=kernel, **fields)
    return cls(**fields)


def _seal(header: dict[str, Any], arrays: dict[str, np.ndarray]) -> bytes:
    """The bytes of the file, its digest over all of them filled in."""
    text = {"header": json.dumps(header, allow_nan=False), "sha256": BLANK}
    data = bytearray(safetensors.save(arrays, metadata=text))
    # Quotes inside the header are escaped, so the digest's own field is the one match.
    start = data.index(f'"sha256":"{BLANK}"'.encode()) + len('"sha256":"')
    data[start : start + len(BLANK)] = hashlib.sha256(data).hexdigest().encode()
    return bytes(data)


def _read(path: Path) -> tuple[dict[str, Any], _Arrays]:
    """Header and arrays of a whole, unaltered model file."""
    try:
        # Opening a pipe would wait for a writer, and a device may never end.
        if not stat.S_ISREG(path.stat().st_mode):
            raise ModelFileError(f"{path} is not a file; pass the file that WideGPRegressor.save wrote.")
        with open(path, "rb") as file:
            text = _metadata(file, path)
            file.seek(0)
            data = file.read()
    except FileNotFoundError as error:
        raise ModelFileError(f"{path} does not exist; check the path.") from error
    except OSError as error:
        raise ModelFileError(f"{path} cannot be read ({error.strerror}); check path and rights.") from error
    header = _checked_header(text, path)
    _check_digest(data, text["sha256"], path)
    try:
        return header, _Arrays(safetensors.load(data))
    except Exception as error:
        raise ModelFileError(f"{path} is damaged ({error}); copy or save the model again.") from error


def _metadata(file: BinaryIO, path: Path) -> dict[str, str]:
    """The metadata of a safetensors file, read without the arrays: another file may be huge."""
    size = os.fstat(file.fileno()).st_size
    if size == 0:
        raise ModelFileError(f"{path} is empty; copy or save the model again.")
    length = int.from_bytes(file.read(8), "little")
    try:
        if length > min(size - 8, LARGEST_HEADER):
            raise ValueError("the header is longer than the file")
        text = json.loads(file.read(length))["__metadata__"]
        return {key: str(text[key]) for key in ("header", "sha256")}
    # Any bytes may stand here, and JSON of any shape: all that fails says the same.
    except Exception as error:
        raise ModelFileError(
            f"{path} is not a widegp model, or not all of one;"
            " pass a file that 'widegp fit' or WideGPRegressor.save wrote."
        ) from error


def _checked_header(text: dict[str, str], path: Path) -> dict[str, Any]:
    try:
        header = json.loads(text["header"])
        name, version = header.pop("format"), int(header.pop("format_version"))
        if name != FORMAT:
            raise ValueError(f"the format is {name!r}")
    except Exception as error:
        raise ModelFileError(f"{path} is not a widegp model; pass a file of WideGPRegressor.save.") from error
    # Before the checksum, which a later format may compute in another way.
    if version > FORMAT_VERSION:
        writer = header.get("package_version", "unknown")
        raise ModelFileError(
            f"{path} has format {version}, written by widegp {writer}, and this version reads up to"
            f" {FORMAT_VERSION}; update widegp."
        )
    return header


def _check_digest(data: bytes, digest: str, path: Path) -> None:
    start = data.find(f'"sha256":"{digest}"'.encode()) + len('"sha256":"')
    view, end = memoryview(data), start + len(BLANK)
    found = hashlib.sha256(view[:start])
    found.update(BLANK.encode())
    found.update(view[end:])
    if found.hexdigest() != digest:
        raise ModelFileError(f"{path} is damaged: its checksum differs; copy or save the model again.")
