"""Attacks on folders of models: files changed at random, in each layout and for each reader. Each is refused in clear words, or loaded."""

import json
import os
import random
import re
import struct
import sys
import sysconfig
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch_files
import transformer_c as tc
from folders import CONFIG, coded_folder, decoder_folder, language_folder, marian_files, sentence_folder, sizes
from test_siglip import pieces_in
from test_vocabularies import write as write_vocabulary
from words import letters, write_tokenizer

os.environ["RUST_BACKTRACE"] = "0"  # which tokenizers takes long to print
SECONDS = 5  # of the processor, for a folder of some kB; each takes some milliseconds
MEMORY = 300 << 20  # bytes by which the process may grow, over all attacks

VALUES = [
    None,
    True,
    -1,
    0,
    1,
    3,
    2**31 - 1,
    2**31,
    10**30,
    1e308,
    -0.5,
    "",
    "x",
    "../x",
    [],
    [1],
    {},
    {"a": []},
    "relative_key",
    "bert",
    "gelu",
    ["\0"],
]


KEYS = [  # that config.json may have
    "architectures", "id2label", "num_labels", "problem_type", "labels_are_integers", "is_decoder", "quantization_config", "pruned_heads",
    "tie_word_embeddings", "classifier_dropout", "hidden_act", "pad_token_id", "dtype", "model_type", "max_position_embeddings", "type_vocab_size",
    "layer_norm_eps", "image_size", "num_channels", "qkv_bias", "sentence_transformers", "prompts", "model_max_length", "max_seq_length",
]  # fmt: skip


def changed_json(draw, text):
    """JSON with one value replaced, dropped or put in somewhere."""
    value = json.loads(text)
    if isinstance(value, dict) and draw.random() < 0.2:
        return json.dumps({**value, draw.choice(KEYS): draw.choice(VALUES)}).encode()
    place = value
    while isinstance(place, (dict, list)) and place:
        key = draw.choice(list(place) if isinstance(place, dict) else range(len(place)))
        inner = place[key]
        if not isinstance(inner, (dict, list)) or not inner or draw.random() < 0.2:
            if draw.random() < 0.2:
                del place[key]
            else:
                place[key] = draw.choice(VALUES)
            break
        place = inner
    return json.dumps(value).encode()


def changed_bytes(draw, data):
    """Bytes flipped, cut off, doubled or put in."""
    data = bytearray(data)
    for _ in range(draw.choice((1, 1, 3))):
        at = draw.randrange(len(data)) if data else 0
        match draw.randrange(5):
            case 0:
                del data[at:]
            case 1:
                data[at : at + 1] = draw.randbytes(draw.choice((0, 1, 1, 8)))
            case 2:
                data[at : at + 8] = struct.pack("<Q", draw.choice((0, 1, 2**31, 2**63, 2**64 - 1)))
            case 3:
                data += data[at : at + 100]
            case _ if data:
                data[at % len(data)] ^= 1 << draw.randrange(8)
    return bytes(data)


def changed_safetensors(draw, data):
    """A safetensors file with its header changed, or its bytes."""
    if draw.random() < 0.5:
        return changed_bytes(draw, data[: 8 + draw.choice((40, 400, 10**6))] if draw.random() < 0.3 else data)
    length = int.from_bytes(data[:8], "little")
    header = changed_json(draw, data[8 : 8 + length])
    return struct.pack("<Q", len(header)) + header + data[8 + length :]


# ---- targets ----------------------------------------------------------------------------------------------------------------


class Target(NamedTuple):
    """A folder that is written, what reads it, and what is done with what that gives."""

    write: Callable[[Any], None]
    read: Callable[[Any], Any]
    use: Callable[[Any], Any]


def create(kind, task=None, labels=0, **values):
    tc.manual_seed(2)
    names = {"id2label": {str(i): str(i) for i in range(labels)}} if labels else {}
    return tc.models.create(
        {
            **CONFIG,
            **sizes(width=16, layers=2, heads=2, hidden=24),
            "image_size": 8,
            "patch_size": 4,
            "model_type": kind,
            "initializer_range": 0.3,
            **names,
            **values,
        },
        task=task,
    )


def written(kind, task=None, labels=0, **values):
    def write(folder):
        tc.models.save(create(kind, task, labels, **values), folder)
        if kind != "vit":
            write_tokenizer(folder)

    return write


def sharded(folder):
    arrays = {name: value.numpy() for name, value in tc.convert.to_hf(create("bert")).items()}
    files = {name: f"model-0000{1 + i % 2}-of-00002.safetensors" for i, name in enumerate(arrays)}
    for file in set(files.values()):
        tc.save({name: arrays[name] for name in arrays if files[name] == file}, folder / file)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": files}))
    (folder / "config.json").write_text(json.dumps({**CONFIG, "model_type": "bert"}))


