"""Fine-tuning of models that write: the loss, transformers' numbers, what is learnt of texts, pairs and chats, and what is refused."""

import json

import numpy as np
import pytest
import transformer_c as tc
from chats import TEMPLATES
from folders import DECODER, decoder_folder, language_folder, marian_files
from transformer_c.models import next_words
from transformer_c.models.next_words import Sample, pieces, with_end
from words import LETTERS

F = tc.functional
PAIR = {
    **{"model_type": "t5", "vocab_size": 60, "d_model": 16, "d_ff": 24, "d_kv": 8, "num_heads": 2, "num_layers": 2, "dropout_rate": 0.0},
    **{"eos_token_id": 1, "decoder_start_token_id": 0, "initializer_factor": 0.5},
}
TEXTS = ["abcabc", "hello", "transformers", "no", "numpyarrays", "zyx"]
PAIRS = [("abc", "cba"), ("hello", "olleh"), ("q", "q"), ("numpy", "ypmun"), ("ab", "ba")]


class Letters:
    """a is 2, and so on; 1 is the end, which `end` adds."""

    def __init__(self, end):
        self.end = [1] * end

    def __call__(self, texts):
        made = [np.array([*(LETTERS.index(c) + 2 for c in text), *self.end], np.int64) for text in texts]
        return [(ids, np.zeros_like(ids)) for ids in made]

    def decode(self, ids):
        return "".join(LETTERS[i - 2] for i in ids if i > 1)


def decoder(dtype="float64", **values):
    tc.manual_seed(1)
    values = {**DECODER, "embd_pdrop": 0.0, "attn_pdrop": 0.0, "resid_pdrop": 0.0, "eos_token_id": 1, **values}
    return tc.models.create(values, task="text-generation").to(dtype=dtype)


def pair_model(dtype="float64", **values):
    tc.manual_seed(1)
    return tc.models.create({**PAIR, **values}, task="text2text-generation").to(dtype=dtype)


def writer(**values):
    return tc.models.TextGenerator(decoder(**values), Letters(False))


def translator(**values):
    return tc.models.Text2TextGenerator(pair_model(**values), Letters(True))


def weights(generator):
    return {name: value.numpy().tobytes() for name, value in generator.model.state_dict().items()}


BOTH = {"decoder": (writer, TEXTS), "encoder-decoder": (translator, PAIRS)}


# ---- the loss ----------------------------------------------------------------------------------------------------------------


def by_hand(model, batch):
    """The same of the scores of all words at all places."""
    total, count = 0.0, 0
    for own in batch:
        if own.read is None:
            scores = model(tc.tensor(own.ids[None, :-1]))[0, own.first - 1 :]
        else:
            scores = model(tc.tensor(own.read[None]), decoder_ids=model.shifted(own.ids[None]))[0]
        total = total + F.cross_entropy(scores, tc.tensor(own.ids[own.first :]), reduction="sum")
        count += len(own.ids) - own.first
    return total / count


