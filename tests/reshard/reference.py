#!/usr/bin/python3
"""An independent judge of recipes/reshard.lua: slices whole tensors with numpy and compares every byte of an output folder.

    reference.py make FAMILY FOLDER [--seed N] [--files N] [--dtype BF16]   writes a small Hugging Face style checkpoint
    reference.py check IN_FOLDER LAYOUT OUT_FOLDER                          compares OUT with what LAYOUT demands of IN

It shares no code with the engine: layouts are split here with plain array slices, one tensor and one rank at a time.
"""
import argparse
import json
import os
import re
import struct
import sys

import numpy as np

WIDTH = {"BOOL": 1, "U8": 1, "I8": 1, "BF16": 2, "F16": 2, "F32": 4, "I32": 4, "I64": 8, "F64": 8}
UINT = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}


# ---- safetensors, by the public description of the format ----

def read_safetensors(path):
    raw = open(path, "rb").read()
    n = struct.unpack("<Q", raw[:8])[0]
    header = json.loads(raw[8:8 + n])
    header.pop("__metadata__", None)
    out, reached = {}, 0
    for name, t in sorted(header.items(), key=lambda kv: kv[1]["data_offsets"]):
        begin, end = t["data_offsets"]
        assert begin == reached, f"{path}: {name} begins at {begin}, not {reached}"
        reached = end
        array = np.frombuffer(raw[8 + n + begin:8 + n + end], UINT[WIDTH[t["dtype"]]])
        out[name] = (t["dtype"], array.reshape(t["shape"]))
    assert 8 + n + reached == len(raw), f"{path}: {len(raw)} bytes, {8 + n + reached} described"
    return out


def write_safetensors(path, tensors):
    header, offset = {"__metadata__": {"format": "pt"}}, 0
    for name, (dtype, array) in tensors.items():
        header[name] = {"dtype": dtype, "shape": list(array.shape), "data_offsets": [offset, offset + array.nbytes]}
        offset += array.nbytes
    text = json.dumps(header).encode()
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        for _, array in tensors.values():
            f.write(array.tobytes())


# ---- small models ----

CONFIGS = {
    "qwen3": dict(model_type="qwen3", num_hidden_layers=3, hidden_size=24, intermediate_size=40, num_attention_heads=8,
                  num_key_value_heads=2, head_dim=6, vocab_size=52, tie_word_embeddings=False),
    "llama": dict(model_type="llama", num_hidden_layers=4, hidden_size=32, intermediate_size=56, num_attention_heads=8,
                  num_key_value_heads=4, vocab_size=40, tie_word_embeddings=True),
    "gpt2": dict(model_type="gpt2", n_layer=2, n_embd=24, n_head=4, vocab_size=44, n_positions=16),
    "bert": dict(model_type="bert", num_hidden_layers=2, hidden_size=16, intermediate_size=24, num_attention_heads=4,
                 vocab_size=36, max_position_embeddings=12, type_vocab_size=2),
    "qwen3_moe": dict(model_type="qwen3_moe", num_hidden_layers=2, hidden_size=16, moe_intermediate_size=12, num_experts=8,
                      intermediate_size=20, num_attention_heads=4, num_key_value_heads=2, head_dim=4, vocab_size=32,
                      num_experts_per_tok=2, decoder_sparse_step=1, mlp_only_layers=[], tie_word_embeddings=False),
}