def of_torch(folder):
    t, arrays = torch_files, {name: value.numpy() for name, value in tc.convert.to_hf(create("bert")).items()}
    numbers = {name: str(i) for i, name in enumerate(arrays)}

    def described(name):
        shape = arrays[name].shape
        strides = [stride // 4 for stride in arrays[name].strides]
        return t.tensor(shape, strides, 0, t.storage(numbers[name], count=arrays[name].size))

    data = t.checkpoint(
        t.mapping(**{name: described(name) for name in arrays}), data={number: arrays[name].tobytes() for name, number in numbers.items()}
    )
    (folder / "pytorch_model.bin").write_bytes(data)
    (folder / "config.json").write_text(json.dumps({**CONFIG, "model_type": "bert"}))


def with_dense(folder):
    sentence_folder(folder)
    encoder = tc.models.SentenceEncoder(
        tc.models.load(folder), letters, ("cls", "max"), True, dense=[tc.models.Dense(32, 8), tc.models.Dense(8, 3)]
    )
    encoder.save(folder)


def with_vocabulary(kind):
    """A folder without tokenizer.json."""

    def write(folder):
        write_vocabulary(folder, kind)
        tc.models.save(create(kind, "text-classification", 3), folder)

    return write


def encode(encoder):
    return encoder.encode(["abc", "z"])


def states(model):
    return model(np.array([[1, 2, 3]]) % min(4, (model if hasattr(model, "words") else model.encoder).words.num_embeddings))


PAIR = {  # sizes of an encoder-decoder
    **{"d_model": 16, "d_kv": 8, "d_ff": 24, "num_layers": 2, "num_heads": 2, "encoder_layers": 1, "decoder_layers": 2},
    **{f"{side}_{name}": value for side in ("encoder", "decoder") for name, value in (("attention_heads", 2), ("ffn_dim", 24))},
    **{"decoder_start_token_id": 0, "pad_token_id": 0, "eos_token_id": 1, "hidden_act": None},
}


def paired(kind):
    def write(folder):
        written(kind, "text2text-generation", **PAIR)(folder)
        (folder / "generation_config.json").write_text(
            json.dumps({"num_beams": 2, "max_length": 4, "forced_eos_token_id": 1, "min_length": 1})
        )

    return write


def marian(folder):
    words = marian_files(folder, special_tokens_map={"unk_token": "<unk>", "eos_token": "</s>", "pad_token": {"content": "<pad>"}})
    last = {"pad_token_id": len(words) - 1, "decoder_start_token_id": len(words) - 1, "eos_token_id": 0}
    tc.models.save(create("marian", "text2text-generation", **{**PAIR, **last, "vocab_size": len(words)}), folder)


def coded(folder):
    coded_folder(folder, added_tokens_decoder={"1": {"content": "<pad>"}}, src_lang="de", language_codes="m2m100", num_madeup_words=8)


def speaking(folder):
    values = {**PAIR, "num_mel_bins": 4, "max_source_positions": 50, "max_target_positions": 12}
    written("whisper", "automatic-speech-recognition", **values)(folder)
    tokens = {"suppress_tokens": [1], "begin_suppress_tokens": [2], "lang_to_id": {"<|en|>": 3}, "task_to_id": {"translate": 4}}
    more = {
        "forced_decoder_ids": [[1, None], [2, 4]],
        "no_timestamps_token_id": 9,
        "max_initial_timestamp_index": 5,
        "is_multilingual": True,
        **{
            "alignment_heads": [[0, 1], [1, 0]],
            "prev_sot_token_id": 5,
            "compression_ratio_threshold": 0.5,
            "logprob_threshold": -1.0,
            "no_speech_threshold": 0.01,
        },
    }
    (folder / "generation_config.json").write_text(json.dumps({**tokens, **more, "max_length": 8, "eos_token_id": 1}))
    sizes = {"feature_size": 4, "chunk_length": 1, "hop_length": 160, "n_fft": 400, "sampling_rate": 16000, "dither": 0.0}
    (folder / "preprocessor_config.json").write_text(json.dumps(sizes))


PHOTOS = [np.arange(12 * width * 3, dtype=np.uint8).reshape(12, width, 3) for width in (9, 40)]


def photos(folder):
    written("vit", "image-classification", 3)(folder)
    values = {
        "size": {"shortest_edge": 9},
        "do_center_crop": True,
        "crop_size": {"height": 8, "width": 8},
        "resample": 3,
        "do_resize": True,
    }
    more = {"image_mean": [0.5, 0.4, 0.3], "image_std": [0.2, 0.2, 0.3], "do_normalize": True, "rescale_factor": 0.004, "do_rescale": True}
    (folder / "preprocessor_config.json").write_text(json.dumps({**values, **more, "image_processor_type": "ViTImageProcessor"}))


def of_images_and_texts(folder):
    side = {name: CONFIG[name] for name in ("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size")}
    text = {**side, "vocab_size": 64, "max_position_embeddings": 40, "eos_token_id": 3}
    written("clip", text_config=text, vision_config={**side, "image_size": 8, "patch_size": 4}, projection_dim=6)(folder)
    values = {"size": {"shortest_edge": 8}, "crop_size": 8, "image_processor_type": "CLIPImageProcessor", "do_convert_rgb": True}
    (folder / "preprocessor_config.json").write_text(json.dumps(values))


def described(folder):
    side = {name: CONFIG[name] for name in ("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size")}
    text = {**side, "vocab_size": 64, "max_position_embeddings": 40, "projection_size": 16, "pad_token_id": 1}
    vision = {**side, "image_size": 8, "patch_size": 4, "vision_use_head": True}
    tc.models.save(create("siglip", text_config=text, vision_config=vision), folder)
    pieces_in(folder, pad_token="</s>", padding_side="right", model_input_names=["input_ids", "attention_mask"], do_lower_case=True)
    values = {"size": {"height": 8, "width": 8}, "image_processor_type": "SiglipImageProcessor"}
    (folder / "preprocessor_config.json").write_text(json.dumps(values))


def chats(folder):
    template = "{% for m in messages %}{{ m.role }}: {{ m.content | trim }}{% if loop.last %}{{ eos_token }}{% endif %}{% endfor %}"
    decoder_folder(folder, tokenizer_config={"eos_token": {"content": "<|endoftext|>"}, "chat_template": "{{ messages[0].content }}"})
    (folder / "chat_template.jinja").write_text(template)


def write_texts(generator):
    return generator.generate(["abc", "z"], max_new_tokens=3)  # a folder may ask for more than there is time for


def classify(classifier):
    return (
        None if classifier.model_ is None else classifier.predict([["abc", "z"]] if "Token" in type(classifier).__name__ else ["abc", "z"])
    )


M = tc.models
TARGETS = {
    "SentenceEncoder": Target(sentence_folder, M.SentenceEncoder.from_pretrained, encode),
    "Dense": Target(with_dense, M.SentenceEncoder.from_pretrained, encode),
    "vocab.txt": Target(with_vocabulary("bert"), M.TextClassifier, classify),
    "vocab.json": Target(with_vocabulary("roberta"), M.TextClassifier, classify),
    "CrossEncoder": Target(
        written("roberta", "text-classification", 1, sentence_transformers={"activation_fn": "torch.nn.modules.linear.Identity"}),
        M.CrossEncoder.from_pretrained,
        lambda encoder: encoder.predict([("a", "b")]),
    ),
    "TextClassifier": Target(written("distilbert", "text-classification", 3, labels_are_integers=True), M.TextClassifier, classify),
    "TokenClassifier": Target(written("mpnet", "token-classification", 3), M.TokenClassifier, classify),
    "fill-mask": Target(written("bert", "fill-mask"), lambda folder: M.load(folder, task="fill-mask"), states),
    "images": Target(
        written("vit", "image-classification", 3),
        lambda folder: M.load(folder, task="image-classification"),
        lambda model: model(np.zeros((1, model.encoder.channels, *model.encoder.size), np.float32)),
    ),
    "ImageClassifier": Target(
        photos, M.ImageClassifier, lambda classifier: None if classifier.model_ is None else classifier.predict(PHOTOS)
    ),
    "clip": Target(of_images_and_texts, M.ImageTextEncoder.from_pretrained, lambda encoder: encoder.predict(PHOTOS, ["abc", "z"])),
    "siglip": Target(described, M.ImageTextEncoder.from_pretrained, lambda encoder: encoder.predict(PHOTOS, ["a dog", "z"])),
    "t5": Target(paired("t5"), M.Text2TextGenerator.from_pretrained, write_texts),
    "bart": Target(paired("bart"), M.Text2TextGenerator.from_pretrained, write_texts),
    "marian": Target(marian, M.Text2TextGenerator.from_pretrained, write_texts),
    "whisper": Target(
        speaking,
        M.SpeechRecognizer.from_pretrained,
        lambda recognizer: recognizer.transcribe(
            np.sin(np.arange(20000) / 9), timestamps="word", max_new_tokens=3, temperature=(0, 1), logprob_threshold=-1.0, rng=0
        ),
    ),
    "language pieces": Target(coded, M.Text2TextGenerator.from_pretrained, write_texts),
    "languages": Target(language_folder, M.Text2TextGenerator.from_pretrained, write_texts),
    "chats": Target(chats, M.TextGenerator.from_pretrained, lambda generator: generator.generate([{"role": "he", "content": "a"}], 3)),
    "shards": Target(sharded, M.load, states),
    "pytorch_model.bin": Target(of_torch, M.load, states),
}
PACKAGES = {
    **dict.fromkeys(TARGETS, "tokenizers"),
    "clip": "tokenizers PIL",
    **dict.fromkeys(("fill-mask", "images", "shards", "pytorch_model.bin")),
    **dict.fromkeys(("marian", "language pieces"), "sentencepiece"),
    "siglip": "sentencepiece PIL",
    "ImageClassifier": "PIL",
    "chats": "tokenizers jinja2",
}


# ---- attacks ----------------------------------------------------------------------------------------------------------------

_EVENTS: list[tuple[str, str]] | None = None  # of Python's, while a folder is read
_CALLS = (
    "os.system",
    "os.exec",
    "os.fork",
    "os.posix_spawn",
    "os.spawn",
    "subprocess.Popen",
    "socket.connect",
    "exec",
    "os.remove",
    "os.rename",
)
_OWN = tuple({os.path.realpath(path) for path in (*sysconfig.get_paths().values(), os.path.dirname(tc.__file__), "/proc", "/sys")})


def _watch(event, arguments):
    if _EVENTS is not None and event in (*_CALLS, "open", "ctypes.dlopen"):
        _EVENTS.append((event, str(arguments[0]) if arguments else ""))


sys.addaudithook(_watch)


def changed(draw, path):
    """Changes a file at random."""
    data = path.read_bytes()
    match draw.random():
        case chance if chance < 0.03:
            path.unlink()
        case chance if chance < 0.05:
            path.unlink()
            path.mkdir()
        case chance if chance < 0.06:
            path.unlink()
            os.mkfifo(path)
        case chance if chance < 0.07:
            path.unlink()
            path.symlink_to(draw.choice(("/dev/zero", "/dev/null", "nowhere", path.name, "/")))
        case _:
            is_json = path.suffix == ".json" and draw.random() < 0.75
            change = changed_safetensors if path.suffix == ".safetensors" else changed_json if is_json else changed_bytes
            torch_files.overwrite(path, change(draw, data))


def restore(folder, names, originals):
    for name in names:
        path = folder / name
        if path.is_dir() and not path.is_symlink():
            path.rmdir()
        elif not path.is_file() or path.is_symlink():
            path.unlink(missing_ok=True)
        torch_files.overwrite(path, originals[name])


def peak():
    """The most memory that the process has had since this was asked last."""
    with open("/proc/self/status") as file:
        found = 1024 * int(re.search(r"VmHWM:\s+(\d+)", file.read())[1])
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")
    return found


def attack(draw, folder, originals, target):
    """Changes some files of a folder, reads it, and puts the files back: whether it was refused."""
    global _EVENTS
    names = draw.sample(sorted(originals), min(len(originals), draw.choice((1, 1, 2, 3))))
    for name in names:
        changed(draw, folder / name)
    _EVENTS = []
    try:
        try:
            read = target.read(folder)
        except (ValueError, OSError) as error:  # CheckpointError among them
            said = str(error)
            assert str(folder) in said or any(os.path.basename(name) in said for name in originals), f"no file is named: {said}"
            assert len(said) < 1500, said
            return True
        try:
            target.use(read)
        except ValueError:  # such as numbers of tokens that the model has no embeddings for
            return True
        return False
    finally:
        events, _EVENTS = _EVENTS, None
        own = (str(folder), os.path.realpath(folder), *_OWN)
        events = [(event, what) for event, what in events if event != "exec" or 'file "<template>"' not in what]  # of jinja2's sandbox
        strange = [(event, what) for event, what in events if event != "open" or not what.startswith(own) or ".." in what]
        assert not strange, strange
        restore(folder, names, originals)


def attacked(folder, target, count, seed):
    """Attacks a folder `count` times: how many attacks were refused. Anything but a clear error fails, and so does much time or memory."""
    TARGETS[target].write(folder)
    originals = {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    TARGETS[target].use(TARGETS[target].read(folder))
    draw, refused = random.Random(f"{target} {seed}"), 0
    peak()
    before = peak()
    for i in range(count):
        start = time.process_time()
        try:
            refused += attack(draw, folder, originals, TARGETS[target])
        except BaseException as error:
            raise AssertionError(f"attack {i} of seed {seed} on {target}") from error
        assert time.process_time() - start < SECONDS, f"attack {i} of seed {seed} on {target}"
    assert peak() - before < MEMORY
    return refused
