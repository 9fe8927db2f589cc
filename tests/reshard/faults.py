#!/usr/bin/python3
"""Bad input and bad luck for recipes/reshard.lua: every case ends with status 1 or 2, says once what is wrong with names and numbers,
and leaves no output folder.

    faults.py ZCCRUN RECIPE [CASE ...]
"""
import glob
import json
import os
import re
import resource
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time

import matrix
import reference

CASES = {}


def case(function):
    CASES[function.__name__] = function
    return function


def without_banners(text):
    """Drops what mpirun itself says of a job that failed, between two lines of dashes."""
    return re.sub(r"(?ms)^-{60,}\n.*?^-{60,}\n", "", text)


class Bench:
    """One temporary folder with a small model in it, and the command under test."""

    def __init__(self, zccrun, recipe, work):
        self.zccrun, self.recipe, self.work = zccrun, recipe, work
        self.model, self.out = f"{work}/model", f"{work}/out"
        reference.make("qwen3", self.model, 7, 2, "BF16")

    def path(self, name):
        return f"{self.work}/{name}"

    def command(self, *args, out=None, model=None, to="dp=2,tp=2", processes=1):
        command = [self.zccrun, self.recipe, "--in", model or self.model, "--out", out or self.out, "--to", to, *args]
        return ["mpirun", "-n", str(processes)] + command if processes > 1 else command

    def run(self, *args, prefix=(), before=None, **options):
        return subprocess.run([*prefix, *self.command(*args, **options)], env=matrix.environment(),
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=300, preexec_fn=before)

    def good(self, *args, **options):
        done = self.run(*args, **options)
        assert done.returncode == 0, done.stderr

    def bad(self, *patterns, args=(), statuses=(1, 2), processes=(1, 3), leave=False, **options):
        """The command fails as it must, alone and under mpirun."""
        out = options.get("out", self.out)
        for n in processes:
            done = self.run(*args, processes=n, **options)
            told = without_banners(done.stderr + done.stdout)
            assert done.returncode in statuses, f"{n} processes: status {done.returncode}\n{told}"
            for pattern in patterns:
                found = [line for line in told.splitlines() if re.search(pattern, line)]
                assert len(found) == 1, f"{n} processes: {pattern!r} is on {len(found)} lines of\n{told}"
            assert "stack traceback" not in told, told
            if not leave:
                rest = [p for p in [out] + glob.glob(out + ".tmp.*") if os.path.exists(p)]
                assert not rest, f"{n} processes: left {rest}\n{told}"


def rewrite(path, change):
    """Applies change(header, data) -> (header bytes or object, data) to a safetensors file."""
    raw = open(path, "rb").read()
    n = struct.unpack("<Q", raw[:8])[0]
    header, data = change(json.loads(raw[8:8 + n]), raw[8 + n:])
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    open(path, "wb").write(struct.pack("<Q", len(text)) + text + data)


def file_of(model, number=1):
    return f"{model}/model-{number:05d}-of-00002.safetensors"


# ---- safetensors ----

def broken_file(bench, name, change, *patterns):
    model = bench.path(name)
    shutil.copytree(bench.model, model)
    change(file_of(model))
    bench.bad(r"model-00001-of-00002\.safetensors", *patterns, model=model, processes=(1, 2))


@case
def a_file_cut_short(bench):
    for cut in (1, 4096, 10):
        broken_file(bench, f"cut-{cut}", lambda path: os.truncate(path, os.path.getsize(path) - cut), r"\d+")
    broken_file(bench, "cut-header", lambda path: os.truncate(path, 100), r"\d+")
    broken_file(bench, "cut-to-7", lambda path: os.truncate(path, 7), r"\b7\b")


@case
def a_header_length_past_the_end_or_absurd(bench):
    def length(value):
        def change(path):
            with open(path, "r+b") as f:
                f.write(struct.pack("<Q", value))
        return change
    broken_file(bench, "length-past", length(99_000_000), r"99000000|99,000,000")
    broken_file(bench, "length-large", length(100_000_001), r"100000001|100,000,001")
    broken_file(bench, "length-2-63", length(2 ** 63), r"\d{9,}")


NORM = "model.layers.0.input_layernorm.weight"