def model_shapes(c):
    kind = c["model_type"]
    if kind == "gpt2":
        h = c["n_embd"]
        yield "wte.weight", (c["vocab_size"], h)
        yield "wpe.weight", (c["n_positions"], h)
        for i in range(c["n_layer"]):
            p = f"h.{i}."
            for ln in ("ln_1", "ln_2"):
                yield p + ln + ".weight", (h,)
                yield p + ln + ".bias", (h,)
            for name, cols, rows in (("attn.c_attn", 3 * h, h), ("attn.c_proj", h, h), ("mlp.c_fc", 4 * h, h), ("mlp.c_proj", h, 4 * h)):
                yield p + name + ".weight", (rows, cols)
                yield p + name + ".bias", (cols,)
        yield "ln_f.weight", (h,)
        yield "ln_f.bias", (h,)
        return
    h = c["hidden_size"]
    if kind == "bert":
        for name, rows in (("position", "max_position_embeddings"), ("token_type", "type_vocab_size"), ("word", "vocab_size")):
            yield f"embeddings.{name}_embeddings.weight", (c[rows], h)
        yield "embeddings.position_ids", (1, c["max_position_embeddings"])
        yield "embeddings.LayerNorm.weight", (h,)
        yield "embeddings.LayerNorm.bias", (h,)
        for i in range(c["num_hidden_layers"]):
            p = f"encoder.layer.{i}."
            for name, rows, cols in (("attention.self.query", h, h), ("attention.self.key", h, h), ("attention.self.value", h, h),
                                     ("attention.output.dense", h, h), ("intermediate.dense", c["intermediate_size"], h),
                                     ("output.dense", h, c["intermediate_size"])):
                yield p + name + ".weight", (rows, cols)
                yield p + name + ".bias", (rows,)
            for name in ("attention.output.LayerNorm", "output.LayerNorm"):
                yield p + name + ".weight", (h,)
                yield p + name + ".bias", (h,)
        yield "pooler.dense.weight", (h, h)
        yield "pooler.dense.bias", (h,)
        return
    d = c.get("head_dim", h // c["num_attention_heads"])
    q, kv = c["num_attention_heads"] * d, c["num_key_value_heads"] * d
    yield "model.embed_tokens.weight", (c["vocab_size"], h)
    for i in range(c["num_hidden_layers"]):
        p = f"model.layers.{i}."
        yield p + "input_layernorm.weight", (h,)
        yield p + "self_attn.q_proj.weight", (q, h)
        yield p + "self_attn.k_proj.weight", (kv, h)
        yield p + "self_attn.v_proj.weight", (kv, h)
        yield p + "self_attn.o_proj.weight", (h, q)
        if kind.startswith("qwen3"):
            yield p + "self_attn.q_norm.weight", (d,)
            yield p + "self_attn.k_norm.weight", (d,)
        yield p + "post_attention_layernorm.weight", (h,)
        if kind == "qwen3_moe":
            m = c["moe_intermediate_size"]
            yield p + "mlp.gate.weight", (c["num_experts"], h)
            for e in range(c["num_experts"]):
                yield f"{p}mlp.experts.{e}.gate_proj.weight", (m, h)
                yield f"{p}mlp.experts.{e}.up_proj.weight", (m, h)
                yield f"{p}mlp.experts.{e}.down_proj.weight", (h, m)
        else:
            m = c["intermediate_size"]
            yield p + "mlp.gate_proj.weight", (m, h)
            yield p + "mlp.up_proj.weight", (m, h)
            yield p + "mlp.down_proj.weight", (h, m)
    yield "model.norm.weight", (h,)
    if not c["tie_word_embeddings"]:
        yield "lm_head.weight", (c["vocab_size"], h)


def make(family, folder, seed, files, dtype):
    config = CONFIGS[family]
    os.makedirs(folder)
    rng = np.random.default_rng(seed)
    tensors = {}
    for name, shape in model_shapes(config):
        kind = "I64" if name.endswith("position_ids") else dtype
        word = UINT[WIDTH[kind]]
        tensors[name] = (kind, rng.integers(1, np.iinfo(word).max, size=shape, dtype=word, endpoint=True))
    json.dump(config, open(f"{folder}/config.json", "w"))
    if files == 1:
        write_safetensors(f"{folder}/model.safetensors", tensors)
        return
    names, index = list(tensors), {}
    for k in range(files):
        part = names[k * len(names) // files:(k + 1) * len(names) // files]
        file = f"model-{k + 1:05d}-of-{files:05d}.safetensors"
        write_safetensors(f"{folder}/{file}", {n: tensors[n] for n in part})
        index.update({n: file for n in part})
    json.dump({"metadata": {"total_size": sum(a.nbytes for _, a in tensors.values())}, "weight_map": index},
              open(f"{folder}/model.safetensors.index.json", "w"))


# ---- what a layout demands ----

class Layout:
    def __init__(self, text):
        self.axes, self.options, self.experts = [], dict(zero=0, base=0, style="autotp"), None
        if text == "full":
            return
        dense, _, experts = text.partition(";experts:")
        for word in dense.split(","):
            key, value = word.split("=")
            if key in ("pp", "dp", "ep", "cp", "tp"):
                self.axes.append((key, int(value)))
            else:
                self.options[key] = value if key == "style" else int(value)
        if experts:
            self.experts = [(k, int(v)) for k, v in (w.split("=") for w in experts.split(","))]

    def world(self):
        return int(np.prod([n for _, n in self.axes], dtype=int))

    @staticmethod
    def coordinates(axes, number):
        place = np.unravel_index(number, [n for _, n in axes]) if axes else ()
        return {key: int(c) for (key, _), c in zip(axes, place)}


def even(array, axis, n, i):
    assert array.shape[axis] % n == 0, f"{array.shape} axis {axis} by {n}"
    return np.split(array, n, axis)[i]


def heads(array, n_heads, n, i):
    """Rows grouped in heads; fewer heads than ranks: neighbours share one."""
    per_head = array.reshape((n_heads, array.shape[0] // n_heads) + array.shape[1:])
    mine = even(per_head, 0, n, i) if n <= n_heads else per_head[[i * n_heads // n]]
    return mine.reshape((-1,) + array.shape[1:])


def vocabulary(array, pad, n, i):
    if pad:
        rows = -array.shape[0] % (pad * n)
        array = np.concatenate([array, np.zeros((rows,) + array.shape[1:], array.dtype)])
    return even(array, 0, n, i)


def tensor_parallel(name, array, c, options, n, i):
    """The part of one tensor that tensor-parallel rank i of n stores, after any padding."""
    kind, pad = c["model_type"], options.get("vocab_pad", 0)
    megatron = options["style"] == "megatron"
    if kind == "gpt2":
        if name == "wte.weight":
            return vocabulary(array, pad, n, i) if megatron else array
        if ".attn.c_attn." in name:
            return np.concatenate([even(part, -1 % array.ndim, n, i) for part in np.split(array, 3, -1)], -1)
        if ".mlp.c_fc." in name:
            return even(array, array.ndim - 1, n, i)
        if name.endswith(".c_proj.weight"):
            return even(array, 0, n, i)
        return array
    if kind == "bert":
        if name == "embeddings.word_embeddings.weight":
            return vocabulary(array, pad, n, i) if megatron else array
        if re.search(r"self\.(query|key|value)\.|intermediate\.dense\.", name):
            return even(array, 0, n, i)
        if re.search(r"layer\.\d+\.(attention\.)?output\.dense\.weight", name):
            return even(array, 1, n, i)
        return array
    if name == "model.embed_tokens.weight":
        return vocabulary(array, pad, n, i) if megatron else array
    if name == "lm_head.weight":
        return vocabulary(array, pad, n, i)
    if re.search(r"\.q_proj\.", name):
        return heads(array, c["num_attention_heads"], n, i)
    if re.search(r"\.[kv]_proj\.", name):
        return heads(array, c["num_key_value_heads"], n, i)
    if re.search(r"\.(gate_proj|up_proj)\.", name):
        return even(array, 0, n, i)
    if re.search(r"\.(o_proj|down_proj)\.", name):
        return even(array, 1, n, i)
    return array


def stage_of(name, c, pp):
    layers = c.get("num_hidden_layers", c.get("n_layer"))
    found = re.search(r"(?:^|\.)(?:layers|layer|h)\.(\d+)\.", name)
    if not found:
        return pp - 1 if re.search(r"^(model\.norm|lm_head|ln_f|pooler)", name) else 0
    sizes = [layers // pp + (s < layers % pp) for s in range(pp)]
    return int(np.searchsorted(np.cumsum(sizes), int(found.group(1)), side="right"))


def shard(name, array, c, layout, number):
    """What rank base + number stores of one tensor, or None."""
    expert = re.search(r"\.experts\.(\d+)\.", name)
    axes = layout.experts if expert and layout.experts else layout.axes
    size, at = dict(axes), Layout.coordinates(axes, number)
    if "pp" in size and stage_of(name, c, size["pp"]) != at["pp"]:
        return None
    if expert and "ep" in size and int(expert.group(1)) // (c["num_experts"] // size["ep"]) != at["ep"]:
        return None
    local = tensor_parallel(name, array, c, layout.options, size.get("tp", 1), at.get("tp", 0))
    if layout.options["zero"] < 3:
        return local
    group = [k for k, _ in axes if k in ("dp", "cp", "edp") or (k == "ep" and not expert)]
    n = int(np.prod([size[k] for k in group], dtype=int))
    i = 0
    for k in group:
        i = i * size[k] + at[k]
    cut = layout.options.get("hpz") or layout.options.get("mics") or n
    flat = local.reshape(-1)
    flat = np.concatenate([flat, np.zeros(-flat.size % cut, flat.dtype)])
    return np.split(flat, cut)[i % cut]


def load_folder(folder):
    out = {}
    for file in sorted(os.listdir(folder)):
        if file.endswith(".safetensors"):
            out.update(read_safetensors(f"{folder}/{file}"))
    return out


def same(where, want, got):
    if list(want.shape) != list(got.shape):
        sys.exit(f"{where}: shape {list(got.shape)}, must be {list(want.shape)}")
    if want.tobytes() != got.tobytes():
        wrong = np.argwhere(want != got)
        sys.exit(f"{where}: {len(wrong)} elements differ, the first at {wrong[0].tolist()}")


def check(in_folder, text, out_folder):
    source = load_folder(in_folder)
    config = json.load(open(f"{in_folder}/config.json"))
    layout = Layout(text)
    tensors = 0
    if text == "full":
        got = load_folder(out_folder)
        if set(got) != set(source):
            sys.exit(f"names differ: {sorted(set(got) ^ set(source))[:10]}")
        for name, (dtype, array) in source.items():
            if got[name][0] != dtype:
                sys.exit(f"{name}: dtype {got[name][0]}, must be {dtype}")
            same(name, array, got[name][1])
            tensors += 1
        print(f"{tensors} tensors are equal")
        return
    world = layout.world()
    files = sorted(f for f in os.listdir(out_folder) if f.endswith(".safetensors"))
    if len(files) != world:
        sys.exit(f"{len(files)} safetensors files, must be {world}")
    for number, file in enumerate(files):
        rank = layout.options["base"] + number
        if int(re.search(r"rank-(\d+)", file).group(1)) != rank:
            sys.exit(f"{file}: must be rank {rank}")
        got = read_safetensors(f"{out_folder}/{file}")
        for name, (dtype, array) in source.items():
            want = shard(name, array, config, layout, number)
            if want is None:
                if name in got:
                    sys.exit(f"{file}: {name} is not of this rank")
                continue
            if name not in got:
                sys.exit(f"{file}: {name} is missing")
            if got[name][0] != dtype:
                sys.exit(f"{file}: {name}: dtype {got[name][0]}, must be {dtype}")
            same(f"{file}: {name}", want, got.pop(name)[1])
            tensors += 1
        if got:
            sys.exit(f"{file}: unexpected {sorted(got)[:5]}")
    print(f"{world} ranks, {tensors} shards are equal")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    maker = commands.add_parser("make")
    maker.add_argument("family", choices=sorted(CONFIGS))
    maker.add_argument("folder")
    maker.add_argument("--seed", type=int, default=1)
    maker.add_argument("--files", type=int, default=1)
    maker.add_argument("--dtype", default="BF16")
    checker = commands.add_parser("check")
    checker.add_argument("in_folder")
    checker.add_argument("layout")
    checker.add_argument("out_folder")
    args = parser.parse_args()
    if args.command == "make":
        make(args.family, args.folder, args.seed, args.files, args.dtype)
    else:
        check(args.in_folder, args.layout, args.out_folder)


if __name__ == "__main__":
    main()