@pytest.mark.parametrize("at_once", [5, 1 << 24])
@pytest.mark.parametrize(
    ("model", "kind"),
    [
        (decoder, "decoder"),
        (lambda: decoder(tie_word_embeddings=False), "decoder"),
        (lambda: decoder(model_type="gemma2", head_dim=8, num_key_value_heads=1, num_attention_heads=2, hidden_size=32, intermediate_size=48,
                         num_hidden_layers=2, max_position_embeddings=40, final_logit_softcapping=3.0), "decoder"),
        (pair_model, "encoder-decoder"),
        (lambda: pair_model(tie_word_embeddings=False), "encoder-decoder"),
    ],
    ids=["tied", "a table of its own", "soft cap", "t5", "t5 with a table of its own"],
)  # fmt: skip
def test_the_loss_and_its_gradients(model, kind, at_once, monkeypatch):
    """Whatever share of the scores is in memory at a time."""
    model = model().eval()
    monkeypatch.setattr(next_words, "_SCORES_AT_ONCE", at_once * 60)
    rng = np.random.default_rng(0)
    batch = [
        Sample(None if kind == "decoder" else rng.integers(2, 60, n), rng.integers(2, 60, n + 2), n // 2 if kind == "decoder" else 0)
        for n in (3, 9, 2)
    ]
    found, parameters = [], [p for p in model.parameters() if p.requires_grad]
    for loss in (next_words.loss(model, batch), by_hand(model, batch)):
        (2 * loss).backward()
        found.append((loss.item(), [p.grad.numpy().copy() for p in parameters]))
        model.zero_grad()
    assert abs(found[0][0] - found[1][0]) < 1e-12
    for ours, expected in zip(found[0][1], found[1][1], strict=True):
        np.testing.assert_allclose(ours, expected, rtol=0, atol=1e-12 * max(1, np.abs(expected).max()))
    with tc.no_grad():
        assert abs(next_words.loss(model, batch).item() - found[0][0]) < 1e-12


def test_a_frozen_table(monkeypatch):
    monkeypatch.setattr(next_words, "_SCORES_AT_ONCE", 60)
    model = decoder()
    model.encoder.words.requires_grad_(False)
    batch = [Sample(None, np.arange(2, 9), 1)]
    next_words.loss(model, batch).backward()
    assert model.encoder.words.weight.grad is None
    found = model.encoder.norm.weight.grad.numpy().copy()
    model.zero_grad()
    by_hand(model, batch).backward()
    np.testing.assert_allclose(found, model.encoder.norm.weight.grad.numpy(), rtol=0, atol=1e-13)


@pytest.mark.parametrize("length", [2, 3, 4, 5, 6, 7, 20])
@pytest.mark.parametrize("most", [2, 3, 5, 20])
def test_each_token_of_a_long_text_is_learnt_once(length, most):
    ids = np.arange(length)
    found = list(pieces(ids, most))
    assert all(2 <= len(own.ids) <= most for own in found)
    assert np.concatenate([own.ids[own.first :] for own in found]).tolist() == ids[1:].tolist()


def test_the_end_of_a_text():
    assert with_end(np.array([4, 5]), (1, 2)).tolist() == [4, 5, 1] and with_end(np.array([4, 2]), (1, 2)).tolist() == [4, 2]
    assert with_end(np.array([4]), ()).tolist() == [4] and with_end(np.array([], np.int64), (1,)).tolist() == [1]


# ---- training ----------------------------------------------------------------------------------------------------------------


def test_the_numbers_of_transformers():
    """Losses and weights of a fine-tuning there, float64: all texts in one batch, AdamW, warm-up, decay of matrices only, clipping."""
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    kinds = {"decoder": transformers.GPT2LMHeadModel, "encoder-decoder": transformers.T5ForConditionalGeneration}
    for kind, (make, texts) in BOTH.items():
        generator = make()
        theirs = kinds[kind](kinds[kind].config_class(**generator.model.config)).double()
        state = {name: torch.tensor(np.asarray(value)) for name, value in tc.convert.to_hf(generator.model).items()}
        missing, unexpected = theirs.load_state_dict(state, strict=False)
        assert not unexpected and all("embed_tokens" in name or "lm_head" in name for name in missing)
        theirs.tie_weights()
        generator.fit(texts, epochs=5, batch_size=8, learning_rate=0.01, warmup=0.4, weight_decay=0.1, max_norm=0.5, random_state=0)

        ids = [own.ids for own in generator._samples(texts, *([30, ""] if kind == "decoder" else [None, None, ""]))]
        labels = np.full((len(ids), max(map(len, ids))), -100)
        for row, own in zip(labels, ids, strict=True):
            row[: len(own)] = own
        given = {"input_ids": np.where(labels < 0, 0, labels), "attention_mask": labels >= 0}
        if kind == "encoder-decoder":
            read = [own for own, _ in Letters(True)([text for text, _ in texts])]
            given["input_ids"] = np.zeros((len(read), max(map(len, read))), np.int64)
            for row, own in zip(given["input_ids"], read, strict=True):
                row[: len(own)] = own
            given["attention_mask"] = given["input_ids"] > 0
        given = {name: torch.tensor(value, dtype=torch.int64) for name, value in given.items()}
        matrices, others = [[p for p in theirs.parameters() if (p.ndim > 1) is wanted] for wanted in (True, False)]
        optimizer = torch.optim.AdamW([{"params": matrices, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}], lr=0.01)
        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: step / 2 if step < 2 else (5 - step) / 3)
        losses = []
        for _ in range(5):
            scores, goals = theirs(**given, labels=torch.tensor(labels)).logits, torch.tensor(labels)  # whose own loss is in float32
            scores, goals = (scores[:, :-1], goals[:, 1:]) if kind == "decoder" else (scores, goals)
            loss = torch.nn.functional.cross_entropy(scores.flatten(0, 1), goals.flatten())
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(theirs.parameters(), 0.5)
            optimizer.step()
            schedule.step()
            losses.append(loss.item())
        np.testing.assert_allclose([entry["loss"] for entry in generator.history], losses, rtol=1e-9)
        expected = theirs.state_dict()
        for name, value in tc.convert.to_hf(generator.model).items():
            np.testing.assert_allclose(
                np.asarray(value), expected[name].numpy(), rtol=0, atol=1e-4
            )  # Adam divides tiny gradients by their size


