"""Models that are saved here load in transformers, and the other way round. Needs the package transformers; the golden values do not."""

import json
import os
import warnings

import numpy as np
import pytest
import transformer_c as tc
from folders import decoder_folder
from golden import models

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

CASES = models()
CLASSES = {
    None: "AutoModel",
    "text-classification": "AutoModelForSequenceClassification",
    "token-classification": "AutoModelForTokenClassification",
    "fill-mask": "AutoModelForMaskedLM",
    "image-classification": "AutoModelForImageClassification",
    "text-generation": "AutoModelForCausalLM",
}
EACH = [(case, task) for case in CASES for task in CLASSES if task is None or task in CASES[case][1]]


def inputs(case):
    arrays = CASES[case][1]
    names = {"ids": "input_ids", "mask": "attention_mask", "types": "token_type_ids", "pixels": "pixel_values"}
    return {theirs: arrays[ours] for ours, theirs in names.items() if ours in arrays}


def ours(case, model):
    arrays = CASES[case][1]
    if "pixels" in arrays:
        return model(arrays["pixels"])
    return model(arrays["ids"], arrays["mask"], token_types=arrays.get("types"))


def compare(case, model, theirs):
    with torch.no_grad():
        output = theirs.eval()(**{name: torch.from_numpy(x) for name, x in inputs(case).items()})
    expected = (output.logits if "logits" in output else output.last_hidden_state).numpy()
    found = ours(case, model)
    real = CASES[case][1]["mask"] != 0 if expected.ndim == 3 and "mask" in CASES[case][1] else ...
    np.testing.assert_allclose(found[real], expected[real], rtol=0, atol=1e-5 * max(1, np.abs(expected).max()))


@pytest.mark.parametrize(("case", "task"), EACH)
def test_saved_here_loads_there(case, task, tmp_path):
    tc.manual_seed(3)
    model = tc.models.create(CASES[case][0]["config"], task=task)
    tc.models.save(model, tmp_path)
    theirs, report = getattr(transformers, CLASSES[task]).from_pretrained(tmp_path, output_loading_info=True)
    assert not any(report.values()), report
    compare(case, model, theirs)
    if case not in (
        "dinov2",
        "dinov2_with_registers",
        "gpt_neox",
        "nomic_bert",
        "vit",
    ):  # whose names in memory are others than in files, from transformers 5 on
        state = {key: torch.from_numpy(value.numpy().copy()) for key, value in tc.convert.to_hf(model).items()}
        assert str(theirs.load_state_dict(state)) == "<All keys matched successfully>"


@pytest.mark.parametrize(("case", "label"), [(case, label) for case in CASES for label in CASES[case][0].get("rotations", ())])
def test_positions_that_are_scaled(case, label, tmp_path):
    """Are read there from what is saved here, and here from what is saved there."""
    values = {key: value for key, value in CASES[case][0]["config"].items() if key != "rope_parameters"}
    tc.manual_seed(3)
    model = tc.models.create({**values, "max_position_embeddings": 64, **CASES[case][0]["rotations"][label]})
    tc.models.save(model, tmp_path)
    theirs = transformers.AutoModel.from_pretrained(tmp_path).eval()
    ids = CASES[case][1]["rotated.ids"]
    with torch.no_grad():
        expected = theirs(torch.from_numpy(ids)).last_hidden_state.numpy()
    theirs.save_pretrained(tmp_path / "theirs")
    for found in (model(ids), tc.models.load(tmp_path / "theirs")(ids)):
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5 * max(1, np.abs(expected).max()))


OTHER_FILES = [(case, None, files) for case in ("bert", "vit") for files in ("shards", "bin")]


@pytest.mark.parametrize(("case", "task", "files"), [(*each, "one") for each in EACH] + OTHER_FILES)
def test_saved_there_loads_here(case, task, files, tmp_path):
    values = CASES[case][0]["config"]
    config = transformers.AutoConfig.for_model(**values)
    torch.manual_seed(1)
    theirs = getattr(transformers, CLASSES[task]).from_config(config)
    theirs.save_pretrained(tmp_path, **({"max_shard_size": "8KB"} if files == "shards" else {}))
    if files == "shards":
        assert len(list(tmp_path.glob("model-*.safetensors"))) > 1
    if files == "bin":
        os.unlink(tmp_path / "model.safetensors")
        torch.save(theirs.state_dict(), tmp_path / "pytorch_model.bin")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = tc.models.load(tmp_path, task=task)
    compare(case, model, theirs)
    compare(case, tc.convert.from_hf(theirs.state_dict(), config, task=task), theirs)


