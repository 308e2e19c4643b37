"""What `benchmarks.encoders` times: a pretrained encoder of BERT's kind in each engine, from token ids to embeddings (mean, length 1).

An engine is a function of (folder, files, threads, fixed) that loads the model and gives a function from (ids (B, T), lengths (B,)) to the states of the
last layer (B, T, E); `fixed` is (B, T) where all batches have one shape. Ours is a SentenceEncoder, which makes embeddings itself. `files` is the folder
that `prepare` filled. Everything is float32.
"""

import functools
import os
import pathlib
import re

import numpy as np

FOLDER, FILES = "TRANSFORMER_C_BENCH_MODEL", "TRANSFORMER_C_BENCH_FILES"  # in the environment of the processes
SIZE = 32  # of a batch

# Lengths of the texts of a call, in tokens.
CASES = {
    "full": [128] * 32,
    "padded": [128] + [32] * 31,
    "one": [16],
    "mixed": [int(n) for n in np.random.default_rng(1).permutation(np.linspace(8, 256, 32).astype(int))],
    "sorted": [int(n) for n in np.random.default_rng(2).permutation(np.linspace(8, 256, 128).astype(int))],
}


def prepare(folder, files):
    """Writes the model in the formats of the other engines, where the packages that do it are installed; gives what failed."""
    files, failed = pathlib.Path(files), {}
    for name, make in {"model.onnx": _write_onnx, "ctranslate2": _write_ctranslate2}.items():
        try:
            make(str(folder), str(files / name))
        except ImportError as error:
            failed[name] = str(error)
    return failed