@pytest.mark.parametrize("kind", BOTH)
def test_a_model_learns_its_texts(kind):
    make, texts = BOTH[kind]
    generator = make(dtype="float32").fit(texts, epochs=80, batch_size=2, learning_rate=0.01, random_state=0)
    assert generator.history[-1]["loss"] < 0.2 * generator.history[0]["loss"]
    if kind == "decoder":
        assert [generator.generate(text[:2], max_new_tokens=20) for text in TEXTS] == TEXTS  # the end is learnt, too
    else:
        assert generator.generate([text for text, _ in PAIRS], max_new_tokens=8) == [text for _, text in PAIRS]


def test_of_a_pair_only_the_completion_is_learnt():
    """The loss of the first epoch is that of the completion's tokens and the end."""
    generator = writer()
    model = generator.model
    generator.fit([("abc", "de")], epochs=1)
    ids = np.array([2, 3, 4, 5, 6, 1])
    assert generator.history[0]["loss"] == pytest.approx(by_hand(model, [Sample(None, ids, 3)]).item(), abs=1e-12)
    assert generator.history[0]["loss"] != pytest.approx(by_hand(model, [Sample(None, ids, 1)]).item(), abs=1e-3)


def test_chats(tmp_path):
    """Learnt is the answer, with what the template writes after it; the prompt is that of ``generate``."""
    pytest.importorskip("tokenizers"), pytest.importorskip("jinja2")
    template = "{% for m in messages %}<{{ m.role }}>{{ m.content }}.{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}"
    generator = tc.models.TextGenerator.from_pretrained(decoder_folder(tmp_path, tokenizer_config={"chat_template": template}))
    chat = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "ho"}]
    (own,) = generator._samples([chat], 60, "texts")
    assert generator.tokenizer.decode(own.ids) == "<user>hi.<assistant>ho." and generator.tokenizer.decode(own.ids[own.first :]) == "ho."
    (tokens,) = generator._tokens([generator.prompt(chat[:1])], generator.tokenizer.as_written)
    assert own.ids[: own.first].tolist() == tokens.tolist()
    generator.fit([chat], epochs=60, learning_rate=0.01, random_state=0)
    assert generator.generate(chat[:1], max_new_tokens=3) == "ho."
    with pytest.raises(ValueError, match=r"texts\[1\] must end with a message of the assistant, after others"):
        generator.fit([chat, chat[:1]])
    with pytest.raises(ValueError, match=r"texts\[0\] must end with a message of the assistant"):
        generator.fit([chat[1:]])
    generator.tokenizer.config["chat_template"] = "{{ messages | length }}"
    with pytest.raises(ValueError, match=r"the chat template writes texts\[0\] otherwise with its answer than without it; give pairs"):
        generator.fit([chat])


