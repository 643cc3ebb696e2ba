"""What a :class:`rowdex.Loader` does to its batches on threads: decoding images, padding lists.

::

    loader = rowdex.Loader(
        dataset, batch_size=64, threads=4,
        decode={"image": rowdex.transforms.Image(size=(224, 224))},
        pad={"tokens": "longest"},
    )

Any function of a value will do for ``decode``, and any function of a batch for ``map``.
"""

from __future__ import annotations

import importlib
import importlib.util
import io
import json
import math
import operator
import sys
from typing import TYPE_CHECKING, Any, Literal

from .loading.seeded import seeded
from .native.columns import Ragged, in_places
from .native.imports import loaded
from .schema import metadata_of

if TYPE_CHECKING:
    from .dataset import Dataset

Decoder = Literal["pillow", "simplejpeg", "torchvision"]
_DECODERS: dict[str, str] = {"simplejpeg": "simplejpeg", "pillow": "PIL.Image", "torchvision": "torchvision.io"}
_JPEG = b"\xff\xd8\xff"


class Image:
    """Decodes an image: for ``decode`` of a :class:`rowdex.Loader`.

    The value is the bytes of a file, or a struct with ``bytes``, as hubs store images, or with ``inline``, as Parquet's
    type FILE has them. The result is an array of
    ``uint8``, of shape ``(height, width, channels)``, or ``(channels, height, width)``. Pixels are where the file has
    them: an orientation that its EXIF data asks for is not applied.

    JPEG is decoded by simplejpeg, Pillow or torchvision, the first that is installed, and other formats by Pillow or
    torchvision. Their pixels may differ by a little: name one for the same pixels everywhere.

    Args:
        mode: ``"RGB"``, or ``"L"`` for grey.
        layout: ``"hwc"`` or ``"chw"``.
        size: Scales to this height and width, so that images of many sizes make one batch. Needs Pillow, which then
            decodes, too: a JPEG at about this size, which is several times faster than whole.
        decoder: ``"simplejpeg"``, ``"pillow"`` or ``"torchvision"``. simplejpeg decodes nothing but JPEG.

    Raises:
        ModuleNotFoundError: if no decoder is installed, or not the one that is named.
        ValueError: where bytes are no image, from the decoder; a loader says which row it is.
    """

    def __init__(
        self,
        mode: Literal["RGB", "L"] = "RGB",
        *,
        layout: Literal["hwc", "chw"] = "hwc",
        size: tuple[int, int] | None = None,
        decoder: Decoder | None = None,
    ) -> None:
        if mode not in ("RGB", "L"):
            raise ValueError(f"mode={mode!r}: use 'RGB' or 'L'")
        if layout not in ("hwc", "chw"):
            raise ValueError(f"layout={layout!r}: use 'hwc' or 'chw'")
        if decoder is not None and decoder not in _DECODERS:
            raise ValueError(f"decoder={decoder!r}: use {', '.join(map(repr, _DECODERS))}")
        if size is not None and decoder not in (None, "pillow"):
            raise ValueError(f"size= and decoder={decoder!r}: only 'pillow' scales")
        if size is not None and (not isinstance(size, (tuple, list)) or len(size) != 2 or min(size) < 1):
            raise ValueError(f"size={size!r}: give height and width")
        self._mode, self._layout, self._size = mode, layout, size
        self._decoders = _installed("pillow" if size is not None else decoder)

    def __call__(self, value: Any) -> Any:
        """The image as an array."""
        np = loaded("numpy")

        data = value.get("bytes", value.get("inline")) if isinstance(value, dict) else value
        if not isinstance(data, (bytes, bytearray, memoryview)):
            path = value.get("path", value.get("uri")) if isinstance(value, dict) else None
            where = f", only the path {path!r}: store the bytes in the Parquet files" if path else ""
            raise ValueError(f"no image: {type(value).__name__} without bytes{where}")
        found = np.ascontiguousarray(self._decoded(bytes(data)))
        return np.ascontiguousarray(found.transpose(2, 0, 1)) if self._layout == "chw" else found

    def __repr__(self) -> str:
        return f"Image({self._mode!r}, layout={self._layout!r}, size={self._size}, decoder={self._decoders[0]!r})"

    def _decoded(self, data: bytes) -> Any:
        for decoder in self._decoders:
            if decoder != "simplejpeg" or data.startswith(_JPEG) or len(self._decoders) == 1:
                return getattr(self, f"_{decoder}")(data)
        raise ValueError("no JPEG, and simplejpeg decodes nothing else: install Pillow")

    def _simplejpeg(self, data: bytes) -> Any:
        module = loaded("simplejpeg")
        return module.decode_jpeg(data, colorspace="GRAY" if self._mode == "L" else "RGB")

    def _torchvision(self, data: bytes) -> Any:
        torch = loaded("torch")

        module = loaded("torchvision.io")
        # From a copy that may be written to: torch warns of others.
        encoded = torch.frombuffer(bytearray(data), dtype=torch.uint8)
        mode = module.ImageReadMode.GRAY if self._mode == "L" else module.ImageReadMode.RGB
        return module.decode_image(encoded, mode=mode).permute(1, 2, 0).numpy()

    def _pillow(self, data: bytes) -> Any:
        np = loaded("numpy")

        module = loaded("PIL.Image")
        with module.open(io.BytesIO(data)) as image:
            if self._size is not None:
                height, width = self._size
                # Of a JPEG only: decodes to the smallest of a few sizes that is no smaller.
                image.draft(self._mode, (width, height))
                image = image.convert(self._mode).resize((width, height), module.Resampling.BILINEAR)
            found = np.asarray(image.convert(self._mode))
        return found[:, :, None] if found.ndim == 2 else found