@case
def a_header_that_is_wrong(bench):
    def entry(**fields):
        def change(path):
            def edit(header, data):
                header[NORM].update(fields)
                return header, data
            rewrite(path, edit)
        return change
    name = re.escape(NORM)
    begin, end = json.loads(open(file_of(bench.model), "rb").read()[8:].split(b"}}")[0] + b"}}")[NORM]["data_offsets"]
    broken_file(bench, "dtype", entry(dtype="F7", data_offsets=[begin, 2 ** 64 - 1]), name)
    broken_file(bench, "shape", entry(shape=[23]), name, r"\b(46|23)\b")
    broken_file(bench, "overflow", entry(shape=[2 ** 40, 2 ** 40]), name)
    broken_file(bench, "negative", entry(data_offsets=[-2, end]), name)
    broken_file(bench, "reversed", entry(data_offsets=[end, begin]), name)
    broken_file(bench, "overlap", entry(data_offsets=[begin - 2, end - 2]), name)
    broken_file(bench, "hole", entry(data_offsets=[begin + 2, end + 2]), name)
    broken_file(bench, "outside", entry(data_offsets=[2 ** 50, 2 ** 50 + end - begin]), name)
    broken_file(bench, "three", entry(data_offsets=[begin, end, end]), name)
    broken_file(bench, "strings", entry(data_offsets=["0", "48"]), name)
    broken_file(bench, "utf8", lambda path: rewrite(path, lambda h, d: (json.dumps(h).encode().replace(b"norm", b"n\xffrm", 1), d)))
    broken_file(bench, "twice", lambda path: rewrite(path, lambda h, d: (
        b'{"%s":%s,%s' % (NORM.encode(), json.dumps(h[NORM]).encode(), json.dumps(h).encode()[1:]), d)), name)


# ---- folders ----

def broken_index(bench, name, change, *patterns):
    model = bench.path(name)
    shutil.copytree(bench.model, model)
    path = f"{model}/model.safetensors.index.json"
    index = json.load(open(path))
    change(index["weight_map"])
    json.dump(index, open(path, "w"))
    bench.bad(*patterns, model=model, processes=(1, 2))


@case
def an_index_that_is_wrong(bench):
    broken_index(bench, "missing-file", lambda m: m.update({NORM: "model-00009-of-00002.safetensors"}), r"model-00009-of-00002\.safetensors")
    broken_index(bench, "outside-file", lambda m: m.update({NORM: "../model/model-00001-of-00002.safetensors"}), r"\.\./model")
    broken_index(bench, "missing-tensor", lambda m: m.update({"model.not.there": "model-00001-of-00002.safetensors"}), r"model\.not\.there")
    broken_index(bench, "wrong-file", lambda m: m.update({NORM: "model-00002-of-00002.safetensors"}), re.escape(NORM))
    broken_index(bench, "unnamed", lambda m: m.pop(NORM), re.escape(NORM))


@case
def an_extra_file_is_ignored_with_a_word(bench):
    model = bench.path("extra")
    shutil.copytree(bench.model, model)
    shutil.copy(file_of(model), f"{model}/stale.safetensors")
    done = bench.run(model=model)
    assert done.returncode == 0, done.stderr
    assert "stale.safetensors" in done.stderr, done.stderr
    shutil.rmtree(bench.out)


@case
def no_such_input(bench):
    bench.bad(r"nowhere", model=bench.path("nowhere"))
    os.mkdir(bench.path("empty"))
    bench.bad(r"empty", model=bench.path("empty"))


@case
def no_read_permission(bench):
    model = bench.path("secret")
    shutil.copytree(bench.model, model)
    os.chmod(file_of(model), 0)
    # root reads everything, unless it has given up its capabilities; it is still the owner of the folders on the way.
    prefix = ["setpriv", "--bounding-set", "-all", "--inh-caps", "-all"] if os.geteuid() == 0 else []
    if prefix and subprocess.run([*prefix, "true"], stderr=subprocess.DEVNULL).returncode != 0:
        print("skipped: no_read_permission: this root cannot give up its capabilities")
        return
    bench.bad(r"model-00001-of-00002\.safetensors.*[Pp]ermission denied", model=model, prefix=prefix, processes=(1,))


@case
def the_output_is_taken(bench):
    os.mkdir(bench.out)
    open(f"{bench.out}/precious", "w").write("keep me")
    bench.bad(re.escape(bench.out) + r".*1 entr.*--force", leave=True)
    assert open(f"{bench.out}/precious").read() == "keep me"
    bench.good("--force")
    assert not os.path.exists(f"{bench.out}/precious") and os.path.exists(f"{bench.out}/manifest.json")
    shutil.rmtree(bench.out)
    os.mkdir(bench.out)
    bench.good()
    shutil.rmtree(bench.out)
    open(bench.out, "w").write("a file")
    bench.bad(re.escape(bench.out), leave=True)
    bench.bad(re.escape(bench.out), args=("--force",), leave=True)
    assert open(bench.out).read() == "a file"


