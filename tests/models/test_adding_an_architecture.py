"""An architecture is one file and its class in one list: a toy that is put there is loaded, saved, fine-tuned and read as any other."""

import ast
import inspect
import json
import re
from pathlib import Path

import folders
import numpy as np
import pytest
import test_packed
import test_same_bits
import transformer_c as tc
from toy_architecture import Toy
from transformer_c.models.architectures import ARCHITECTURES
from words import LABELS, LETTERS, SPECIAL, TEXTS, letters

ROOT = Path(__file__).parents[2]
PACKAGE, PAGE = ROOT / "python/transformer_c/models", (ROOT / "docs/models.md").read_text()
CONFIG = {"model_type": "toy", "words": 64, "narrow": 6, "wide": 16, "heads": 2, "hidden": 24, "depth": 2, "initializer_range": 0.3}
IDS = np.random.default_rng(0).integers(0, 64, (3, 9))


@pytest.fixture
def toy(monkeypatch):
    monkeypatch.setitem(ARCHITECTURES, "toy", Toy)


def create(task=None, **values):
    tc.manual_seed(1)
    return tc.models.create({**CONFIG, **values}, task=task)


def rewrite(folder, name="config.json", **values):
    path = folder / name
    old = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps({key: value for key, value in {**old, **values}.items() if value is not None}))


def test_before_it_is_in_the_list():
    with pytest.raises(tc.CheckpointError, match=r"model_type = 'toy'; expected one of albert, .*, xlm-roberta-xl$"):
        create()


def test_the_encoder(toy, tmp_path):
    model = create()
    assert type(model) is Toy and model.pooler is None
    alone = [model(row[None, :n])[0] for row, n in zip(IDS, (9, 1, 4), strict=True)]
    packed = model(IDS, lengths=np.array([9, 1, 4]))
    assert all(np.array_equal(own, row[: len(own)]) and not row[len(own) :].any() for own, row in zip(alone, packed, strict=True))
    assert not np.allclose(model(IDS[:, ::-1])[:, ::-1], model(IDS[:, [1, 0, *range(2, 9)]])[:, [1, 0, *range(2, 9)]])  # places matter
    tc.models.save(model, tmp_path)
    assert json.loads((tmp_path / "config.json").read_text())["architectures"] == ["ToyModel"]
    names = set(tc.load(tmp_path / "model.safetensors"))
    assert {"lookup.table.weight", "lookup.up.bias", "blocks.0.q.weight", "blocks.1.second.bias"} <= names and len(names) == 5 + 2 * 16
    expected = model(IDS)
    assert np.array_equal(tc.models.load(tmp_path)(IDS), expected)
    rewrite(tmp_path, words=None, wide=None, depth=None, hidden=None, narrow=None)  # which the weights show
    assert np.array_equal(tc.models.load(tmp_path)(IDS), expected)
    state = tc.convert.to_hf(model)
    assert set(state) == names and np.array_equal(tc.convert.from_hf(state, CONFIG)(IDS), expected)


@pytest.mark.parametrize("task", Toy.table.heads)
def test_heads(toy, tmp_path, task):
    model = create(task, num_labels=3)
    tc.models.save(model, tmp_path)
    names = set(tc.load(tmp_path / "model.safetensors"))
    head = {name for name in names if not name.startswith("toy.")}
    assert "toy.lookup.table.weight" in names and {name.split(".")[0] for name in head} == {"judge" if task.startswith("text") else "tags"}
    assert np.array_equal(tc.models.load(tmp_path, task=task)(IDS), model(IDS))
    assert np.array_equal(tc.models.load(tmp_path)(IDS), model.encoder(IDS))  # the head's arrays are no mistake
    rewrite(tmp_path, architectures=["ToyForMaskedLM"])
    other = next(name for name in Toy.table.heads if name != task)
    with pytest.warns(RuntimeWarning, match="the head has new ones"):
        tc.models.load(tmp_path, task=other)


def test_refusals(toy):
    state = tc.convert.to_hf(create())
    for message, config, arrays in (
        ("Toy does not know: 'lookup.more'$", CONFIG, {**state, "lookup.more": tc.ones(2)}),
        ("Toy does not know: 'lm_head.bias'$", CONFIG, {**state, "lm_head.bias": tc.ones(2)}),
        (r"words = 63 but 'lookup.table.weight' has shape \(64, 6\)", {**CONFIG, "words": 63}, state),
        ("depth = 3; the weights have 2 layers", {**CONFIG, "depth": 3}, state),
        ("wide = 16, which is no multiple of heads = 3", {**CONFIG, "heads": 3}, state),
        ("is_decoder", {**CONFIG, "is_decoder": True}, state),
    ):
        with pytest.raises(tc.CheckpointError, match=message):
            tc.convert.from_hf(arrays, config)
    with pytest.raises(ValueError, match="for toy there are 'text-classification', 'token-classification', or None"):
        create("fill-mask")
    with pytest.raises(tc.CheckpointError, match=", xlm-roberta-xl, toy$"):
        tc.models.create({"model_type": "t6"})


