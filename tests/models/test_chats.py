"""Chats: the texts of transformers' apply_chat_template, by templates that may do nothing else than write."""

import json
import sys
import time
from pathlib import Path

import chats
import numpy as np
import pytest
import transformer_c as tc
from folders import DECODER, decoder_folder
from transformer_c import cli
from transformer_c.models.chats import _compiled, _sandbox, rendered

pytest.importorskip("jinja2", "3.1.6")
GOLDEN = json.loads((Path(__file__).parents[1] / "golden/chats.json").read_text())
SIMPLE = "{% for m in messages %}{{ m.role }}:{{ m.content }}{% endfor %}{% if add_generation_prompt %}>{% endif %}"
ASK = [{"role": "user", "content": "he"}]


def said(template, messages=ASK, **values):
    return rendered({"chat_template": template, **chats.SPECIAL}, messages, values)


@pytest.mark.parametrize("name", chats.TEMPLATES)
def test_texts(name):
    for key, by_values in GOLDEN[name].items():
        for values, expected in by_values.items():
            if expected is None:
                with pytest.raises(ValueError, match="the chat template refuses these messages"):
                    said(chats.TEMPLATES[name], chats.CHATS[key], **chats.VALUES[values])
            else:
                assert said(chats.TEMPLATES[name], chats.CHATS[key], **chats.VALUES[values]) == expected
    assert any(text for own in GOLDEN[name].values() for text in own.values())


def test_the_texts_are_those_of_transformers(monkeypatch):
    pytest.importorskip("transformers")
    from golden.make_chats import texts

    assert texts() == GOLDEN


def test_this_year():
    assert f"Today Date: {time.strftime('%Y')}\n" in said(chats.TEMPLATES["llama3.1"])


def test_other_containers_and_strings():
    class Name(str):
        def __str__(self):
            raise AssertionError("a method of the caller's was called")

    assert said(SIMPLE, ({"role": Name("user"), "content": Name("he")},)) == said(SIMPLE)


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("{{ raise_exception('no <system> role') }}", r"refuses these messages \(TemplateError: no <system> role\)"),
        ("{{ messages.__class__.__mro__ }}", "SecurityError: access to attribute '__class__'"),
        ("{{ ''.__class__.x }}", "SecurityError"),
        ("{{ raise_exception.__globals__.x }}", "SecurityError: access to attribute '__globals__'"),
        ("{{ dict.__closure__.x }}", "SecurityError"),
        ("{{ namespace.__init__.x }}", "SecurityError"),
        ("{{ cycler.__init__.__globals__.os.system('true') }}", "SecurityError"),
        ("{% set ns = namespace(__call__=1) %}", "SecurityError: a namespace may not have '__call__'"),
        ("{% set ns = namespace() %}{% set ns.__call__ = 1 %}", "Error"),
        ("{{ messages.append(1) }}", "SecurityError"),
        ("{{ messages[0].update(a=1) }}", "SecurityError"),
        ("{{ messages | attr('append') }}{{ (messages | attr('clear'))() }}", "SecurityError"),
        ("{% for i in range(100001) %}{% endfor %}", "OverflowError: Range too big"),
        ("{% for i in range(99999) %}{% for j in range(999) %}{{ 'abcdefghij' }}{% endfor %}{% endfor %}", "more than 16777216 characters"),
        ("{{ 'a' * 99999999999 }}", "SecurityError"),
        ("{{ 99999999999 * [1] }}", "SecurityError"),
        ("{{ 9 ** 9 ** 9 ** 9 }}", "SecurityError"),
        ("{{ 1 / 0 }}", "ZeroDivisionError"),
        ("{{ messages[0].content + 1 }}", "TypeError"),
        ("{{ undefined.name }}", "UndefinedError: 'undefined' is undefined"),
        ("{{ messages[9].content }}", "UndefinedError"),
        ("{% include '/etc/passwd' %}", "TypeError: no loader"),
        ("{% macro a() %}{{ a() }}{% endmacro %}{{ a() }}", "RecursionError"),
        ("{{ strftime_now(1) }}", "TypeError"),
        ("{{ cycle | tojson }}", "TypeError: Object of type Undefined"),
    ],
)
def test_templates_that_are_refused(template, message):
    messages = [{"role": "user", "content": "he"}]
    with pytest.raises(ValueError, match=message):
        said(template, messages)
    assert messages == ASK


