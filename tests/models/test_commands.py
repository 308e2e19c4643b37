"""`embed` and `classify`: lines in and out, files, Ctrl-C."""

import io
import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import transformer_c as tc
from command_line import command, started
from folders import CONFIG, sentence_folder
from transformer_c import cli
from transformer_c.cli import lines
from words import write_tokenizer

pytest.importorskip("tokenizers")
TEXTS = ["abc", "hello world", "", "z", "größe", "hello"] * 7


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Folders with a model for embeddings, texts, words, and nothing."""
    top = tmp_path_factory.mktemp("models")
    found = {"embeddings": sentence_folder(top)}
    for name, task in (("text", "text-classification"), ("token", "token-classification"), ("plain", None)):
        found[name] = top / name
        tc.manual_seed(1)
        values = {**CONFIG, "initializer_range": 0.3, "id2label": {"0": "no", "1": "yes", "2": "?"}}
        tc.models.save(tc.models.create(values, task=task), found[name])
        write_tokenizer(found[name])
    return found


@pytest.fixture
def run(monkeypatch, capsysbinary):
    """A command within this process: its status, its lines of JSON, standard error."""

    def call(*arguments, given=""):
        given = given if isinstance(given, bytes) else given.encode()
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(given)))
        status = cli.main([str(argument) for argument in arguments])
        out, err = capsysbinary.readouterr()
        return status, [json.loads(line) if line.startswith((b"{", b"[")) else line.decode() for line in out.splitlines()], err.decode()

    return call


def test_embed(folders, run, tmp_path):
    encoder = tc.models.SentenceEncoder.from_pretrained(folders["embeddings"])
    expected = encoder.encode(TEXTS)
    status, found, err = run("embed", folders["embeddings"], "--batch-size", 2, given="\n".join(TEXTS))
    assert status == 0 and "embed: 42 texts" in err.replace("\r", "\n")
    assert [line["text"] for line in found] == TEXTS
    assert np.array_equal(np.array([line["embedding"] for line in found], np.float32), expected)  # every bit, in the fewest digits
    (tmp_path / "a.txt").write_bytes("\ufeff".encode() + "\r\n".join(TEXTS[:3]).encode() + b"\r\n")
    (tmp_path / "b.jsonl").write_text("".join(json.dumps(text) + "\n" for text in TEXTS[3:]))
    output = tmp_path / "x.npy"
    status, found, err = run("embed", folders["embeddings"], tmp_path / "a.txt", tmp_path / "b.jsonl", "--output", output, "--no-progress")
    assert (status, found, err) == (0, [f"{output}: 42 texts"], "") and np.array_equal(np.load(output), expected)
    options = ["--prompt-name", "query", "--pooling", "cls", "--max-length", 9, "--dtype", "float64", "--json", "--field", "body"]
    _, found, _ = run("embed", folders["embeddings"], *options, given='{"id": 7, "body": "hello world"}\n')
    other = tc.models.SentenceEncoder.from_pretrained(folders["embeddings"], pooling="cls", max_length=9, dtype="float64")
    vector = other.encode("hello world", prompt_name="query")
    assert found[0].keys() == {"id", "body", "embedding"} and np.array_equal(np.float32(found[0]["embedding"]), vector)
    assert run("embed", folders["embeddings"])[:2] == (0, [])
    assert run("embed", folders["embeddings"], "--output", "-", given="abc")[:2] == run("embed", folders["embeddings"], given="abc")[:2]


def test_other_fields_are_kept_as_they_are(folders, run):
    status, (line,), _ = run("classify", folders["text"], "--json", given='{"text": "abc", "of": "\\ud800"}')
    assert status == 0 and line["of"] == "\ud800" and line["label"] in ("no", "yes", "?")


def test_classify(folders, run, tmp_path):
    classifier = tc.models.TextClassifier(folders["text"])
    odds = classifier.predict_proba(TEXTS).astype(np.float32)
    status, found, _ = run("classify", folders["text"], "--all", given="\n".join(TEXTS))
    assert status == 0 and [line["label"] for line in found] == classifier.predict(TEXTS).tolist()
    assert [line["score"] for line in found] == [line["scores"][line["label"]] for line in found]
    assert np.array_equal(np.float32([[line["scores"][name] for name in ("no", "yes", "?")] for line in found]), odds)
    _, (line,), _ = run("classify", folders["text"], "--json", given='["abc", "z"]')
    assert line.keys() == {"text", "label", "score"} and line["text"] == ["abc", "z"]
    assert np.float32(line["score"]) == np.float32(classifier.predict_proba([("abc", "z")]).max())
    output = tmp_path / "x.jsonl"
    assert run("classify", folders["text"], "--output", output, given="\n".join(TEXTS))[1] == [f"{output}: 42 texts"]
    assert [json.loads(text)["label"] for text in output.read_text().splitlines()] == [line["label"] for line in found]
    run("classify", folders["text"], "--output", tmp_path / "x.npy", given="\n".join(TEXTS))
    assert np.array_equal(np.load(tmp_path / "x.npy"), odds)


def test_classify_words(folders, run):
    tagger = tc.models.TokenClassifier(folders["token"])
    status, found, _ = run("classify", folders["token"], given="ab cde\nz")
    assert status == 0 and [line["words"] for line in found] == [["ab", "cde"], ["z"]]
    assert [line["labels"] for line in found] == tagger.predict([["ab", "cde"], ["z"]])
    _, (line,), _ = run("classify", folders["token"], "--json", "--field", "words", given='{"words": ["ab", "c"], "id": 1}')
    assert line.keys() == {"words", "id", "labels", "scores"} and len(line["scores"]) == 2


def test_classify_every_word(folders, run):
    """A word without tokens and an empty line end nothing."""
    status, found, _ = run("classify", folders["token"], "--json", given='["ab", "", "c"]\n[]\n""\n[""]\n"z"')
    assert status == 0 and [line["words"] for line in found] == [["ab", "", "c"], [], [], [""], ["z"]]
    assert [[label is None for label in line["labels"]] for line in found] == [[False, True, False], [], [], [True], [False]]
    assert [[score is None for score in line["scores"]] for line in found] == [[False, True, False], [], [], [True], [False]]
    assert run("classify", folders["token"], given="\nab\n\n")[1][0] == {"words": [], "labels": [], "scores": []}


@pytest.fixture(scope="module")
def problems(tmp_path_factory):
    """Folders with models for several labels, for a number, and for three."""
    found = {}
    for name, values in {
        "several": {"problem_type": "multi_label_classification", "id2label": {"0": "joy", "1": "fear", "2": "hope"}},
        "number": {"problem_type": "regression", "id2label": {"0": "LABEL_0"}},
        "numbers": {"problem_type": "regression", "id2label": {"0": "length", "1": "width", "2": "height"}},
    }.items():
        found[name] = tmp_path_factory.mktemp(name)
        tc.manual_seed(3)
        tc.models.save(tc.models.create({**CONFIG, "initializer_range": 0.5, **values}, task="text-classification"), found[name])
        write_tokenizer(found[name])
    return found


def test_classify_several_labels(problems, run, tmp_path):
    classifier = tc.models.TextClassifier(problems["several"])
    odds, chosen = classifier.predict_proba(TEXTS).astype(np.float32), classifier.predict(TEXTS)
    assert 0 < chosen.mean() < 1
    _, found, _ = run("classify", problems["several"], given="\n".join(TEXTS))
    names = np.array(["joy", "fear", "hope"])
    assert [line["labels"] for line in found] == [names[row == 1].tolist() for row in chosen]
    assert [line["scores"] for line in found] == [
        {n: float(str(p)) for n, p, c in zip(names, *both, strict=True) if c} for both in zip(odds, chosen, strict=True)
    ]
    _, found, _ = run("classify", problems["several"], "--all", given="\n".join(TEXTS))
    assert np.array_equal(np.float32([[line["scores"][name] for name in names] for line in found]), odds)
    run("classify", problems["several"], "--output", tmp_path / "x.npy", given="\n".join(TEXTS))
    assert np.array_equal(np.load(tmp_path / "x.npy"), odds)


def test_classify_numbers(problems, run, tmp_path):
    expected = tc.models.TextClassifier(problems["number"]).predict(TEXTS).astype(np.float32)
    for options in ([], ["--all"]):
        _, found, _ = run("classify", problems["number"], *options, given="\n".join(TEXTS))
        assert [line.keys() for line in found] == [{"text", "value"}] * len(TEXTS)
        assert np.array_equal(np.float32([line["value"] for line in found]), expected)
    run("classify", problems["number"], "--output", tmp_path / "x.npy", given="\n".join(TEXTS))
    assert np.array_equal(np.load(tmp_path / "x.npy"), expected[:, None])
    _, (line,), _ = run("classify", problems["numbers"], given="abc")
    assert list(line["values"]) == ["length", "width", "height"]
    assert np.array_equal(
        np.float32(list(line["values"].values())), np.float32(tc.models.TextClassifier(problems["numbers"]).predict(["abc"])[0])
    )
    assert run("classify", problems["number"])[:2] == (0, [])


WRONG = [
    (["embed", "nowhere"], "", "there is no folder 'nowhere'"),
    (["embed", "{embeddings}", "nofile.txt"], "", "nofile.txt: No such file or directory; texts are lines of files"),
    (["embed", "{embeddings}"], b"abc\n\xff\n", "standard input, line 2: it is not text in UTF-8 (invalid start byte at byte 0)\n"),
    (
        ["embed", "{embeddings}"],
        "abc\n".encode("utf-16"),
        "line 1: it is not text in UTF-8 (invalid start byte at byte 0); it begins as UTF-16 does",
    ),
    (["embed", "{embeddings}", "--json"], '"a"\n{"b": 1}', "line 2: the object has no 'text'; --field"),
    (["embed", "{embeddings}", "--json"], '"a"\n3', "line 2: expected a text, got 3"),
    (["embed", "{embeddings}", "--json"], '"a"\nb c', "line 2: expected a value in JSON, got 'b c' (Expecting value at character 0)"),
    (["embed", "{embeddings}", "--json"], '"a"\n\n"b"', "line 2: expected a value in JSON, got '' ("),
    (["embed", "{embeddings}", "--json"], '{"text": "a", "x": NaN}', "line 1: NaN is no number that JSON has"),
    (["embed", "{embeddings}", "--json"], '"a"\n{"text": "a", "x": [-1e999]}', "line 2: -1e999 is no number that JSON has"),
    (["embed", "{embeddings}", "--json"], "[" * 100_000, "line 1: "),
    (
        ["embed", "{embeddings}", "--json"],
        '"a"\n"b \\ud800"',
        "standard input, line 2: the text has '\\ud800', half of a pair of surrogates",
    ),
    (["classify", "{token}", "--json"], '["a", "\\udfff"]', "standard input, line 1: the text has '\\udfff'"),
    (["embed", "{embeddings}", "--field", "body"], "abc", "--field body names the text in objects, but no line is JSON: add --json"),
    (["embed", "{embeddings}", "--pooling", "best"], "", "pooling must be"),
    (["embed", "{embeddings}", "--prompt-name", "x"], "", "prompt_name is 'x'"),
    (["embed", "{embeddings}", "--max-length", "1000"], "", "max_length is 1000"),
    (["classify", "{plain}"], "", "no weights for classes"),
    (["classify", "{embeddings}"], "", "no weights for classes"),
    (["classify", "{text}", "--json"], '["a", "b", "c"]', "expected a text or a list of two texts"),
    (["classify", "{token}", "--json"], '["a", 3]', "line 1: expected words, or a list of them, got ['a', 3]"),
    (["classify", "{token}", "--output", "x.npy"], "a b", "name a .jsonl file"),
    (["embed", "{embeddings}", "--output", "nowhere/x.npy"], "abc", "--output nowhere/x.npy: there is no folder"),
    (["embed", "{embeddings}", "--output", "x.csv"], "abc", "--output x.csv: expected a name in .npy, or in .jsonl"),
    (["embed", "{embeddings}", "--output", "."], "abc", "--output .: expected the name of a file to write, got a folder"),
    (["embed", "{embeddings}", "--output", ""], "abc", "--output : expected the name of a file to write, got nothing"),
]


def test_what_would_end_a_long_run_is_found_before_it(folders, run, tmp_path, monkeypatch):
    calls = []
    monkeypatch.setattr(tc.models.SentenceEncoder, "_embed", lambda *given: calls.append(given) or iter(()))
    (tmp_path / "a.txt").write_text("abc\n")
    status, _, err = run("embed", folders["embeddings"], tmp_path / "a.txt", tmp_path / "typo.txt", "--output", tmp_path / "x.npy")
    assert status == 1 and "typo.txt: No such file" in err and not calls and "embed:" not in err.replace("c embed:", "")  # no bar


def test_the_bar_knows_how_many_texts_files_have(folders, run, tmp_path):
    for name, text in {"a.txt": "abc\nz\n", "b.txt": "abc\nz\nz"}.items():
        (tmp_path / name).write_text(text)
    _, found, err = run("embed", folders["embeddings"], tmp_path / "a.txt", tmp_path / "b.txt")
    assert len(found) == 5 and "100%" in err and "5/5" in err
    assert "/5" not in run("embed", folders["embeddings"], given="abc\n" * 5)[2]


def test_without_a_bar_lines_are_not_counted(folders, run, tmp_path, monkeypatch):
    monkeypatch.setattr(lines, "_count", lambda file: 1 / 0)
    (tmp_path / "a.txt").write_text("abc\nz\n")
    for more in (["--no-progress"], ["-"]):
        status, found, _ = run("embed", folders["embeddings"], tmp_path / "a.txt", *more)
        assert status == 0 and len(found) == 2


def test_standard_input_among_files(folders, run, tmp_path, monkeypatch):
    """It is read where it is named, and a file of its name is none of it."""
    monkeypatch.chdir(tmp_path)
    for name, text in (("-", "hello"), ("a.txt", "abc"), ("b.txt", "z")):
        (tmp_path / name).write_text(text)
    status, found, err = run("classify", folders["text"], "a.txt", "-", "b.txt", "--output", "x.jsonl", given="größe\nhello world\n")
    assert (status, found) == (0, ["x.jsonl: 4 texts"]) and "/4" not in err
    assert [json.loads(line)["text"] for line in (tmp_path / "x.jsonl").read_text().splitlines()] == ["abc", "größe", "hello world", "z"]
    assert run("embed", folders["embeddings"], "-", "--output", "x.npy", given="abc\nz")[:2] == (0, ["x.npy: 2 texts"])
    assert run("embed", folders["embeddings"], "-", "--output", "-", given="abc")[1] == run("embed", folders["embeddings"], given="abc")[1]
    assert (tmp_path / "-").read_text() == "hello"


def test_the_first_ctrl_c_is_answered(capfd):
    interrupts = lines._Interrupts()
    interrupts._handle(signal.SIGINT, None)
    assert interrupts.pending and "stopping after this block of texts; Ctrl-C again stops at once" in capfd.readouterr().err
    with pytest.raises(KeyboardInterrupt):
        interrupts._handle(signal.SIGINT, None)


def test_a_model_alone_is_asked_for(capsys):
    with pytest.raises(SystemExit):
        cli.main(["embed"])
    assert "required: FOLDER\n" in capsys.readouterr().err


@pytest.mark.parametrize(("arguments", "given", "message"), WRONG)
def test_mistakes(folders, run, tmp_path, monkeypatch, arguments, given, message):
    monkeypatch.chdir(tmp_path)
    status, found, err = run(*(argument.format(**folders) for argument in arguments), given=given)
    assert status == 1 and found == [] and message in err and "Traceback" not in err
    assert os.listdir(tmp_path) == []


def test_texts_are_counted_in_all_blocks(folders, run, monkeypatch):
    encode = tc.models.SentenceEncoder.encode

    def failing(self, texts, *arguments, **options):
        if "z" in texts:
            raise ValueError(f"text number {texts.index('z')} is wrong")
        return encode(self, texts, *arguments, **options)

    monkeypatch.setattr(tc.models.SentenceEncoder, "encode", failing)
    _, found, err = run("embed", folders["embeddings"], "--batch-size", 1, given="abc\n" * 9 + "z")
    assert len(found) == 8 and "text number 1 is wrong; texts are counted after the first 8" in err


@pytest.mark.parametrize(
    ("stream", "message"), [("stdin", "standard input is closed; name files"), ("stdout", "standard output is closed; --output")]
)
def test_closed_streams(folders, monkeypatch, capsys, tmp_path, stream, message):
    """As of services, which Python starts without them."""
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"abc\n")))
    monkeypatch.setattr(sys, stream, None)
    status = cli.main(["embed", str(folders["embeddings"])])
    assert status == 1 and message in capsys.readouterr().err
    (tmp_path / "a.txt").write_text("abc\n")
    assert cli.main(["embed", str(folders["embeddings"]), str(tmp_path / "a.txt"), "--output", str(tmp_path / "x.npy")]) == 0
    assert len(np.load(tmp_path / "x.npy")) == 1


def test_ctrl_c_while_the_model_is_read(folders, run, monkeypatch):
    monkeypatch.setattr(tc.models.SentenceEncoder, "from_pretrained", interrupt)
    assert run("embed", folders["embeddings"]) == (130, [], "\ninterrupted\n")


def interrupt(*arguments, **options):
    raise KeyboardInterrupt


def test_objects_that_are_one_level_too_deep(folders, run):
    """Wherever the limit is: lines are written, or refused in words."""
    for depth in range(900, 1000):
        line = '{"text": "a", "x": ' + "[" * depth + "]" * depth + "}"
        status, found, err = run("embed", folders["embeddings"], "--json", "--no-progress", given=line)
        assert len(found) == (status == 0) and "Traceback" not in err
        if status:
            break


def test_an_output_that_exists(folders, run, tmp_path):
    """Is replaced by results only, and never while it is read."""
    path = tmp_path / "x.jsonl"
    path.write_text('"abc"\n')
    status, _, err = run("embed", folders["embeddings"], path, "--output", path)
    assert status == 1 and "cannot be the output as well" in err
    assert run("embed", folders["embeddings"], tmp_path / "none", "--output", path)[0] == 1 and path.read_text() == '"abc"\n'
    assert run("embed", folders["embeddings"], "--output", path)[0] == 0 and path.read_text() == ""


def test_ctrl_c_while_it_waits(folders, tmp_path):
    """What was computed before is in the file, and whole."""
    output = tmp_path / "x.jsonl"
    process = started("embed", folders["embeddings"], "--batch-size", "1", "--output", output, cwd=tmp_path, stdin=subprocess.PIPE)
    process.stdin.write("abc\n" * 10)  # two blocks of 4 and a part of a third one
    process.stdin.flush()
    deadline = time.monotonic() + 60
    while (not output.exists() or output.read_bytes().count(b"\n") < 8) and time.monotonic() < deadline:
        time.sleep(0.002)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130 and out == "" and f"stopped after 8 texts; they are in {output}" in err and "Traceback" not in err
    assert [json.loads(line)["text"] for line in output.read_text().splitlines()] == ["abc"] * 8


@pytest.mark.parametrize("suffix", ["jsonl", "npy"])
def test_ctrl_c_while_it_computes(folders, run, tmp_path, monkeypatch, suffix):
    """The block is finished first."""
    encode, calls = tc.models.SentenceEncoder.encode, []

    def interrupted(self, texts, *arguments, **options):
        calls.append(len(texts))
        if len(calls) == 3:  # the first has no texts
            os.kill(os.getpid(), signal.SIGINT)
        return encode(self, texts, *arguments, **options)

    monkeypatch.setattr(tc.models.SentenceEncoder, "encode", interrupted)
    output = tmp_path / f"x.{suffix}"
    status, found, err = run("embed", folders["embeddings"], "--batch-size", 1, "--output", output, given="abc\n" * 50)
    assert (status, found, calls) == (130, [], [0, 4, 4]) and f"stopped after 8 texts; they are in {output}" in err
    assert (len(np.load(output)) if suffix == "npy" else output.read_bytes().count(b"\n")) == 8
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_reader_that_leaves(folders, tmp_path):
    out, _ = command("embed", folders["embeddings"], cwd=tmp_path, given="abc\nz\n")
    assert len(out.splitlines()) == 2
    process = started("classify", folders["text"], "--batch-size", "1", "--no-progress", cwd=tmp_path, stdin=subprocess.PIPE)
    process.stdout.close()
    process.stdin.write("abc\n" * 100)
    process.stdin.close()
    assert process.wait(60) == 1 and process.stderr.read() == ""
    process.stderr.close()