def _write_onnx(folder, path):
    """By torch.onnx, whose pattern of attention ONNX Runtime and OpenVINO know; without PyTorch by `export_onnx`."""
    try:
        import onnx  # noqa: F401 (torch.onnx needs it)
        import torch
        from transformers import AutoModel
    except ImportError:
        import transformer_c as tc

        tc.export_onnx(tc.models.load(folder), {"ids": np.ones((2, 7), int), "mask": np.ones((2, 7), int)}, path)
        return
    model = AutoModel.from_pretrained(folder, attn_implementation="eager").eval()

    class States(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.model = model

        def forward(self, ids, mask):
            return self.model(input_ids=ids, attention_mask=mask).last_hidden_state

    ones, axes = torch.ones(2, 7, dtype=torch.int64), {0: "batch", 1: "length"}
    torch.onnx.export(
        States(), (ones, ones), path, input_names=["ids", "mask"], output_names=["states"],
        dynamic_axes={"ids": axes, "mask": axes}, dynamo=False, opset_version=17,
    )  # fmt: skip


def _write_ctranslate2(folder, path):
    from ctranslate2.converters import TransformersConverter

    TransformersConverter(folder).convert(path, force=True)


# ---- the engines ----------------------------------------------------------------------------------------------------


def torch_eager(folder, files, threads, fixed):
    import torch
    from transformers import AutoModel

    torch.set_num_threads(threads)
    model = AutoModel.from_pretrained(folder, attn_implementation="sdpa").eval()
    return _with_torch(torch, lambda ids, mask: model(input_ids=ids, attention_mask=mask).last_hidden_state)


def torch_compile(folder, files, threads, fixed):
    import torch
    import torch._inductor.config
    from transformers import AutoModel

    torch.set_num_threads(threads)
    torch._inductor.config.freezing = True  # packs the weights once
    model = AutoModel.from_pretrained(folder, attn_implementation="sdpa").eval()
    compiled = torch.compile(model, dynamic=not fixed)
    return _with_torch(torch, lambda ids, mask: compiled(input_ids=ids, attention_mask=mask).last_hidden_state)


def _with_torch(torch, states):
    def run(ids, lengths):
        with torch.no_grad():
            return states(torch.from_numpy(ids), torch.from_numpy(_mask(ids, lengths))).numpy()

    return run


def onnxruntime(folder, files, threads, fixed):
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(os.path.join(files, "model.onnx"), options, providers=["CPUExecutionProvider"])
    return lambda ids, lengths: session.run(None, {"ids": ids, "mask": _mask(ids, lengths)})[0]


def openvino(folder, files, threads, fixed):
    import openvino

    core = openvino.Core()
    model = core.read_model(os.path.join(files, "model.onnx"))
    if fixed:
        model.reshape({"ids": list(fixed), "mask": list(fixed)})
    options = {"INFERENCE_NUM_THREADS": threads, "INFERENCE_PRECISION_HINT": "f32", "PERFORMANCE_HINT": "LATENCY"}
    compiled = core.compile_model(model, "CPU", options)
    return lambda ids, lengths: compiled([ids, _mask(ids, lengths)])[0]


def ctranslate2(folder, files, threads, fixed):
    import ctranslate2

    encoder = ctranslate2.Encoder(os.path.join(files, "ctranslate2"), compute_type="float32", inter_threads=1, intra_threads=threads)

    def run(ids, lengths):
        given = ctranslate2.StorageView.from_array(ids.astype(np.int32))
        return np.asarray(encoder.forward_batch(given, ctranslate2.StorageView.from_array(lengths.astype(np.int32))).last_hidden_state)

    return run


def times(engine, case):
    """Whether an engine takes part in a case: torch.compile does where all batches have one shape, as each new shape costs it minutes."""
    return engine != "torch.compile" or case not in ("mixed", "sorted")


def flops(config, case):
    """The least arithmetic of a case, of its real tokens alone: the products of the layers."""
    width, hidden, layers = config["hidden_size"], config["intermediate_size"], config["num_hidden_layers"]
    return sum(layers * length * (2 * width * (4 * width + 2 * hidden) + 4 * length * width) for length in CASES[case])


# Name in the table: (function, packages that it needs).
ENGINES = {
    "PyTorch": (torch_eager, ("torch", "transformers")),
    "torch.compile": (torch_compile, ("torch", "transformers")),
    "ONNX Runtime": (onnxruntime, ("onnxruntime",)),
    "OpenVINO": (openvino, ("openvino",)),
    "CTranslate2": (ctranslate2, ("ctranslate2", "transformers")),
}


# ---- the calls ------------------------------------------------------------------------------------------------------


def samples(case):
    """The ids of each text: [CLS], words, [SEP]."""
    draw = np.random.default_rng(0)
    return [np.array([101, *draw.integers(2000, 20000, length - 2), 102]) for length in CASES[case]]


def builder(engine, case):
    """Loads an engine and gives a call that makes the embeddings of the texts of a case, float32 (N, E), in their order."""
    threads = int(os.environ["TRANSFORMER_C_NUM_THREADS"])
    folder, files = os.environ[FOLDER], os.environ[FILES]
    texts = samples(case)
    if engine == "ours":
        return _ours(folder, texts)
    fixed = (len(texts), max(map(len, texts))) if case not in ("mixed", "sorted") else None
    states = ENGINES[engine][0](folder, files, threads, fixed)
    return functools.partial(_embeddings, states, texts)


def _ours(folder, texts):
    import transformer_c as tc

    encoder = tc.models.SentenceEncoder.from_pretrained(folder, pooling="mean", normalize=True)
    encoder.tokenizer = lambda numbers: [(texts[int(n)], np.zeros(len(texts[int(n)]), int)) for n in numbers]
    names = [str(i) for i in range(len(texts))]
    return lambda: encoder.encode(names, SIZE)


def _embeddings(states, texts):
    """As any user of such an engine does it: sorted by length, the longest first, padded batch by batch, the mean over the real tokens."""
    result, order = None, np.argsort([-len(text) for text in texts], kind="stable")
    for begin in range(0, len(texts), SIZE):
        rows = order[begin : begin + SIZE]
        lengths = np.array([len(texts[i]) for i in rows])
        ids = np.zeros((len(rows), lengths.max()), np.int64)
        for row, i in zip(ids, rows, strict=True):
            row[: len(texts[i])] = texts[i]
        found = states(ids, lengths)
        vectors = np.stack([each[:length].mean(0) for each, length in zip(found, lengths, strict=True)])
        if result is None:
            result = np.empty((len(texts), vectors.shape[1]), np.float32)
        result[rows] = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    return result


def peak():
    """The largest memory of this process so far, in bytes, with what it maps."""
    return 1024 * int(re.search(r"VmHWM:\s+(\d+)", pathlib.Path("/proc/self/status").read_text())[1])


def _mask(ids, lengths):
    return (np.arange(ids.shape[1]) < lengths[:, None]).astype(np.int64)


class _Encoders:
    """In the place of a harness.Workload: its contenders are the engines, their variants the cases, the same as lists, and the peak of memory."""

    name = "encoders"

    def variants(self, contender):
        made = functools.cache(lambda case: builder(contender, case))
        return {
            **{case: functools.partial(made, case) for case in CASES},
            **{f"list {case}": (lambda case=case: lambda: made(case)().tolist()) for case in CASES},
            "peak": lambda: peak,
        }


WORKLOADS = [_Encoders()]
