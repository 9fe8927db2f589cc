#!/usr/bin/python3
"""Reshards a small model through chains of layouts, on 1, 2, 3, 4 and 8 processes, and judges every output with reference.py.

    matrix.py ZCCRUN RECIPE FAMILY

Every step must give the right bytes, and with every number of processes the same files byte for byte and the same `sent` and `local`.
"""
import json
import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
PROCESSES = (1, 2, 3, 4, 8)

# Each chain starts at the unsharded checkpoint.
CHAINS = {
    "qwen3": [["dp=4,tp=2,zero=3", "dp=2,tp=4", "full"], ["pp=2,tp=8,vocab_pad=1", "tp=1,dp=3,zero=3,base=5", "full"],
              ["dp=2,cp=2,tp=2,zero=3,style=megatron,vocab_pad=3", "tp=4,style=megatron,vocab_pad=7", "full"],
              ["dp=8,tp=1,zero=3,hpz=4", "tp=2,dp=4,zero=3,mics=2", "full"]],
    "llama": [["tp=8", "pp=3,tp=2,zero=1", "dp=5,zero=3", "full"]],
    "gpt2": [["dp=2,tp=2,zero=3", "tp=4,style=megatron", "full"], ["tp=2,pp=2", "dp=3,tp=1,zero=3", "full"]],
    "bert": [["tp=4", "dp=3,tp=2,zero=3", "full"]],
    "qwen3_moe": [["dp=2,ep=4,zero=3", "ep=2,tp=2", "full"],
                  ["dp=4,tp=2,zero=3;experts:edp=2,ep=4", "dp=2,tp=4;experts:ep=8", "pp=2,ep=2,tp=1", "full"]],
}


def environment():
    """mpirun as root and with more ranks than cores, as ./setup sets it."""
    return dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1", OMPI_MCA_rmaps_base_oversubscribe="1",
                OMPI_MCA_mpi_yield_when_idle="1")


def run(command, processes):
    if processes > 1:
        command = ["mpirun", "-n", str(processes)] + command
    done = subprocess.run(command, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=300, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(command)}\nended with status {done.returncode}:\n{done.stdout}")


def tree(folder):
    return {name: open(f"{folder}/{name}", "rb").read() for name in sorted(os.listdir(folder))}


def step(zccrun, recipe, source, target, layout, work):
    """One reshard on every number of processes; leaves the output at `target`."""
    first = None
    for processes in PROCESSES:
        out = f"{work}/out-{processes}"
        report = f"{work}/report.json"
        run([zccrun, recipe, "--in", source, "--out", out, "--to", layout, "--verify", "--report", report, "--staging", "64KiB"],
            processes)
        told = json.load(open(report))
        assert told["verified"] is True, told
        assert told["processes"] == processes, told
        peers = max(processes, 1)
        assert told["staging_peak_bytes"] <= 65536 * peers, told
        facts = (tree(out), told["bytes"]["sent"], told["bytes"]["local"], told["segments"], told["pieces"])
        if first is None:
            first = facts
            os.rename(out, target)
        elif facts != first:
            differ = [n for n in facts[0] if facts[0].get(n) != first[0].get(n)]
            sys.exit(f"{source} -> {layout}: {processes} processes give other files {differ} or counts {facts[1:]}, not {first[1:]}")


def main(zccrun, recipe, family):
    reference = ["/usr/bin/python3", f"{HERE}/reference.py"]
    for number, chain in enumerate(CHAINS[family]):
        with tempfile.TemporaryDirectory(prefix="zcc-matrix-") as work:
            origin = source = f"{work}/step-0"
            subprocess.run(reference + ["make", family, origin, "--files", str(1 + number % 3), "--seed", str(number)], check=True)
            for i, layout in enumerate(chain, 1):
                target = f"{work}/step-{i}"
                step(zccrun, recipe, source, target, layout, work)
                print(f"{family}: {chain[i - 2] if i > 1 else 'full'} -> {layout} on {PROCESSES} processes: ", end="", flush=True)
                if subprocess.run(reference + ["check", origin, layout, target]).returncode:
                    sys.exit(1)
                source = target
                for p in PROCESSES[1:]:
                    subprocess.run(["rm", "-rf", f"{work}/out-{p}"], check=True)


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    main(*sys.argv[1:])