def test_what_is_not_shown():
    assert said("{{ ''.__class__ }}{{ '{0.__class__}'.format(messages) }}{{ raise_exception.__globals__ }}{{ cycler.mro }}.") == "."


@pytest.mark.parametrize(
    ("template", "message"),
    [
        (7, r"chat_template is 7 \(int\); expected a template"),
        ([{"name": "default", "template": 7}], "is 7"),
        ([{"name": "default"}], "chat_template has no default, only 'default'"),
        ([{"name": "rag", "template": "a"}], "chat_template has no default, only 'rag'"),
        ([{"template": "a"}], r"chat_template is \[\{'template': 'a'\}\]"),
        (["a"], r"chat_template is \['a'\]"),
        ({"default": "a"}, "expected a template"),
        ("{{ a", r"no template that jinja2 reads in line 1 \(TemplateSyntaxError"),
        ("\n{% if %}{% endif %}", "in line 2"),
        ("{{ a | nofilter }}", "No filter named 'nofilter'"),
        ("{% generation %}", "Unexpected end of template"),
        ("{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}", "no template that jinja2 reads"),
        ("{% if a %}" * 200 + "{% endif %}" * 200, "no template that jinja2 reads"),
    ],
)
def test_templates_that_are_none(template, message):
    with pytest.raises(tc.CheckpointError, match=message):
        said(template)


def test_one_of_several_templates():
    several = [{"name": "default", "template": "usual"}, {"name": "tool_use", "template": "tools"}]
    assert said(several) == "usual" and said(several, tools=[]) == "tools" and said(several[:1], tools=[]) == "usual"
    with pytest.raises(ValueError, match="the tokenizer has no chat_template: the model continues texts"):
        said(None)


@pytest.mark.parametrize(
    ("messages", "message"),
    [
        ([], "messages must be a list of mappings with role and content"),
        ("he", "messages must be a list"),
        ({"role": "user", "content": "he"}, "messages must be a list"),
        (["he"], r"message number 0 must be a mapping with role, a str, and content, got 'he'"),
        ([*ASK, {"content": "he"}], "message number 1 must be a mapping with role"),
        ([{"role": 1, "content": "he"}], "message number 0 must be a mapping with role"),
        ([{"role": "user", "content": b"he"}], r"messages has b'he' \(bytes\); str, int, float, bool, None"),
        ([{"role": "user", "content": "he", 3: 4}], r"\(dict\); str, int"),
        ([{"role": "user", "content": ["he", np.ones(2)]}], r"messages has array.* \(ndarray\)"),
    ],
)
def test_what_are_no_messages(messages, message):
    with pytest.raises(TypeError, match=message):
        said(SIMPLE, messages)


def test_what_a_template_is_told():
    assert said("{{ tools[0].name }}{{ x }}", tools=[{"name": "add"}], x=2) == "add2"
    with pytest.raises(TypeError, match=r"chat_template_kwargs has <.*> \(function\)"):
        said(SIMPLE, tools=[test_this_year])
    with pytest.raises(TypeError, match="chat_template_kwargs must be a mapping, got 7"):
        rendered({"chat_template": SIMPLE}, ASK, 7)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    pytest.importorskip("tokenizers")
    return decoder_folder(tmp_path_factory.mktemp("chats"), tokenizer_config={"chat_template": SIMPLE})


def test_answers(folder):
    generator = tc.models.TextGenerator.from_pretrained(folder)
    before = generator.prompt(ASK)
    assert before == "user:he>" and generator.prompt(ASK, add_generation_prompt=False) == "user:he"
    whole = generator.generate(before, 6)
    answer = generator.generate(ASK, 6)
    assert before + answer == whole == generator.generate(ASK, 6, return_full_text=True) and len(answer)
    others = [ASK, [*ASK, {"role": "bot", "content": "he"}]]
    assert generator.generate(others, 6) == [answer, generator.generate(others[1], 6)]
    assert "".join(generator.stream(ASK, 6)) == answer
    told = {"add_generation_prompt": False}
    expected = generator.generate("user:he", 6, return_full_text=False)
    assert generator.generate(ASK, 6, chat_template_kwargs=told) == "".join(generator.stream(ASK, 6, chat_template_kwargs=told)) == expected
    for call in (generator.generate, lambda text, **more: list(generator.stream(text, **more))):
        with pytest.raises(ValueError, match="chat_template_kwargs is for chats, lists of messages"):
            call("he", chat_template_kwargs={})
        with pytest.raises(TypeError, match="message number 1 must be a mapping"):
            call([*ASK, "he"])
    with pytest.raises(TypeError, match="text must be a str, or one chat"):
        list(generator.stream([ASK]))
    with pytest.raises(AttributeError, match=r"generator\.prompt\(messages\)"):
        generator.apply_chat_template  # noqa: B018