def _installed(wanted: str | None) -> list[str]:
    if wanted is not None:
        if importlib.util.find_spec(_DECODERS[wanted].split(".")[0]) is None:
            raise ModuleNotFoundError(f"{wanted} is not installed, and images are to be decoded by it: install it")
        return [wanted]
    found = [name for name, module in _DECODERS.items() if importlib.util.find_spec(module.split(".")[0]) is not None]
    if not found:
        raise ModuleNotFoundError("nothing is installed that decodes images: install pillow, or simplejpeg for JPEG")
    return found


class Pad:
    """Makes one array of lists of different lengths: for ``pad`` of a :class:`rowdex.Loader`.

    Args:
        length: ``"longest"``, of the batch, or so many items. A longer list raises, unless ``cut``.
        fill: What fills up a shorter list.
        side: Where: ``"right"`` or ``"left"``.
        multiple_of: Rounds the length up, so that fewer shapes occur.
        cut: Leaves out the items of a list after ``length``.
        mask: Adds a column under this name that says where the items of lists are, bool, of the same shape.
    """

    def __init__(
        self,
        length: int | Literal["longest"] = "longest",
        *,
        fill: Any = 0,
        side: Literal["right", "left"] = "right",
        multiple_of: int = 1,
        cut: bool = False,
        mask: str | None = None,
    ) -> None:
        if not isinstance(length, (str, bool)) and hasattr(length, "__index__"):
            length = operator.index(length)
        if length != "longest" and (not isinstance(length, int) or isinstance(length, bool) or length < 0):
            raise ValueError(f"pad to {length!r}: use 'longest' or a number of items")
        if side not in ("right", "left"):
            raise ValueError(f"side={side!r}: use 'right' or 'left'")
        if multiple_of < 1:
            raise ValueError(f"multiple_of is {multiple_of}: use 1 or more")
        if cut and length == "longest":
            raise ValueError("cut=True with length='longest': give the length to cut at")
        self._length, self._fill, self._side = length, fill, side
        self._multiple, self._cut, self.mask = multiple_of, cut, mask

    def __call__(self, lists: Ragged) -> tuple[Any, Any]:
        """The lists as one array or tensor, and where the items are. Shape ``(rows, length, ...)`` and the same."""
        if not isinstance(lists, Ragged) or not hasattr(lists.values, "shape"):
            raise ValueError("only lists of numbers are padded, and these are not: name columns, pad={'tokens': …}")
        length = None if self._length == "longest" else self._length
        return in_places(
            lists, self._fill, length, left=self._side == "left", multiple=self._multiple, cuts=self._cut
        )


def random_resized_crop(
    size: tuple[int, int],
    rng: Any,
    scale: tuple[float, float] = (0.08, 1.0),
    ratio: tuple[float, float] = (3 / 4, 4 / 3),
) -> tuple[int, int, int, int]:
    """A random part of an image, by the law of torchvision's ``RandomResizedCrop``, as Pillow's
    ``image.resize(…, box=…)`` takes it: left, upper, right, lower.

    Args:
        size: Width and height of the image.
        rng: What draws: a ``numpy.random.Generator``.
        scale: How large a part, of the area: uniform between these.
        ratio: Its width over its height: the logarithm is uniform.
    """
    width, height = size
    low, high = map(math.log, ratio)
    for _ in range(10):
        area = width * height * (scale[0] + (scale[1] - scale[0]) * rng.random())
        aspect = math.exp(low + (high - low) * rng.random())
        across, down = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
        if 0 < across <= width and 0 < down <= height:
            upper = int(rng.random() * (height - down + 1))
            left = int(rng.random() * (width - across + 1))
            return left, upper, left + across, upper + down
    # The middle, as much of it as the ratio allows.
    across, down = width, height
    if width < min(ratio) * height:
        down = round(width / min(ratio))
    elif width > max(ratio) * height:
        across = round(height * max(ratio))
    left, upper = (width - across) // 2, (height - down) // 2
    return left, upper, left + across, upper + down


def hub(dataset: Dataset) -> dict[str, Image]:
    """For ``decode`` of a :class:`rowdex.Loader`: an :class:`Image` for each column that is one of images, as the
    feature metadata says that Hugging Face's ``datasets`` writes into Parquet files.

    Raises:
        ValueError: if there is no such metadata, or no such column.
    """
    metadata = _metadata(metadata_of(dataset.schema._exported.schema.metadata))
    try:
        features = json.loads(metadata[b"huggingface"])["info"]["features"]
    except (KeyError, TypeError, ValueError):
        raise ValueError(
            "the files have no feature metadata of Hugging Face: name the columns, decode={'image': Image()}"
        ) from None
    names = [name for name in dataset.column_names if _kind(features.get(name)) == "Image"]
    if not names:
        raise ValueError(f"no column is one of images by its metadata; there are {', '.join(dataset.column_names)}")
    return {name: Image() for name in names}


def _kind(feature: Any) -> Any:
    return feature.get("_type") if isinstance(feature, dict) else None


def _metadata(data: bytes | None) -> dict[bytes, bytes]:
    """Keys and values, as the Arrow C data interface has them: numbers of 32 bits, each before what it counts."""
    stream = io.BytesIO(data or bytes(4))

    def number() -> int:
        return int.from_bytes(stream.read(4), sys.byteorder)

    return {stream.read(number()): stream.read(number()) for _ in range(number())}


__all__ = ["Image", "Pad", "hub", "random_resized_crop", "seeded"]