@case
def a_report_that_cannot_be_written(bench):
    # Told at the start: it must not come out once the output is there.
    bench.bad(r"/nowhere/report", args=("--report", "/nowhere/report"))
    bench.bad(r"directory", args=("--report", bench.work))
    # What fails nevertheless must not take the output with it, and says so.
    bench.bad(r"No space", r"was complete before", args=("--report", "/dev/full"), processes=(1,), leave=True)
    assert os.path.exists(f"{bench.out}/manifest.json")
    shutil.rmtree(bench.out)


@case
def side_files_that_are_no_text_files(bench):
    model = bench.path("odd-sides")
    shutil.copytree(bench.model, model)
    os.mkdir(f"{model}/folder.json")
    os.mkfifo(f"{model}/pipe.txt")
    os.symlink("nowhere", f"{model}/link.jinja")
    bench.good(model=model)
    copied = sorted(name for name in os.listdir(bench.out) if not name.endswith(".safetensors"))
    assert copied == ["config.json", "manifest.json"], copied
    shutil.rmtree(bench.out)


@case
def no_file_descriptor_is_left(bench):
    # The program may raise its soft limit, but not the hard one.
    bench.bad(r"Too many open files", to="dp=100,zero=3", processes=(1,),
              before=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64)))


@case
def the_input_lies_in_the_folder_to_be_replaced(bench):
    outer = bench.path("outer")
    shutil.copytree(bench.model, f"{outer}/model")
    bench.bad(r"outer/model", model=f"{outer}/model", out=outer, args=("--force",), leave=True)
    assert os.path.exists(f"{outer}/model/config.json")
    # The folder itself may be replaced by its own content in another layout.
    bench.good("--force", "--verify", model=f"{outer}/model", out=f"{outer}/model")


@case
def a_limit_on_the_size_of_files(bench):
    bench.bad(r"File too large", processes=(1,), before=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096)))
    bench.bad(r"File too large", processes=(1,), to="full",
              before=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096)))


@case
def a_folder_that_one_process_does_not_see(bench):
    hidden = ["unshare", "-m", "sh", "-c", f"mount -t tmpfs none {bench.model} && exec \"$@\"", "sh"]
    if subprocess.run(hidden + ["true"], stderr=subprocess.DEVNULL).returncode:
        print("skipped: a_folder_that_one_process_does_not_see: hiding a folder is not permitted here")
        return
    command = bench.command()
    done = subprocess.run(["mpirun", "-n", "2", *command, ":", "-n", "1", *hidden, *command], env=matrix.environment(),
                          capture_output=True, text=True, timeout=300)
    told = [line for line in done.stderr.splitlines() if line.startswith("zccrun: ")]
    assert done.returncode == 1 and len(told) == 1 and "process 2" in told[0] and bench.model in told[0], done.stderr
    assert not glob.glob(bench.out + "*")


@case
def a_damaged_sharded_checkpoint(bench):
    folder = bench.path("sharded")
    bench.good(out=folder, to="dp=2,tp=2,zero=3")
    file = "rank-00002-of-00004.safetensors"

    def broken(name, change, *patterns, args=()):
        copy = bench.path(name)
        shutil.copytree(folder, copy)
        change(copy)
        bench.bad(*patterns, model=copy, to="tp=4", args=args)
    # The same size and the same tensors, but not what the manifest's checksum says.
    broken("swapped", lambda f: shutil.copy(f"{f}/rank-00000-of-00004.safetensors", f"{f}/{file}"), re.escape(file))
    broken("lost", lambda f: os.remove(f"{f}/{file}"), re.escape(file))
    broken("short", lambda f: os.truncate(f"{f}/{file}", os.path.getsize(f"{f}/{file}") - 1), re.escape(file))
    broken("manifest", lambda f: open(f"{f}/manifest.json", "w").write("{"), r"manifest\.json")

    def flip(f):
        with open(f"{f}/{file}", "r+b") as handle:
            handle.seek(-1, 2)
            byte = handle.read(1)
            handle.seek(-1, 2)
            handle.write(bytes([byte[0] ^ 1]))
    broken("flipped", flip, re.escape(file))
    bench.bad(r"dp=4", model=folder, to="tp=4", args=("--from", "dp=4,tp=1,zero=3"))


