"""Pins what the tests of the frameworks need: python lock_frameworks.py [ARGUMENTS FOR PIP...].

pip chooses versions that fit each other, those of requirements.txt, and the PyTorch that is installed. The list leaves
out what is installed otherwise (requirements.txt, PyTorch) and GPU libraries, which only GPUs need.
"""

from __future__ import annotations

import importlib.metadata
import json
import pathlib
import re
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).parent
# What the tests import. Their dependencies are found by pip.
FRAMEWORKS = [
    "accelerate",
    "albumentations",
    "deltalake",
    "grain",
    "jax",
    "lightgbm",
    "lightning",
    "pandas",
    "pillow",
    "pyiceberg[sql-sqlite]",
    "ray[data,train]",
    "scikit-learn",
    "simplejpeg",
    "tensorboard",
    "torchvision",
    "tqdm",
    "transformers",
    "trl",
    "xgboost",
]
OTHERWISE = re.compile(r"torch$|torchdata$|triton|nvidia-|cuda-")


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        constraints = pathlib.Path(folder) / "constraints.txt"
        torch = importlib.metadata.version("torch").split("+")[0]
        constraints.write_text((HERE / "requirements.txt").read_text() + f"torch=={torch}\n")
        report = pathlib.Path(folder) / "report.json"
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--dry-run"]
        command += ["--ignore-installed", "--only-binary", ":all:", "--report", str(report), "-c", str(constraints)]
        subprocess.run([*command, *sys.argv[1:], *FRAMEWORKS], check=True)
        chosen = [found["metadata"] for found in json.loads(report.read_text())["install"]]
    lines = (line for line in (HERE / "requirements.txt").read_text().splitlines() if not line.startswith("#"))
    here = {normal(line.split("==")[0]) for line in lines}
    pinned = sorted(
        f"{normal(found['name'])}=={found['version']}"
        for found in chosen
        if normal(found["name"]) not in here and not OTHERWISE.match(normal(found["name"]))
    )
    top = (
        "# What the tests of the frameworks need beside requirements.txt and PyTorch. It is complete, so pip resolves\n"
        "# nothing. Made by tools/frameworks.sh --lock.\n"
    )
    (HERE / "frameworks.txt").write_text(top + "\n".join(pinned) + "\n")


if __name__ == "__main__":
    main()