@pytest.mark.parametrize("kind", BOTH)
def test_seeds_and_threads(kind):
    """The same seed gives the same bits whatever was drawn before, with any number of threads; the default generator goes on."""
    make, texts = BOTH[kind]
    values = {"attn_pdrop": 0.1, "embd_pdrop": 0.1} if kind == "decoder" else {"dropout_rate": 0.1}
    options, found, before = {"epochs": 2, "batch_size": 2, "learning_rate": 1e-3}, [], tc.get_num_threads()
    for threads in (1, 2, 3):
        tc.set_num_threads(threads)
        generator = make(dtype="float32", **values)
        tc.manual_seed(threads)
        generator.fit(texts, random_state=3, **options)
        drawn = tc.randn(3).tolist()
        tc.manual_seed(threads)
        assert tc.randn(3).tolist() == drawn
        found.append(weights(generator))
    tc.set_num_threads(before)
    assert found[0] == found[1] == found[2] != weights(make(dtype="float32", **values).fit(texts, random_state=4, **options))
    drawn = []
    for _ in range(2):
        generator = make(dtype="float32", **values)
        tc.manual_seed(2)
        drawn.append(weights(generator.fit(texts, **options)))
    assert drawn[0] == drawn[1] != found[0]


@pytest.mark.parametrize("kind", BOTH)
def test_a_validation_keeps_the_best_epoch(kind):
    make, texts = BOTH[kind]
    others = ["wordsunseen", "kkk"] if kind == "decoder" else [("kk", "vw"), ("w", "kkk")]
    generator = make().fit(texts, validation=others, epochs=12, learning_rate=0.02, random_state=0)
    losses = [entry["val_loss"] for entry in generator.history]
    assert min(losses) < losses[-1]
    samples = generator._samples(others, *([30, ""] if kind == "decoder" else [None, None, ""]))
    assert next_words.loss(generator.model, samples).item() == pytest.approx(min(losses), rel=1e-12)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_halves_are_trained_in_float32(dtype):
    pytest.importorskip("ml_dtypes")
    generator = writer(dtype=dtype).fit(TEXTS, epochs=1)
    assert {p.dtype.name for p in generator.model.parameters()} == {"float32"}