@case
def replicas_that_differ(bench):
    folder = bench.path("replicas")
    bench.good(out=folder, to="dp=2,tp=2")
    path = f"{folder}/rank-00002-of-00004.safetensors"
    with open(path, "r+b") as handle:
        handle.seek(-1, 2)
        byte = handle.read(1)
        handle.seek(-1, 2)
        handle.write(bytes([byte[0] ^ 0x40]))
    # The checksum would tell first: a writer whose replicas had drifted apart wrote the right checksum of the wrong bytes.
    subprocess.run([bench.zccrun, f"{matrix.HERE}/resum.lua", "--in", folder], check=True)
    bench.bad(r"rank [02].*rank [02]", model=folder, to="tp=4", args=("--verify",))


# ---- layouts, rules, policies ----

@case
def layouts_that_make_no_sense(bench):
    for layout, *patterns in (
        ("dp=2,tq=2", r"tq"), ("dp=0,tp=2", r"dp=0"), ("dp=-1", r"dp"), ("dp=2,dp=2", r"dp"), ("dp=2,tp", r"tp"), ("", r"layout"),
        ("tp=3", r"\b3\b"), ("pp=4", r"\b4\b.*\b3\b|\b3\b.*\b4\b"), ("dp=2,zero=4", r"zero"), ("dp=4,zero=3,hpz=3", r"hpz"),
        ("dp=2,base=-1", r"base"), ("dp=2,base=99999999999", r"base"), ("dp=99999999,tp=99999999", r"dp|tp|ranks"),
        ("dp=2;experts:ep=4", r"\b4\b"), ("dp=2,style=odd", r"odd"), ("full,tp=2", r"full"),
    ):
        # What is no layout at all is misuse; what only does not fit the model is not.
        bench.bad(*patterns, to=layout, processes=(1, 2), statuses=(1,) if layout in ("tp=3", "pp=4") else (2,))
    moe = bench.path("moe")
    reference.make("qwen3_moe", moe, 3, 1, "BF16")
    bench.bad(r"\b3\b.*\b8\b|\b8\b.*\b3\b", model=moe, to="ep=3", processes=(1,))
    bench.bad(r"tp=2", args=("--from", "tp=2"), processes=(1,))


@case
def parameters_that_no_rule_matches(bench):
    model = bench.path("odd")
    os.mkdir(model)
    tensors = {n: ("BF16", reference.np.zeros((8, 8), reference.np.uint16)) for n in ("odd.one", "odd.two")}
    reference.write_safetensors(f"{model}/model.safetensors", tensors)
    bench.bad(r"odd\.one", model=model, to="tp=2")
    rules = bench.path("rules.lua")
    open(rules, "w").write('return { name = "odd", rules = { { "one$", cut = 0 } } }\n')
    bench.bad(r"odd\.two", model=model, to="tp=2", args=("--rules", rules))
    bench.good("--rules", rules, "--default", "replicate", model=model, to="tp=2")
    # The way back needs none, nor does a copy.
    for source in (bench.out, model):
        bench.good("--verify", model=source, out=bench.path("odd-full"), to="full")
        shutil.rmtree(bench.path("odd-full"))
    bench.bad(r"odd\.one", args=("--dry-run", "--from", "tp=2"), model=model, to="full", leave=True)
    shutil.rmtree(bench.out)
    open(rules, "w").write('return {\n  name = "odd",\n  rules = nil + 1 }\n')
    bench.bad(r"rules\.lua:3", model=model, to="tp=2", args=("--rules", rules))


@case
def policies_that_misbehave(bench):
    folder = bench.path("for-policies")
    bench.good(out=folder, to="dp=4,tp=2")
    policy = bench.path("policy.lua")

    def with_body(body, *patterns, processes=(1, 3)):
        open(policy, "w").write('return { name = "mine", select = function(region, holders, load)\n' + body + "\nend }\n")
        bench.bad(*patterns, model=folder, to="tp=4", args=("--policy", policy), processes=processes)
    with_body("error('no idea')", r"policy\.lua:2.*no idea")
    with_body("return #holders + 1", r"policy\.lua")
    with_body("return 0", r"policy\.lua")
    with_body("return 'first'", r"policy\.lua")
    with_body("return nil", r"policy\.lua")
    with_body("return 1.5", r"policy\.lua")
    # An address differs from process to process.
    with_body("return tonumber(tostring({}):match('0x(%x+)'), 16) % 99991 % #holders + 1", r"process", processes=(3,))
    bench.bad(r"nopolicy", args=("--policy", "nopolicy"))


