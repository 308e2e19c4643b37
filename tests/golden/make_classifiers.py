"""Writes classifiers.npz with transformers 5, sentence-transformers 6 and PyTorch 2.13: small models, fine-tuned and used.

python tests/golden/make_classifiers.py [FOLDER]

``text`` and ``token``: AdamW, the gradient's norm at most 1, the learning rate rising and falling in lines, without dropout, in float64, all
samples in each step: ``losses``, and ``scores`` afterwards. ``labels``, ``numbers`` and ``columns``: the same for several labels of each text, and
for regression with one and with three outputs, and (``one``) with one label of which nothing says so; ``answers``: what transformers' pipeline makes of the
scores. ``pairs``: CrossEncoder's ``scores`` and ``probabilities`` of ``texts``.
``contrast``: multiple negatives ranking loss of ``a``, ``b`` and ``c``, and its gradients.
"""

import pathlib
import sys
import tempfile
from types import SimpleNamespace

import numpy as np
import torch
import transformers as T
import writing
from sentence_transformers import CrossEncoder
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss
from transformers.pipelines import TextClassificationPipeline

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "models"))
import words

SMALL = {"vocab_size": 64, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24}
STEPS, WARM, RATE, DECAY = 8, 2, 1e-2, 0.1


def small(**values):
    """A configuration without dropout."""
    without = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    return T.BertConfig(**SMALL, **without, **{"num_labels": 3, **values}, max_position_embeddings=40)


def randomise(module):
    """Weights of a size that all parts of a result depend on, exact in float32."""
    for name, parameter in module.named_parameters():
        spread, middle = (0.1, 1.0) if parameter.ndim == 1 and name.endswith("weight") else (0.3, 0.0)
        parameter.data = (middle + spread * torch.randn_like(parameter.data)).float().to(parameter.dtype)
    return module


def fine_tuned(kind, labels, **values):
    """(losses, scores) of a model of transformers; labels (B,), or (B, T) with -100; floats for other problems than one class of each text."""
    torch.manual_seed(7)
    model = randomise(kind.from_config(small(**values)).double())
    arrays = {f"state.{key}": value.float().numpy() for key, value in model.state_dict().items()}
    ids, mask = (torch.tensor(x) for x in words.padded(words.TEXTS))
    decayed = [p for p in model.parameters() if p.ndim > 1]
    others = [p for p in model.parameters() if p.ndim <= 1]
    optimizer = torch.optim.AdamW([{"params": decayed, "weight_decay": DECAY}, {"params": others, "weight_decay": 0.0}], lr=RATE)
    schedule = T.get_linear_schedule_with_warmup(optimizer, WARM, STEPS)
    losses = []
    for _ in range(STEPS):
        loss = model(input_ids=ids, attention_mask=mask, labels=torch.tensor(labels)).loss
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        losses.append(loss.item())
    arrays["losses"] = np.array(losses)
    scores = model.eval()(input_ids=ids, attention_mask=mask).logits.detach()
    arrays["scores"] = scores.numpy()
    if values:
        reader = SimpleNamespace(model=model)  # a pipeline of which only the last step is run
        answers = [TextClassificationPipeline.postprocess(reader, {"logits": row[None]}, top_k=None) for row in scores]
        arrays["answers"] = np.array([[entry["score"] for entry in each] for each in answers])
    return arrays


def pairs():
    """A CrossEncoder's numbers."""
    torch.manual_seed(8)
    config = T.BertConfig(**SMALL, max_position_embeddings=40, num_labels=1)
    model = randomise(T.BertForSequenceClassification(config)).eval()
    arrays = {f"state.{key}": value.float().numpy() for key, value in model.state_dict().items()}
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        words.write_tokenizer(pathlib.Path(folder))
        encoder = CrossEncoder(folder, device="cpu")
        encoder.model.double()
        arrays["scores"] = encoder.predict(words.PAIRS, activation_fn=torch.nn.Identity(), convert_to_numpy=True)
        arrays["probabilities"] = encoder.predict(words.PAIRS, convert_to_numpy=True)
    return arrays


def contrast():
    """The loss of embeddings, in float64; with the third ones as hard negatives, and without."""
    torch.manual_seed(9)
    found = {name: torch.randn(5, 8, dtype=torch.float64, requires_grad=True) for name in "abc"}
    loss = MultipleNegativesRankingLoss(torch.nn.Identity())
    arrays = {name: value.detach().numpy() for name, value in found.items()}
    arrays["two"] = loss.compute_loss_from_embeddings([found["a"], found["b"]], None).detach().numpy()
    three = loss.compute_loss_from_embeddings(list(found.values()), None)
    three.backward()
    return {**arrays, "three": three.detach().numpy(), **{f"d{name}": value.grad.numpy() for name, value in found.items()}}


def main(folder):
    torch.set_num_threads(1)
    tags = np.full(words.padded(words.TEXTS)[0].shape, -100)
    for row, text in zip(tags, words.TAGS, strict=True):
        row[1 : 1 + len(text)] = text
    several, number = {"problem_type": "multi_label_classification"}, {"problem_type": "regression"}
    cases = {
        "text": fine_tuned(T.AutoModelForSequenceClassification, words.LABELS),
        "labels": fine_tuned(T.AutoModelForSequenceClassification, np.array(words.SEVERAL, np.float64), **several),
        "numbers": fine_tuned(T.AutoModelForSequenceClassification, np.array(words.NUMBERS), **number, num_labels=1),
        "columns": fine_tuned(T.AutoModelForSequenceClassification, words.columns(), **number),
        "one": fine_tuned(T.AutoModelForSequenceClassification, np.array(words.NUMBERS), num_labels=1),
        "token": fine_tuned(T.AutoModelForTokenClassification, tags.tolist()),
        "pairs": pairs(),
        "contrast": contrast(),
    }
    options = {case: {"config": {k: v for k, v in small().to_dict().items() if v is not None}} for case in cases}
    options["labels"]["config"].update(several)
    options["columns"]["config"].update(number)
    options["numbers"]["config"].update(number, id2label={"0": "LABEL_0"})
    options["one"]["config"]["id2label"] = {"0": "LABEL_0"}
    options["pairs"]["config"] = {**options["pairs"]["config"], "id2label": {"0": "LABEL_0"}}
    first = cases["text"]
    for case in ("labels", "numbers", "columns"):  # begin with the weights of "text", where shapes are equal
        cases[case] = {name: value for name, value in cases[case].items() if name not in first or not np.array_equal(value, first[name])}
    cases["one"] = {name: value for name, value in cases["one"].items() if name not in cases["numbers"] or not name.startswith("state.")}
    writing.write(folder / "classifiers.npz", {case: (options[case], found) for case, found in cases.items()})


if __name__ == "__main__":
    main(writing.folder())