def test_a_tokenizer_of_ones_own():
    class Letters:
        def __call__(self, texts):
            return [(np.array([ord(c) % 60 for c in text]), np.zeros(len(text), int)) for text in texts]

        def decode(self, ids):
            return "".join(chr(65 + i) for i in ids)

    tc.manual_seed(1)
    generator = tc.models.TextGenerator(tc.models.create(DECODER, task="text-generation"), Letters())
    with pytest.raises(ValueError, match="the tokenizer has no chat_template"):
        generator.generate(ASK)
    generator.tokenizer.config = {"chat_template": SIMPLE}
    assert generator.generate(ASK, 4) == generator.generate("user:he>", 4, return_full_text=False)


def test_files_of_templates(tmp_path):
    pytest.importorskip("tokenizers")
    own = {"chat_template": "config", "bos_token": "B", "added_tokens_decoder": {}}
    decoder_folder(tmp_path, tokenizer_config=own, special_tokens_map={"bos_token": "M", "eos_token": {"content": "E"}})

    def prompt(folder=tmp_path, **values):
        return tc.models.TextGenerator.from_pretrained(folder).prompt(ASK, **values)

    assert prompt() == "config"
    (tmp_path / "chat_template.jinja").write_text("ä{{ bos_token }}{{ eos_token }}\n")
    assert prompt() == "äB<|endoftext|>"  # without the line feed at its end
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({**own, "added_tokens_decoder": None} | {"bos_token": "B"}))
    decoder_folder(tmp_path, tokenizer_config={"bos_token": "B"})
    assert prompt() == "äME"
    (tmp_path / "additional_chat_templates").mkdir()
    (tmp_path / "additional_chat_templates/tool_use.jinja").write_text("tools")
    assert prompt(tools=[]) == "tools" and prompt() == "äME"
    generator = tc.models.TextGenerator.from_pretrained(tmp_path)
    (tmp_path / "saved").mkdir()
    tc.models.save(generator.model, tmp_path / "saved")
    generator.tokenizer.save(tmp_path / "saved")
    assert prompt(tmp_path / "saved") == "äME" and prompt(tmp_path / "saved", tools=[]) == "tools"
    (tmp_path / "chat_template.jinja").write_bytes(b"\xff")
    with pytest.raises(tc.CheckpointError, match=r"chat_template\.jinja' is not text in UTF-8"):
        prompt()
    (tmp_path / "chat_template.jinja").write_bytes(b"a" * (1 << 21))
    with pytest.raises(tc.CheckpointError, match="1048576 is the most that is read"):
        prompt()


def test_special_tokens_of_the_text_alone(tmp_path):
    """The template writes what begins texts: the tokenizer adds it to texts, and not once more to chats."""
    tokenizers = pytest.importorskip("tokenizers")
    decoder_folder(tmp_path, tokenizer_config={"chat_template": "{{ bos_token }}" + SIMPLE, "bos_token": "<|endoftext|>"})
    made = tc.models.TextGenerator.from_pretrained(tmp_path).tokenizer._tokenizer
    begin = ("<|endoftext|>", 258)
    made.post_processor = tokenizers.processors.TemplateProcessing(single=[begin[0], "$A"], special_tokens=[begin])
    made.save(str(tmp_path / "tokenizer.json"))
    generator = tc.models.TextGenerator.from_pretrained(tmp_path)
    alone = generator.tokenizer.as_written([generator.prompt(ASK)])[0][0]
    assert alone.tolist().count(258) == 1 and np.array_equal(generator.tokenizer(["user:he>"])[0][0], alone)
    assert generator.generate(ASK, 5) == generator.generate("user:he>", 5, return_full_text=False)


