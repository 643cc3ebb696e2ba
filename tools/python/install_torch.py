"""Installs PyTorch without what it only needs for compiling kernels: python install_torch.py VERSION.

PyTorch's wheel for Linux names gigabytes of CUDA libraries. It links those of NVIDIA, so they must be there even where
there is no GPU; triton and the Python bindings of CUDA need not.
"""

from __future__ import annotations

import importlib.metadata
import re
import subprocess
import sys

NOT_NEEDED = ("triton", "cuda-bindings")


def pip(*arguments: str) -> None:
    command = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
        "--only-binary",
        ":all:",
    ]
    subprocess.run([*command, *arguments], check=True)


def main() -> None:
    pip("--no-deps", f"torch=={sys.argv[1]}")
    needed = [line for line in importlib.metadata.requires("torch") or [] if "extra ==" not in line]
    pip(*(line for line in needed if re.match(r"[\w.-]+", line)[0] not in NOT_NEEDED))  # type: ignore[index]
    pip("--no-deps", "torchdata")
    # torchdata imports these.
    pip("requests", "urllib3")
    subprocess.run([sys.executable, "-c", "import torch, torchdata"], check=True)


if __name__ == "__main__":
    main()
