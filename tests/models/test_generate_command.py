"""`generate`: a text in, and out with its continuation."""

import io
import subprocess
import sys

import pytest
import transformer_c as tc
from command_line import command
from folders import CONFIG, decoder_folder
from transformer_c import cli

pytest.importorskip("tokenizers")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return decoder_folder(tmp_path_factory.mktemp("decoder"))


@pytest.fixture
def run(monkeypatch, capsysbinary):
    """A command within this process: its status, what it prints, standard error."""

    def call(*arguments, given=b""):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(given)))
        status = cli.main(["generate", *map(str, arguments)])
        out, err = capsysbinary.readouterr()
        return status, out.decode(), err.decode()

    return call


def test_a_text(folder, run):
    generator = tc.models.TextGenerator.from_pretrained(folder)
    for text in ("he said", "größe €"):
        expected = generator.generate(text, max_new_tokens=9)
        assert run(folder, text, "--max-new-tokens", 9) == (0, expected + "\n", "")
        assert run(folder, "--max-new-tokens", 9, given=text.encode() + b"\r\n") == (0, expected + "\n", "")
        assert run(folder, "-", "--max-new-tokens", 9, given=text.encode()) == (0, expected + "\n", "")
    drawn = run(folder, "he", "--do-sample", "--seed", 3, "--temperature", 2, "--top-k", 7, "--top-p", 0.9, "--repetition-penalty", 1.5)[1]
    settings = {"temperature": 2.0, "top_k": 7, "top_p": 0.9, "repetition_penalty": 1.5}
    assert drawn == generator.generate("he", do_sample=True, rng=3, **settings) + "\n"


def test_a_folder_whose_settings_say_to_draw(run, tmp_path):
    decoder_folder(tmp_path, generation_config={"do_sample": True, "top_k": 5})
    generator = tc.models.TextGenerator.from_pretrained(tmp_path)
    likeliest, drawn = (generator.generate("he", do_sample=draw, rng=3) + "\n" for draw in (False, True))
    assert likeliest != drawn
    assert run(tmp_path, "he", "--no-do-sample")[1] == likeliest
    assert run(tmp_path, "he", "--no-do-sample", "--seed", 3)[0] == 1
    assert run(tmp_path, "he", "--seed", 3)[1] == run(tmp_path, "he", "--do-sample", "--seed", 3)[1] == drawn


def test_a_folder_that_says_how_many_tokens(run, tmp_path):
    decoder_folder(tmp_path, generation_config={"max_new_tokens": 4})
    generator = tc.models.TextGenerator.from_pretrained(tmp_path)
    for arguments, most in (((), 4), (("--max-new-tokens", 6), 6)):
        assert run(tmp_path, "he", *arguments) == (0, generator.generate("he", max_new_tokens=most) + "\n", "")


def test_halves(folder, run):
    expected = tc.models.TextGenerator.from_pretrained(folder, dtype="bfloat16").generate("he")
    assert run(folder, "he", "--dtype", "bfloat16") == (0, expected + "\n", "")


def test_mistakes(folder, run, tmp_path):
    tc.models.save(tc.models.create(CONFIG), tmp_path)
    for arguments, given, message in (
        (["nowhere", "a"], b"", "there is no folder 'nowhere'"),
        ([tmp_path, "a"], b"", "task is 'text-generation'; for bert there are"),
        ([folder, ""], b"", "text number 0 has no tokens"),
        ([folder, "a", "--top-k", "3"], b"", "top_k is for drawing tokens, and changes nothing without do_sample=True"),
        ([folder, "a", "--seed", "3"], b"", "--seed is for drawing tokens, and changes nothing without --do-sample"),
        ([folder, "a", "--max-new-tokens", "60"], b"", "the model takes at most 60 together"),
        ([folder, "a" * 300], b"", "text number 0 has 60 tokens or more, and max_new_tokens is 50"),
        ([folder], b"\xff", "standard input is not text in UTF-8"),
    ):
        status, out, err = run(*arguments, given=given)
        assert status == 1 and out == "" and message in err, err
    for name in ("stdin", "stdout"):
        text = f"import sys; from transformer_c import cli; sys.{name} = None; sys.exit(cli.main(['generate', {str(folder)!r}]))"
        done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=60)
        assert done.returncode == 1 and f"standard {'input' if name == 'stdin' else 'output'} is closed" in done.stderr


def test_the_process(folder, tmp_path):
    out, err = command("generate", folder, "he", "--max-new-tokens", 3, "--threads", 1, cwd=tmp_path)
    assert out.startswith("he") and out.endswith("\n") and not err