@case
def misuse_of_the_command(bench):
    for args, pattern in ((("--nonsense",), r"nonsense"), (("--staging", "lots"), r"lots"), (("--staging", "1"), r"staging"),
                          (("--family", "qwen4"), r"--family: .*qwen4.*qwen3"), (("--policy", "lowst"), r"--policy: .*lowst.*lowest"),
                          (("--from", "tq=2"), r"--from: .*tq"), (("--verify", "yes"), r"yes")):
        bench.bad(pattern, args=args, processes=(1, 2), statuses=(2,))
    done = subprocess.run([bench.zccrun, bench.recipe, "--in", bench.model], capture_output=True, text=True)
    assert done.returncode == 2 and "--to" in done.stderr, done


# ---- bad luck ----

@case
def the_disk_is_full(bench):
    disk = bench.path("disk")
    os.mkdir(disk)
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=32k", "none", disk], stderr=subprocess.DEVNULL).returncode:
        print("skipped: the_disk_is_full: mounting a small tmpfs is not permitted here")
        return
    try:
        bench.bad(r"[Nn]o space", out=f"{disk}/out")
        bench.bad(r"[Nn]o space", out=f"{disk}/out", to="full")
    finally:
        subprocess.run(["umount", disk], check=True)


def is_alive(process):
    try:
        return open(f"/proc/{process}/stat").read().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


@case
def a_killed_rank_ends_all(bench):
    # Large enough to be in the middle when the signal comes.
    for delay in (0.3, 0.6, 0.9, 1.2):
        model, out = bench.path("large"), bench.path("large-out")
        if not os.path.exists(model):
            os.mkdir(model)
            size = (1 << 14, 1 << 13)
            tensors = {f"block.{i}.weight": ("F32", reference.np.zeros(size, reference.np.uint32)) for i in range(1)}
            reference.write_safetensors(f"{model}/model.safetensors", tensors)
            open(bench.path("block.lua"), "w").write('return { name = "block", rules = { { "weight$", cut = 1 } } }\n')
        job = subprocess.Popen(bench.command("--rules", bench.path("block.lua"), model=model, out=out, to="tp=4", processes=4),
                               env=matrix.environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True)
        time.sleep(delay)
        children = subprocess.run(["pgrep", "-P", str(job.pid)], capture_output=True, text=True).stdout.split()
        begin = time.monotonic()
        try:
            os.kill(int(children[-1]), signal.SIGKILL)
        except (IndexError, ProcessLookupError):
            pass  # None has been started yet, or the last one is through.
        while any(map(is_alive, children)) and time.monotonic() - begin < 120:
            time.sleep(0.1)
        try:
            # mpirun itself may wait for ever where a process died while it started others; what counts is that all are gone.
            job.communicate(timeout=10 if children else 300)
        except subprocess.TimeoutExpired:
            print(f"a_killed_rank_ends_all: after {delay} s mpirun stays when all its processes are gone")
        finally:
            if job.poll() is None:
                os.killpg(job.pid, signal.SIGKILL)
                job.communicate()
        assert not any(map(is_alive, children)), "a process outlives the job"
        if os.path.exists(out):
            # The signal came after the rename: then everything has to be there.
            compare = [bench.zccrun, f"{os.path.dirname(bench.recipe)}/compare.lua", "--in", model, "--with", out]
            assert subprocess.run(compare).returncode == 0, "an output folder that only looks complete"
            print(f"a_killed_rank_ends_all: after {delay} s all was published already")
            shutil.rmtree(out)
            continue
        assert job.returncode != 0, "a killed rank went unnoticed"
        for rest in glob.glob(out + ".tmp.*"):
            assert not os.path.exists(f"{rest}/manifest.json"), f"{rest} has a manifest"
            shutil.rmtree(rest)


def main(zccrun, recipe, *names):
    failed = []
    for name in names or CASES:
        with tempfile.TemporaryDirectory(prefix="zcc-faults-") as work:
            begin = time.monotonic()
            try:
                CASES[name](Bench(zccrun, recipe, work))
                print(f"ok: {name} ({time.monotonic() - begin:.1f} s)", flush=True)
            except (AssertionError, subprocess.TimeoutExpired) as fault:
                failed.append(name)
                print(f"FAILED: {name}: {fault}", flush=True)
    if failed:
        sys.exit(f"{len(failed)} cases failed: {', '.join(failed)}")


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])