NAMES = "{{ bos_token }}|{{ eos_token }}|{{ unk_token }}|{{ pad_token }}"


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (None, "<|endoftext|>|<|endoftext|>|<|endoftext|>|"),  # by model_type, GPT-2's
        ("GPT2TokenizerFast", "<|endoftext|>|<|endoftext|>|<|endoftext|>|"),
        ("GPTNeoXTokenizer", "<|endoftext|>|<|endoftext|>|<|endoftext|>|<|padding|>"),
        ("Qwen2Tokenizer", "|<|endoftext|>|<|endoftext|>|<|endoftext|>"),
        ("LlamaTokenizerFast", "<s>|</s>|<unk>|"),
        ("GemmaTokenizer", "<bos>|<eos>|<unk>|<pad>"),
        ("OtherTokenizer", "|||"),
    ],
)
def test_special_tokens_that_no_file_names(tmp_path, kind, expected):
    """Those of transformers' classes."""
    pytest.importorskip("tokenizers")
    said = {} if kind is None else {"tokenizer_class": kind}
    decoder_folder(tmp_path, tokenizer_config={"chat_template": NAMES, **said})
    assert tc.models.TextGenerator.from_pretrained(tmp_path).prompt(ASK) == expected
    (tmp_path / "tokenizer_config.json").write_text(
        json.dumps({"chat_template": NAMES, **said, "eos_token": {"content": "E"}, "bos_token": None})
    )
    begin = expected.split("|")[0]
    found = tc.models.TextGenerator.from_pretrained(tmp_path).prompt(ASK)
    assert "|E|" in found and (not begin or not found.startswith(begin))


@pytest.mark.parametrize("name", ["reasoning_content", "thinking", "reasoning"])
def test_what_an_assistant_thought(name):
    template = "{{ messages[0].reasoning_content }}|{{ messages[0].thinking }}"
    assert rendered({"chat_template": template}, [{"role": "assistant", "content": "x", name: "why"}], {}) == "why|why"


@pytest.mark.parametrize("text", ["{{ '%2000000000d' % 1 }}", "{{ '%*d' % (2000000000, 1) }}"])
def test_wide_fields_are_refused(text):
    with pytest.raises(ValueError, match="% of such values is not supported"):
        rendered({"chat_template": text}, ASK, {})
    assert rendered({"chat_template": "{{ '%s %.2f' % ('a', 1.5) }} {{ 7 % 4 }}"}, ASK, {}) == "a 1.50 3"


def test_messages_that_contain_themselves():
    messages = [{"role": "a", "content": "x"}]
    messages[0]["more"] = messages
    with pytest.raises(ValueError, match="contain themselves, or are nested too deeply"):
        rendered({"chat_template": "a"}, messages, {})


@pytest.mark.parametrize("version", [None, "3.1.5"])
def test_without_the_package(monkeypatch, version):
    for cached in (_sandbox, _compiled):
        cached.cache_clear()
    if version is None:
        monkeypatch.setitem(sys.modules, "jinja2", None)
    else:
        monkeypatch.setattr("importlib.metadata.version", lambda name: version)
    with pytest.raises(ImportError, match=r"read by the package jinja2, 3.1.6 or newer: pip install 'transformer_c\[models\]'"):
        said("never compiled")
    monkeypatch.undo()
    assert said("never compiled") == "never compiled"


def test_the_command(folder, capsysbinary, tmp_path):
    answer = tc.models.TextGenerator.from_pretrained(folder).generate(ASK, 6)
    for beams in ((), ("--num-beams", "1")):
        assert cli.main(["generate", str(folder), "he", "--chat", "--max-new-tokens", "6", *beams]) == 0
        assert capsysbinary.readouterr().out.decode() == answer + "\n"
    assert cli.main(["generate", str(folder), "he", "--chat", "--max-new-tokens", "6", "--num-beams", "2"]) == 0
    assert not capsysbinary.readouterr().out.startswith(b"user")
    decoder_folder(tmp_path)
    assert cli.main(["generate", str(tmp_path), "he", "--chat"]) == 1
    assert b"the tokenizer has no chat_template" in capsysbinary.readouterr().err
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "t5"}))
    assert cli.main(["generate", str(tmp_path), "he", "--chat"]) == 1
    assert b"--chat is for decoders" in capsysbinary.readouterr().err