@pytest.mark.parametrize("kind", BOTH)
def test_an_interrupted_fit_changes_nothing(kind, monkeypatch):
    make, texts = BOTH[kind]
    generator = make()
    before, bits = dict(vars(generator)), weights(generator)

    def stop(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(tc.optim.AdamW, "step", stop)
    with pytest.raises(KeyboardInterrupt):
        generator.fit(texts)
    assert vars(generator) == before and weights(generator) == bits and not generator.model.training
    assert all(p.grad is None for p in generator.model.parameters())


def test_a_single_step_has_the_whole_rate():
    generator = writer()
    before = weights(generator)
    assert weights(generator.fit(TEXTS, epochs=1)) != before


def test_recording_is_on_in_a_fit():
    expected = weights(writer().fit(TEXTS, random_state=0, epochs=1))
    with tc.no_grad():
        assert weights(writer().fit(TEXTS, random_state=0, epochs=1)) == expected


def test_a_frozen_model_is_refused():
    generator = writer()
    generator.model.requires_grad_(False)
    with pytest.raises(ValueError, match="all parameters are frozen"):
        generator.fit(TEXTS)


def test_what_is_frozen_stays():
    generator = writer()
    generator.model.encoder.words.requires_grad_(False)
    before = generator.model.encoder.words.weight.numpy().copy()
    generator.fit(TEXTS, epochs=1, learning_rate=0.01, warmup=0.0)
    assert np.array_equal(generator.model.encoder.words.weight.numpy(), before)
    assert not generator.model.encoder.words.weight.requires_grad and generator.model.encoder.norm.weight.requires_grad


# ---- tokenizers of folders ---------------------------------------------------------------------------------------------------


def test_long_texts_are_learnt_whole(tmp_path):
    """Where ``generate`` reads only what the model takes."""
    pytest.importorskip("tokenizers")
    generator = tc.models.TextGenerator.from_pretrained(decoder_folder(tmp_path))
    text = "abcde" * 40
    found = generator._samples([text], 30, "texts")
    assert generator.tokenizer.decode([found[0].ids[0], *(i for own in found for i in own.ids[1:])]) == text and len(found) == 7
    assert found[-1].ids[-1] == 258 and len(generator._tokens([text])[0]) == 60


def test_targets_of_marian(tmp_path):
    """Texts that are written are read by target.spm."""
    pytest.importorskip("sentencepiece")
    words = marian_files(tmp_path)
    values = {"model_type": "marian", "vocab_size": len(words), "d_model": 16, "encoder_layers": 1, "decoder_layers": 1,
              "encoder_attention_heads": 2, "decoder_attention_heads": 2, "encoder_ffn_dim": 24, "decoder_ffn_dim": 24,
              "max_position_embeddings": 40, "eos_token_id": 0, "pad_token_id": len(words) - 1, "decoder_start_token_id": len(words) - 1,
              "forced_eos_token_id": None}  # fmt: skip
    tc.models.save(tc.models.create(values, task="text2text-generation"), tmp_path)
    generator = tc.models.Text2TextGenerator.from_pretrained(tmp_path)
    pairs = [("the small house", "la petite maison"), ("the garden", "le jardin")]
    (first, _) = generator._samples(pairs, None, None, "pairs")
    reader = generator.tokenizer._models["target.spm"][1]
    assert [words[i] for i in first.ids] == [*reader.encode("la petite maison", out_type=str), "</s>"]
    assert first.read.tolist() == generator.tokenizer(["the small house"])[0][0].tolist() != first.ids.tolist()
    try:
        from transformers import MarianTokenizer
    except ImportError:
        pass
    else:
        theirs = MarianTokenizer.from_pretrained(tmp_path)(text_target="la petite maison")["input_ids"]
        assert theirs == first.ids.tolist()
    generator.fit(pairs, epochs=80, learning_rate=0.01, random_state=0)
    assert generator.generate([text for text, _ in pairs], max_new_tokens=20) == [text for _, text in pairs]


def test_codes_after_texts_by_legacy_behaviour_are_refused(tmp_path):
    pytest.importorskip("tokenizers")
    generator = tc.models.Text2TextGenerator.from_pretrained(language_folder(tmp_path, "NllbTokenizer", legacy_behaviour=True))
    source, target = list(generator.tokenizer.languages)[:2]
    with pytest.raises(ValueError, match="this tokenizer has the code of a language after a text by legacy_behaviour, where generate"):
        generator.fit([("the", "he")], src_lang=source, tgt_lang=target)


@pytest.mark.parametrize("name", ["MBartTokenizer", "MBart50Tokenizer"])
def test_the_losses_of_mbart_in_transformers(name, tmp_path):
    """Texts of several lengths, whose last token is what begins them: </s>, or the code of their language."""
    pytest.importorskip("tokenizers")
    path = language_folder(tmp_path, name) / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "dropout": 0.0}))
    generator = tc.models.Text2TextGenerator.from_pretrained(tmp_path, dtype="float64")
    source, target = list(generator.tokenizer.languages)[:2]
    pairs = [("the house", "he"), ("a", "the he a"), ("he he", "")]
    labels = [generator.tokenizer([text], language=target)[0][0] for _, text in pairs]
    number = generator.tokenizer.number(target)
    assert all((row[-1] if name == "MBartTokenizer" else row[0]) == number for row in labels)
    model = tc.models.load(tmp_path, task="text2text-generation", dtype="float64")
    generator.fit(pairs, src_lang=source, tgt_lang=target, epochs=2, learning_rate=1e-12, random_state=0)

    def padded(rows, padding):
        made = np.full((len(rows), max(map(len, rows))), padding)
        for row, own in zip(made, rows, strict=True):
            row[: len(own)] = own
        return made

    ids, goals = padded([generator.tokenizer([text], language=source)[0][0] for text, _ in pairs], 1), padded(labels, -100)
    begun = model.shifted(goals)
    assert begun[:, 0].tolist() == [number if name == "MBartTokenizer" else 2] * 3
    scores = model(ids, ids != 1, decoder_ids=begun)
    loss = tc.functional.cross_entropy(tc.tensor(scores).flatten(0, 1), tc.tensor(goals).flatten()).item()
    np.testing.assert_allclose([entry["loss"] for entry in generator.history], loss, rtol=1e-9)
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    theirs = transformers.MBartForConditionalGeneration.from_pretrained(tmp_path).double().eval()
    with torch.no_grad():
        found = theirs(input_ids=torch.tensor(ids), attention_mask=torch.tensor(ids != 1), labels=torch.tensor(goals)).loss.item()
    assert abs(found - loss) < 1e-6 * loss


