"""The examples of docs/models.md, one after another, with small models under the names of the page."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
import transformer_c as tc
from folders import CONFIG, decoder_folder, sentence_folder
from words import write_tokenizer

PAGE = (Path(__file__).parents[2] / "docs/models.md").read_text()


def test_the_examples_of_the_page_run(tmp_path, monkeypatch, capsys):
    pytest.importorskip("tokenizers")
    pytest.importorskip("jinja2")
    pytest.importorskip("tqdm")
    PIL = pytest.importorskip("PIL")
    pytest.importorskip("PIL.Image")
    monkeypatch.chdir(tmp_path)
    for name in ("all-MiniLM-L6-v2", "ms-marco-MiniLM-L6-v2", "reviews", "folder-with-a-head", "gpt2"):
        Path(name).mkdir()
    none = {"prompts": {}, "default_prompt_name": None, "similarity_fn_name": "cosine"}
    sentence_folder(Path("all-MiniLM-L6-v2"), config_sentence_transformers=none, sentence_bert_config=None)  # as the real one: no prompts
    write_tokenizer(Path("all-MiniLM-L6-v2"))
    heads = {"ms-marco-MiniLM-L6-v2": ("text", 1), "reviews": ("text", 3), "folder-with-a-head": ("token", 4)}
    for name, (kind, classes) in heads.items():
        labels = {str(i): f"label {i}" for i in range(classes)}
        tc.models.save(tc.models.create({**CONFIG, "id2label": labels}, task=f"{kind}-classification"), name)
        write_tokenizer(Path(name))
    decoder_folder(Path("gpt2"), tokenizer_config={"chat_template": "{% for m in messages %}{{ m.content }}. {% endfor %}"})
    sizes = {"d_model": 8, "d_kv": 4, "d_ff": 8, "num_layers": 1, "num_heads": 2, "decoder_start_token_id": 0}
    tc.models.save(tc.models.create({"model_type": "t5", "vocab_size": 64, **sizes}, task="text2text-generation"), "flan-t5-small")
    write_tokenizer(Path("flan-t5-small"))
    sizes = {
        "d_model": 8,
        "vocab_size": 64,
        "num_mel_bins": 4,
        "max_source_positions": 50,
        "max_target_positions": 9,
        "decoder_start_token_id": 5,
    }
    sizes |= {f"{side}_{name}": 1 for side in ("encoder", "decoder") for name in ("layers", "attention_heads", "ffn_dim")}
    tc.models.save(tc.models.create({"model_type": "whisper", **sizes}, task="automatic-speech-recognition"), "whisper-tiny")
    speech = {"lang_to_id": {"<|de|>": 8}, "task_to_id": {"translate": 9}, "no_timestamps_token_id": 20, "alignment_heads": [[0, 0]]}
    Path("whisper-tiny/generation_config.json").write_text(json.dumps(speech))
    write_tokenizer(Path("whisper-tiny"), 9)
    texts = ["a text", "another", "yet another", "the last"]
    names = {
        "tc": tc,
        "ids": np.full((2, 5), 7),
        "article": "a text",
        "text": "b",
        "lengths": np.array([5, 3]),
        "mask": np.arange(5) < np.array([[5], [3]]),
    }
    vit = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8, "image_size": 8, "patch_size": 4}
    tc.models.save(tc.models.create({"model_type": "vit", **vit}, task="image-classification"), "vit-base-patch16-224")
    Path("vit-base-patch16-224/preprocessor_config.json").write_text('{"size": 8}')
    side = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}
    clip = {"text_config": {**side, "vocab_size": 64, "eos_token_id": 3}, "vision_config": {**side, "image_size": 8, "patch_size": 4}}
    tc.models.save(tc.models.create({"model_type": "clip", **clip}), "clip-vit-base-patch32")
    Path("clip-vit-base-patch32/preprocessor_config.json").write_text('{"size": 8, "crop_size": 8}')
    write_tokenizer(Path("clip-vit-base-patch32"))
    images = [np.full((9, 12, 3), 40 * i, np.uint8) for i in range(4)]
    PIL.Image.fromarray(images[1]).save("cat.jpg")
    names |= {"PIL": PIL, "array": images[2], "images": images}
    names |= {"samples": np.sin(np.arange(20000) / 9), "others": np.zeros(9)}
    names |= {"texts": texts, "documents": texts, "labels": [0, 1, 0, 1], "more_texts": texts[:2], "more_labels": [1, 0]}
    names |= {"topics": np.array([[1, 0, 0], [1, 1, 0], [0, 1, 1], [0, 0, 0]]), "stars": [0.2, 0.6, 1.0, 0.4]}
    blocks = re.findall(r"```python\n(.*?)```", PAGE, re.S)
    for block in blocks:
        exec(compile(block, "models.md", "exec"), names)
    assert (
        len(blocks) >= 5 and names["states"].shape == (2, 5, 16) and names["scores"].shape == (2, 3) and names["vectors"].shape == (4, 16)
    )
    assert len(names["cache"].lengths) == 2 and names["loss"].item() > 0
    assert np.array_equal(names["found"][0].numpy(), names["states"])
    assert names["several"].predict(texts).shape == (4, 3) and names["rating"].predict(texts).dtype == np.float64
    assert Path("mine/model.safetensors").exists() and names["best"] in range(4)


@pytest.mark.parametrize(
    "mask", [np.array([[1, 1, 0]]), np.array([[True, True, False]]), tc.tensor([[1, 1, 0]])], ids=["int", "bool", "Tensor"]
)
@pytest.mark.parametrize("kind", [np.asarray, tc.tensor])
def test_what_the_page_fills_padding_with_is_taken_of_arrays_and_tensors(mask, kind):
    """Whatever the tokenizer's mask is."""
    scores = tc.models.create(CONFIG, task="question-answering")(kind([[5, 6, 0]]), mask)
    filled = eval(re.search("`([^`]*scores[^`]*inf[^`]*)`", PAGE)[1], {"tc": tc, "np": np, "scores": scores, "mask": mask})
    assert np.isneginf(np.asarray(filled)).tolist() == [[[False] * 2, [False] * 2, [True] * 2]]
