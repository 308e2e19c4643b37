"""Small folders of models, as sentence-transformers and transformers write them."""

import io
import json

import transformer_c as tc
from transformer_c.models.architectures import ARCHITECTURES
from transformer_c.models.decoder import TextDecoder
from transformer_c.models.layers import TextEncoder
from words import tokenizer_json

CONFIG = {
    "model_type": "bert",
    "vocab_size": 64,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 24,
    "max_position_embeddings": 40,
}
DECODER = {
    "model_type": "gpt2",
    "vocab_size": 60,
    "n_embd": 32,
    "n_head": 2,
    "n_inner": 48,
    "n_layer": 2,
    "n_positions": 40,
    "initializer_range": 0.3,
}
# The codes of languages, by the class of a tokenizer.
LANGUAGES = {"NllbTokenizer": ["eng_Latn", "fra_Latn", "zho_Hans"], "MBart50Tokenizer": ["en_XX", "fr_XX", "zh_CN"]}
LANGUAGES["MBartTokenizer"] = LANGUAGES["MBart50Tokenizer"]
# The names in config.json of the sizes of a model: BERT's, and those of architectures that have others.
SIZES = {
    "width": ("hidden_size", "dim", "n_embd"),
    "heads": ("num_attention_heads", "num_key_value_heads", "n_heads", "n_head"),
    "hidden": ("intermediate_size", "hidden_dim", "n_inner"),
    "layers": ("num_hidden_layers", "n_layers", "n_layer"),
    "words": ("vocab_size",),
    "positions": ("max_position_embeddings", "n_positions"),
}
# What makes DeBERTa compute all that it can; the others have no such names.
DISTANCES = {
    **{"relative_attention": True, "pos_att_type": ["c2p", "p2c"], "share_att_key": True, "position_buckets": 16},
    **{"norm_rel_ebd": "layer_norm", "position_biased_input": False, "conv_kernel_size": 3, "conv_act": "gelu"},
}
# A file's own truncation and padding, which are not those of the model.
TRUNCATION = {"direction": "Right", "max_length": 5, "strategy": "LongestFirst", "stride": 0}
PADDING = {"strategy": {"Fixed": 30}, "direction": "Right", "pad_to_multiple_of": None, "pad_id": 0, "pad_type_id": 0, "pad_token": "[PAD]"}


def own_text_encoders():
    """The names of the architectures that read texts; one alone of those that differ in nothing but their tables and values."""
    own = {"__init__", "layer", "widths"}
    return [name for name, kind in ARCHITECTURES.items() if issubclass(kind, TextEncoder) and not own.isdisjoint(vars(kind))]


def rotates(kind):
    """Whether an architecture rotates pairs of numbers, so that its heads have two at least."""
    return kind in ("modernbert", "nomic_bert") or (issubclass(ARCHITECTURES[kind], TextDecoder) and kind != "gpt2")


def sizes(**values):
    """Sizes of a model as values of config.json, whatever its architecture."""
    return {**DISTANCES, **{name: value for size, value in values.items() for name in SIZES[size]}}


def text_tasks():
    """(architecture, task) of all that read texts; None: the encoder alone."""
    return [(kind, task) for kind in own_text_encoders() for task in (None, *ARCHITECTURES[kind].table.heads)]


def sentence_folder(folder, config=CONFIG, **files):
    """Writes a folder of sentence-transformers'; `files` are other contents of its JSON files, None for none; returns it."""
    tc.manual_seed(5)
    model = tc.models.create({**config, "initializer_range": 0.3})
    tc.models.save(model, folder)
    kind = "sentence_transformers.models."
    contents = {
        "tokenizer": tokenizer_json(truncation=TRUNCATION, padding=PADDING),
        "modules": [
            {"idx": 0, "name": "0", "path": "", "type": kind + "Transformer"},
            {"idx": 1, "name": "1", "path": "1_Pooling", "type": kind + "Pooling"},
            {"idx": 2, "name": "2", "path": "2_Normalize", "type": kind + "Normalize"},
        ],
        "sentence_bert_config": {"max_seq_length": 20, "do_lower_case": False},
        "config_sentence_transformers": {"prompts": {"query": "find:"}, "default_prompt_name": None, "similarity_fn_name": "dot"},
        "1_Pooling/config": {"pooling_mode_cls_token": False, "pooling_mode_mean_tokens": True},
        **files,
    }
    (folder / "1_Pooling").mkdir(exist_ok=True)
    for name, value in contents.items():
        if value is not None:
            (folder / f"{name}.json").write_text(json.dumps(value))
    return folder