@pytest.mark.parametrize("name", ["NllbTokenizer", "MBart50Tokenizer", "MBartTokenizer"])
def test_targets_have_the_code_of_their_language(name, tmp_path):
    pytest.importorskip("tokenizers")
    generator = tc.models.Text2TextGenerator.from_pretrained(language_folder(tmp_path, name))
    source, target = list(generator.tokenizer.languages)[:2]
    (own,) = generator._samples([("the", "he")], lambda texts: generator.tokenizer(texts, language=source), target, "pairs")
    assert own.ids.tolist() == generator.tokenizer(["he"], language=target)[0][0].tolist()
    assert own.ids[-1 if name == "MBartTokenizer" else 0] == generator.tokenizer.number(target)
    with pytest.raises(ValueError, match="the tokenizer has several languages: tgt_lang= is the one that is written"):
        generator.fit([("the", "he")])
    generator.fit([("the", "he")], src_lang=source, tgt_lang=target, epochs=60, learning_rate=0.01, random_state=0)
    assert generator.generate("the", src_lang=source, tgt_lang=target, max_new_tokens=6) == "he"


def test_saved_folders(tmp_path):
    """Have the settings of before, besides the new weights; transformers loads them."""
    pytest.importorskip("tokenizers")
    settings = {"do_sample": True, "temperature": 0.5, "max_new_tokens": 7, "eos_token_id": [258, 5]}
    generator = tc.models.TextGenerator.from_pretrained(decoder_folder(tmp_path, generation_config=settings))
    generator.fit(["he has", "she has"], epochs=2, learning_rate=0.01)
    generator.save(tmp_path / "mine")
    assert json.loads((tmp_path / "mine/generation_config.json").read_text()) == settings
    again = tc.models.TextGenerator.from_pretrained(tmp_path / "mine")
    assert repr(again) == repr(generator) and weights(again) == weights(generator) and again._ends == generator._ends
    assert again.generate("he", rng=0) == generator.generate("he", rng=0)
    try:
        from transformers import AutoTokenizer, GPT2LMHeadModel
    except ImportError:
        return
    theirs, tokenizer = GPT2LMHeadModel.from_pretrained(tmp_path / "mine"), AutoTokenizer.from_pretrained(tmp_path / "mine")
    found = theirs.generate(**tokenizer("he", return_tensors="pt"), do_sample=False, max_new_tokens=7)[0]
    assert tokenizer.decode(found, skip_special_tokens=True) == again.generate("he", do_sample=False)


def test_a_generator_without_an_end_is_saved_as_such(tmp_path):
    pytest.importorskip("tokenizers")
    generator = tc.models.TextGenerator.from_pretrained(decoder_folder(tmp_path))
    own = tc.models.TextGenerator(generator.model, generator.tokenizer, {"temperature": np.float32(0.5)}, eos_token_id=[])
    own.save(tmp_path / "mine")
    again = tc.models.TextGenerator.from_pretrained(tmp_path / "mine")
    assert again._ends == () and again._sampling.temperature == 0.5
    own = tc.models.TextGenerator(generator.model, generator.tokenizer, {"bad_words_ids": [[np.int64(3)]]})
    with pytest.raises(TypeError, match="generation_config.json cannot have"):
        own.save(tmp_path / "none")
    assert not (tmp_path / "none").exists()


def test_templates_are_saved(tmp_path):
    pytest.importorskip("tokenizers"), pytest.importorskip("jinja2")
    folder = decoder_folder(tmp_path)
    (folder / "chat_template.jinja").write_text(TEMPLATES["llama3"])
    generator = tc.models.TextGenerator.from_pretrained(folder)
    generator.save(tmp_path / "mine")
    chat = [{"role": "user", "content": "hi"}]
    assert tc.models.TextGenerator.from_pretrained(tmp_path / "mine").prompt(chat) == generator.prompt(chat)