@pytest.mark.parametrize(
    "files",
    [
        {"generation_config": {"max_length": 12, "repetition_penalty": 1.3}},
        {"generation_config": {"max_new_tokens": 5, "max_length": 9, "temperature": 0.5}},
        {"generation_config": {"max_length": 14, "eos_token_id": [3, 45]}, "settings": {"repetition_penalty": 1.7}},
        {"settings": {"max_length": 11, "repetition_penalty": 1.7}},
    ],
)
def test_settings_of_a_folder(files, tmp_path):
    """Of generation_config.json; without one, those in config.json."""
    pytest.importorskip("tokenizers")
    decoder_folder(tmp_path, **{name: value for name, value in files.items() if name != "settings"})
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **files.get("settings", {})}))
    theirs, generator = transformers.AutoModelForCausalLM.from_pretrained(tmp_path), tc.models.TextGenerator.from_pretrained(tmp_path)
    ids = generator.tokenizer(["he he said"])[0][0]
    expected = theirs.generate(torch.from_numpy(ids)[None]).numpy()[0]
    assert generator.generate("he he said") == generator.tokenizer.decode(expected.tolist())


@pytest.mark.parametrize(
    ("case", "task"),
    [
        ("albert", "token-classification"),
        ("bert", "text-classification"),
        ("modernbert", "text-classification"),
        ("modernbert", "token-classification"),
        ("deberta-v2", "text-classification"),
        ("deberta-v2", "token-classification"),
        ("mpnet", "token-classification"),
        ("nomic_bert", "text-classification"),
        ("dinov2", "image-classification"),
        ("dinov2_with_registers", "image-classification"),
        ("vit", "image-classification"),
    ],
)
def test_gradients(case, task):
    """Of a loss, for every array, by transformers' names; of the scores of tokens, not of padding, for which nothing is computed here."""
    config = transformers.AutoConfig.for_model(**CASES[case][0]["config"])
    torch.manual_seed(2)
    theirs = getattr(transformers, CLASSES[task]).from_config(config).double().eval()
    model = tc.convert.from_hf({k: v.clone() for k, v in theirs.state_dict().items()}, config, task=task)
    output = theirs(
        **{name: torch.from_numpy(x) if x.dtype != np.float32 else torch.from_numpy(x).double() for name, x in inputs(case).items()}
    )
    arrays = CASES[case][1]
    used = arrays["mask"][:, :, None].astype(np.float64) if task == "token-classification" else np.ones((1, 1))
    (output.logits**2 * torch.from_numpy(used)).sum().backward()
    if "pixels" in arrays:
        scores = model(tc.tensor(arrays["pixels"].astype(np.float64)))
    else:
        scores = model(tc.tensor(arrays["ids"]), tc.tensor(arrays["mask"]), token_types=arrays.get("types"))
    (scores**2 * tc.tensor(used)).sum().backward()
    for parameter in model.parameters():  # the embedding of hidden patches has none
        parameter.data = tc.zeros_like(parameter) if parameter.grad is None else parameter.grad
    expected = {name: torch.zeros_like(p) if p.grad is None else p.grad for name, p in theirs.named_parameters()}
    found = tc.convert.to_hf(tc.convert.from_hf({k: v for k, v in expected.items()}, config, task=task))
    ours = tc.convert.to_hf(model)
    assert ours.keys() == found.keys()
    tolerance = 1e-8 if case == "modernbert" else 1e-10  # it rotates queries and keys in float32 there
    for name, value in found.items():
        np.testing.assert_allclose(
            ours[name].numpy(), value.numpy(), rtol=0, atol=tolerance * max(1, np.abs(value.numpy()).max()), err_msg=name
        )