def decoder_folder(folder, **files):
    """Writes a folder with a decoder and a tokenizer of bytes, of the package tokenizers; `files` are contents of other JSON files; returns it."""
    from tokenizers import pre_tokenizers

    words = {word: i for i, word in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    words |= {"he": 256, "Ġhe": 257, "<|endoftext|>": 258}
    tc.manual_seed(1)
    values = {**DECODER, "vocab_size": len(words), "n_positions": 60, "eos_token_id": 258}
    tc.models.save(tc.models.create(values, task="text-generation"), folder)
    (folder / "vocab.json").write_text(json.dumps(words))
    (folder / "merges.txt").write_text("#version: 0.2\nh e\nĠ he\n")
    for name, value in files.items():
        (folder / f"{name}.json").write_text(json.dumps(value))
    return folder


def marian_files(folder, **files):
    """Writes a folder's files of Marian's tokenizer, by the package sentencepiece; `files` are contents of other JSON files; returns the words."""
    import sentencepiece

    words = ["</s>", "<unk>"]
    for name, text in (
        ("source", "the small house has a garden and the house is in the garden"),
        ("target", "la petite maison a un jardin et la maison est dans le jardin"),
    ):
        made = io.BytesIO()
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter([text, *text.split()] * 9), model_writer=made, vocab_size=40, hard_vocab_limit=False, num_threads=1,
            minloglevel=2,
        )  # fmt: skip
        (folder / f"{name}.spm").write_bytes(made.getvalue())
        model = sentencepiece.SentencePieceProcessor(model_proto=made.getvalue())
        own = (model.id_to_piece(i) for i in range(3, model.get_piece_size()))
        words += [piece for piece in own if piece not in words]
    words += [">>fr<<", ">>it<<", "\u2581.", "\u2581n", "'t", "<pad>"]
    values = {
        "source_lang": "en",
        "target_lang": "fr",
        "separate_vocabs": False,
        "model_max_length": 30,
        "tokenizer_class": "MarianTokenizer",
    }
    for name, value in {"vocab": {word: i for i, word in enumerate(words)}, "tokenizer_config": values, **files}.items():
        (folder / f"{name}.json").write_text(json.dumps(value))
    return words


def language_folder(folder, name="NllbTokenizer", **values):
    """Writes a folder with a translator of several languages and a tokenizer of letters; `values` are others of its file; returns it."""
    import tokenizers

    words = ["<s>", "<pad>", "</s>", "<unk>", *"\u2581abcdefghijklmnopqrstuvwxyz.", "he", "\u2581he", "th", "\u2581the"]
    if name == "NllbTokenizer":
        merges = [("h", "e"), ("\u2581", "he"), ("t", "h"), ("\u2581", "th"), ("\u2581th", "e")]
        words.insert(-1, "\u2581th")
        model = tokenizers.models.BPE({word: i for i, word in enumerate(words)}, merges, unk_token="<unk>", fuse_unk=True)
    else:
        words += [*LANGUAGES[name], "<mask>"]
        model = tokenizers.models.Unigram([(word, -float(len(words) - len(word))) for word in words], unk_id=3)
    own = tokenizers.Tokenizer(model)
    before = tokenizers.pre_tokenizers
    own.pre_tokenizer = before.Metaspace()
    if name == "MBart50Tokenizer":
        own.normalizer = tokenizers.normalizers.Sequence([tokenizers.normalizers.Replace(tokenizers.Regex(" {2,}"), " ")])
    if name == "MBartTokenizer":
        own.pre_tokenizer = before.Sequence([before.WhitespaceSplit(), before.Metaspace()])
    own.decoder = tokenizers.decoders.Metaspace()
    own.add_special_tokens(["<s>", "<pad>", "</s>", "<unk>", *LANGUAGES[name], "<mask>"])
    own.post_processor = tokenizers.processors.TemplateProcessing(single=["<s>", "$A"], special_tokens=[("<s>", 0)])  # which is not used
    own.save(str(folder / "tokenizer.json"))
    config = {
        **{
            "model_type": "m2m_100" if name == "NllbTokenizer" else "mbart",
            "vocab_size": own.get_vocab_size(),
            "d_model": 16,
            "max_position_embeddings": 40,
            "pad_token_id": 1,
        },
        **{"encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 2, "decoder_attention_heads": 2, "encoder_ffn_dim": 24},
        **{"decoder_ffn_dim": 24, "decoder_start_token_id": 2, "eos_token_id": 2, "initializer_range": 0.5},
    }
    tc.manual_seed(1)
    tc.models.save(tc.models.create(config, task="text2text-generation"), folder)
    special = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>", "mask_token": "<mask>"}
    values = {**special, "tokenizer_class": name, "model_max_length": 12, **values}
    (folder / "tokenizer_config.json").write_text(json.dumps({key: value for key, value in values.items() if value is not None}))
    return folder


def coded_folder(folder, **values):
    """Writes a folder with a small M2M100 and its tokenizer, by the package sentencepiece; `values` are others of its file; returns it."""
    import sentencepiece
    from transformer_c.models.language_pieces import _CODES

    made, text = io.BytesIO(), "the small house has a garden and the house is in the garden"
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter([text, *text.split()] * 9), model_writer=made, vocab_size=40, hard_vocab_limit=False, num_threads=1, minloglevel=2
    )  # fmt: skip
    folder.mkdir(exist_ok=True)
    (folder / "sentencepiece.bpe.model").write_bytes(made.getvalue())
    model = sentencepiece.SentencePieceProcessor(model_proto=made.getvalue())
    words = ["<s>", "<pad>", "</s>", "<unk>", *(model.id_to_piece(i) for i in range(3, model.get_piece_size()))]
    (folder / "vocab.json").write_text(json.dumps({word: i for i, word in enumerate(words)}))
    count = len(words) + (8 if values.get("language_codes") == "wmt21" else 100)
    sizes = {"d_model": 16, "encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 2, "decoder_attention_heads": 2}
    config = {"model_type": "m2m_100", "vocab_size": count + 8, **sizes, "encoder_ffn_dim": 24, "decoder_ffn_dim": 24}
    config |= {"max_position_embeddings": 40, "pad_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 2, "initializer_range": 0.5}
    tc.manual_seed(1)
    tc.models.save(tc.models.create(config, task="text2text-generation"), folder)
    values = {
        "tokenizer_class": "M2M100Tokenizer",
        "model_max_length": 20,
        "additional_special_tokens": [f"__{code}__" for code in _CODES["m2m100"].split()],
        **values,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(values))
    return folder