# ---- refusals ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("texts", "options", "error", "message"),
    [
        ("abc", {}, TypeError, "texts must be a sequence of str, pairs of str, or chats, not str; put a single one into a list"),
        ([], {}, ValueError, "texts have nothing to learn, no text of two tokens"),
        ([""], {}, ValueError, "texts have nothing to learn, no text of two tokens"),
        ([3], {}, TypeError, "texts must be str, pairs of str, or chats, but number 0 is 3 "),
        ([("a", "b", "c")], {}, TypeError, r"texts must be str, pairs of str, or chats, but number 0 is \('a', 'b', 'c'\)"),
        (["ok", "a\ud800"], {}, ValueError, r"texts\[1\] has '\\ud800', half of a pair of surrogates"),
        ([("abc" * 9, "abc" * 9)], {}, ValueError, r"texts\[0\] has 55 tokens, more than max_length = 40; shorten it, or raise max_length"),
        ([{"role": "user", "content": "a"}], {}, TypeError, r"texts\[0\] is .*, a mapping; put a single chat into a list"),
        ([{"text": "abc"}], {}, TypeError, r"a mapping; .* pass of a data set's rows row\['text'\]"),
        (["abc"], {"learning_rate": float("inf")}, ValueError, "learning_rate must be finite, got inf"),
        (["abc"], {"learning_rate": 1e300, "weight_decay": 1e30, "epochs": 1}, ValueError, "weights are not finite after the last step"),
        (["abc"], {"max_length": 41}, ValueError, "max_length must be at most 40, the tokens that this model takes, got 41"),
        (["abc"], {"max_length": 1}, ValueError, "max_length must be at least 2"),
        (["abc"], {"epochs": 0}, ValueError, "epochs must be"),
        (["abc"], {"validation": [""]}, ValueError, "validation have nothing to learn"),
        (["abc"], {"num_train_epochs": 2}, TypeError, "epochs="),
        (["abc"], {"block_size": 2}, TypeError, "max_length="),
        ([[{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]], {}, ValueError, "the tokenizer has no chat_template"),
        (["abc"], {"learning_rate": 1e300, "warmup": 0.0}, ValueError, "the loss is .* in epoch 2: the training diverged"),
    ],
)
def test_refused_texts(texts, options, error, message):
    generator = writer()
    before, bits = dict(vars(generator)), weights(generator)
    with pytest.raises(error, match=message):
        generator.fit(texts, **options)
    assert vars(generator) == before and weights(generator) == bits


@pytest.mark.parametrize(
    ("pairs", "options", "error", "message"),
    [
        ([], {}, ValueError, "there are no pairs in pairs"),
        (["abc"], {}, TypeError, "pairs of str, but number 0 is 'abc'"),
        ([("a", "b")], {"validation": []}, ValueError, "there are no pairs in validation"),
        ([("a", "b")], {"tgt_lang": "fr"}, ValueError, "src_lang and tgt_lang are for tokenizers of several languages"),
        ([("a", "b")], {"lr": 1e-3}, TypeError, "learning_rate="),
    ],
)
def test_refused_pairs(pairs, options, error, message):
    generator = translator()
    before = dict(vars(generator))
    with pytest.raises(error, match=message):
        generator.fit(pairs, **options)
    assert vars(generator) == before


def test_too_long_a_text_to_write():
    generator = tc.models.Text2TextGenerator(
        tc.models.create({"model_type": "bart", "vocab_size": 60, "d_model": 16, "encoder_layers": 1, "decoder_layers": 1,
                          "encoder_attention_heads": 2, "decoder_attention_heads": 2, "encoder_ffn_dim": 24, "decoder_ffn_dim": 24,
                          "max_position_embeddings": 8, "eos_token_id": 1}, task="text2text-generation"), Letters(True))  # fmt: skip
    with pytest.raises(ValueError, match=r"the text that is to be written in pairs\[0\] has 10 tokens; this model writes at most 8"):
        generator.fit([("abc", "abcabcabc")])
