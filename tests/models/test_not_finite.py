"""Models whose numbers overflow, or that were damaged: an error, not the class or the vector that NaN happens to be."""

import numpy as np
import pytest
import transformer_c as tc
from folders import CONFIG
from transformer_c import cli
from words import letters, tagged, write_tokenizer

TEXTS = ["abc", "z"]
SAID = "gives (nan|inf|-inf) for text number {}: its weights are damaged, or numbers are too large for {}"


def overflowing(task, labels=3):
    """A model whose numbers are finite in float32, and too large for float16."""
    tc.manual_seed(1)
    model = tc.models.create({**CONFIG, "initializer_range": 0.3, "num_labels": labels}, task=task)
    layer = model.out if task else model.layers[-1].norm2
    layer.weight.data *= 1e6
    return model


def readers():
    """Each class that reads texts with such a model, and what it is asked for."""
    models = tc.models
    pairs = [(text, text) for text in TEXTS]
    yield overflowing(None), lambda model: models.SentenceEncoder(model, letters).encode(TEXTS, 1)
    yield overflowing("text-classification", 1), lambda model: models.CrossEncoder(model, letters_of_pairs).predict(pairs)
    for labels in (1, 3):
        yield overflowing("text-classification", labels), lambda model: models.TextClassifier(model, tokenizer=letters).predict(TEXTS)
    yield overflowing("token-classification"), lambda model: models.TokenClassifier(model, tokenizer=tagged).predict([["abc"], ["z"]])


def letters_of_pairs(pairs):
    return letters(["".join(both) for both in pairs])


@pytest.mark.parametrize("number", range(5))
def test_what_reads_texts(number):
    model, asked = list(readers())[number]
    assert len(asked(model)) == 2
    with pytest.raises(ValueError, match=SAID.format(0, "float16; dtype='float32' has a larger range")):
        asked(model.to(dtype="float16"))
    model.to(dtype="float32").get_parameter("out.bias" if hasattr(model, "out") else "layers.1.norm2.bias").data[0] = np.nan
    with pytest.raises(ValueError, match=SAID.format(0, "float32$")):
        asked(model)


def test_the_validation_of_a_fit():
    """Weights that are not finite any more after the last step of an epoch."""
    classifier = tc.models.TextClassifier(
        overflowing(None), tokenizer=letters, epochs=1, learning_rate=1e38, max_norm=0, warmup=0, batch_size=2
    )
    before = vars(classifier).copy()
    with pytest.raises(ValueError, match="the loss is (nan|inf) in epoch 1: the training diverged"):
        classifier.fit(TEXTS, [0, 1], validation=(TEXTS, [0, 1]))
    assert vars(classifier) == before


def test_lines_are_json(tmp_path, capsys):
    """In which there is no NaN."""
    pytest.importorskip("tokenizers")
    (tmp_path / "texts").write_text("abc\nz\n")
    for command, task in (("embed", None), ("classify", "text-classification"), ("classify", "token-classification")):
        folder = tmp_path / str(task)
        tc.models.save(overflowing(task), folder)
        write_tokenizer(folder)
        assert cli.main([command, str(folder), str(tmp_path / "texts"), "--dtype", "float16", "--no-progress"]) == 1
        out, err = capsys.readouterr()
        assert out == "" and "for text number 0: its weights are damaged, or numbers are too large for float16" in err