def test_texts(toy, tmp_path):
    pytest.importorskip("tokenizers")
    tc.models.save(create(), tmp_path)
    (tmp_path / "vocab.txt").write_text("\n".join([*SPECIAL, *LETTERS, *(f"##{letter}" for letter in LETTERS)]) + "\n")
    rewrite(tmp_path, "sentence_toy_config.json", max_seq_length=9, do_lower_case=True)
    encoder = tc.models.SentenceEncoder.from_pretrained(tmp_path)
    assert repr(encoder) == "SentenceEncoder(Toy, pooling=mean, normalize=False, max_length=9)" and encoder.lowercase
    assert encoder.encode(TEXTS).shape == (7, 16)
    assert encoder.tokenizer(["a b"])[0][0].tolist() == [2, 4, 5, 3]
    classifier = tc.models.TextClassifier(tmp_path, epochs=2, random_state=0).fit(TEXTS, LABELS)
    classifier.save(tmp_path / "saved")
    assert np.array_equal(tc.models.TextClassifier(tmp_path / "saved").predict_proba(TEXTS), classifier.predict_proba(TEXTS))
    own = tc.models.SentenceEncoder(create(), letters)
    assert own.fit([("a", "b"), ("c", "d")], random_state=0).history


def test_the_tests_of_packed_sequences_and_equal_bits_take_it_up(toy, monkeypatch, isa):
    """They find it in the list, and the sizes of a small one by its names."""
    for size, name in {"words": "words", "width": "wide", "heads": "heads", "hidden": "hidden", "layers": "depth"}.items():
        monkeypatch.setitem(folders.SIZES, size, (*folders.SIZES[size], name))
    assert [task for kind, task in folders.text_tasks() if kind == "toy"] == [None, *Toy.table.heads]
    for task in (None, *Toy.table.heads):
        test_packed.test_rows_that_are_computed("toy", task, "lengths")
        test_packed.test_results_and_gradients_are_those_of_each_text("toy", task)
    test_packed.test_padding_in_front("toy")
    test_packed.test_texts_without_tokens("toy")
    test_packed.test_every_dropout_is_called_with_its_rate("toy", monkeypatch)
    threads = tc.get_num_threads()
    try:
        test_same_bits.test_texts("toy", test_same_bits.WIDTHS[0], "float32", isa, tc.set_num_threads)
        test_same_bits.test_long_texts_of_wide_models("toy", isa, tc.set_num_threads)
    finally:
        tc.set_num_threads(threads)


# ---- the package and the page ----------------------------------------------------------------------------------------------------


def test_no_other_file_knows_the_architectures():
    """Outside of their own files and the list, no string in the code is the name of one, or of an array of a head that one has."""
    own = {Path(inspect.getfile(kind)).name for kind in ARCHITECTURES.values()} | {"architectures.py"}
    names = {name for kind in ARCHITECTURES.values() for name in (kind.table.name, kind.table.prefix, kind.table.model_type)}
    names.remove("model")  # ModernBERT's prefix, and a word of its own
    arrays = {
        part
        for kind in ARCHITECTURES.values()
        for head in kind.table.heads.values()
        for part in head.values()
        if "." in part or "_" in part
    }
    found = []
    for path in PACKAGE.glob("*.py"):
        if path.name not in own:
            tree = ast.parse(path.read_text())
            documented = (ast.Module, ast.ClassDef, ast.FunctionDef)
            docs = {
                id(node.body[0].value) for node in ast.walk(tree) if isinstance(node, documented) and isinstance(node.body[0], ast.Expr)
            }
            for node in ast.walk(tree):
                if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docs and node.value in names | arrays:
                    found.append(f"{path.name}:{node.lineno}: {node.value!r}")
    assert not found


def test_the_page_has_a_row_for_each():
    table = re.search(r"\| `model_type` \|.*?\n\n", PAGE, re.S)[0]
    rows = set(re.findall(r"`([\w-]+)`", "".join(re.findall(r"^\|([^|]*)\|", table, re.M))))
    assert sorted(rows ^ {"model_type", *ARCHITECTURES}) == [], "in the first table of docs/models.md or in ARCHITECTURES, but not in both"


def test_the_steps_of_the_page():
    """Their files exist; the class and the table have the members that are named, and no others."""
    section = PAGE[PAGE.index("## Adding an architecture") :].partition("\n## ")[0]
    steps = re.findall(r"^\| \d+ \| `([^`]+)`", section, re.M)
    assert len(steps) >= 5 and all((ROOT / step.replace("<name>", "bert")).exists() for step in steps)
    members = set(re.findall(r"^\| `(\w+)` \|", section, re.M))
    own = {name for name in vars(Toy) if not name.startswith("__")}
    assert members == set(Toy.table.__dataclass_fields__) | own | {
        "places",
        "check_shapes",
        "widen",
        "finish",
        "in_order",
        "tie_word_embeddings",
    }
