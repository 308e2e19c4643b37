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
# # From self-attention to a judge of film reviews
#
# A companion to a book's chapter on Transformers, which builds self-attention up from a dot product and ends with a Keras model that
# tells good film reviews from bad ones. Here the formulas are computed one by one, and the model is `transformer_c`'s, with Keras's weights, counts and optimizer.
#
# Tags such as [C1] are the rows of `docs/documents.md`. The chapter prints no results of its training; what its code determines is the same here.

# %% [markdown]
# ## Setup
#
# `TRANSFORMER_C_FAST=1` in the environment makes the training short.

# %%
import os
import tempfile
from pathlib import Path

import numpy as np
import transformer_c as tc
from transformer_c.tutorials import keras_book
from transformer_c.tutorials.keras_book import TextVectorization, TransformerEncoder

FAST = os.environ.get("TRANSFORMER_C_FAST") == "1"
rng = np.random.default_rng(0)


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def parameters(module):
    return sum(p.numel() for p in module.parameters())


# %% [markdown]
# ## Why words should talk to each other
#
# A recurrent network reads a sentence word by word and hands a state on; a distant word has faded, and no step can start before the previous one has finished.
# Self-attention lets every word attend to every other directly, at any distance, all at once. A stack of such layers is connected like a dense network, except that
# its nodes are vectors and its weights are computed again for every sentence.
#
# ## [C1] Self-attention without parameters
#
# $N$ words are the rows of a matrix $X$ of shape $(N, d)$. How much word $i$ cares for word $j$ is their dot product; a softmax turns a row of those into weights that add
# up to 1; the new word is the weighted sum of all:
#
# $$Z = \text{softmax}\left(X X^T\right) X$$
#
# Nothing is scaled here, and nothing can be learnt. Four words as vectors: *film* and *movie* point in nearly the same direction, so they attend to each other.

# %%
words = ["the", "film", "a", "movie"]
X = np.array([[0.1, 0.2, 1.0], [1.6, 0.9, 0.0], [0.0, 0.4, 0.9], [1.5, 1.1, 0.1]])
weights = softmax(X @ X.T)
Z = keras_book.self_attention(X)
print(f"written out, the result differs by {np.abs(Z - weights @ X).max():.0e}")
tc.plot.attention_maps(weights, words, title="softmax(X Xᵀ)")

# %% [markdown]
# ## [C2] Queries, keys, values
#
# Three matrices give the layer something to learn. $W^Q$ turns each word into what it looks for, $W^K$ into what it matches, $W^V$ into what it contributes. The division by
# $\sqrt{d}$ keeps the scores of wide vectors from growing, and the softmax from putting everything on one word.
#
# $$Q = X W^Q, \quad K = X W^K, \quad V = X W^V, \qquad Z = \text{softmax}\left(\frac{Q K^T}{\sqrt d}\right) V$$
#
# Word by word, as the chapter has it, and all at once, the result is the same.

# %%
d = 3
W_q, W_k, W_v = rng.standard_normal((3, d, d))
Z = keras_book.scaled_self_attention(X, W_q, W_k, W_v)
word_by_word = np.empty_like(Z)
for i in range(len(X)):
    scores = np.array([(X[i] @ W_q) @ (X[j] @ W_k) / d**0.5 for j in range(len(X))])
    w = softmax(scores)
    word_by_word[i] = sum(w[j] * (X[j] @ W_v) for j in range(len(X)))
print(f"they differ by {np.abs(word_by_word - Z).max():.0e}")

# %% [markdown]
# ## [C3] Several heads
#
# One set of weights follows one kind of relation; $H$ heads follow several. Their results are concatenated and mixed by $W^O$. How wide is a head?
#
# - $d / H$ in the original paper: the number of parameters does not depend on $H$;
# - $d$ in Keras, when `key_dim` is the width of the embedding, as in this chapter: with every head there is more to learn.

# %%
N, d, H = 5, 8, 2
X = rng.standard_normal((N, d))
apart = {}
for name, width in {"d/H": d // H, "d  ": d}.items():
    W_q, W_k, W_v = rng.standard_normal((3, H, d, width))
    W_o = rng.standard_normal((H * width, d))
    Z = keras_book.multi_head_self_attention(X, W_q, W_k, W_v, W_o)
    side_by_side = [softmax(X @ q @ (X @ k).T / width**0.5) @ (X @ v) for q, k, v in zip(W_q, W_k, W_v, strict=True)]
    apart[name] = np.abs(np.concatenate(side_by_side, axis=-1) @ W_o - Z).max()
    print(
        f"heads of {name}: concatenated ({N}, {H * width}), {3 * H * d * width + H * width * d} weights; written out, {apart[name]:.0e} apart"
    )

# %% [markdown]
# Two heads of random matrices, two views of the same five words.

# %%
heads = np.stack([softmax(X @ q @ (X @ k).T / d**0.5) for q, k in zip(W_q, W_k, strict=True)])
tc.plot.attention_maps(heads, [f"X{i + 1}" for i in range(N)], title="Two heads with random weights")

# %% [markdown]
# ## [C4] Layer normalisation
#
# Batch normalisation compares one feature over a batch; this one compares the features of a single vector, and so does not depend on other words or texts.
# Keras adds $\epsilon = 0.001$ to the variance, a hundred times PyTorch's.
#
# $$\mu = \frac{1}{d} \sum_m a_m, \qquad \sigma^2 = \frac{1}{d} \sum_m (a_m - \mu)^2, \qquad c_m = \gamma \frac{a_m - \mu}{\sqrt{\sigma^2 + \epsilon}} + \beta$$


# %%
def layer_norm(a, gamma, beta, eps=1e-3):
    mu = a.mean(-1, keepdims=True)
    variance = ((a - mu) ** 2).mean(-1, keepdims=True)
    return gamma * (a - mu) / np.sqrt(variance + eps) + beta


norm = tc.nn.LayerNorm(8, eps=keras_book.LAYER_NORM_EPS).double()
print(f"eps = {norm.eps}; written out, the result differs by {np.abs(norm(X) - layer_norm(X, gamma=1, beta=0)).max():.0e}")

# %% [markdown]
# ## [C5] The dense network
#
# Attention is a weighted sum; the network after it adds the non-linearity. It sees each word on its own, with the same weights for all, and in the paper it widens them
# from $d$ to $4d$ and back.
#
# $$R = \text{ReLU}(Z W_1 + b_1) W_2 + b_2$$

# %%
dense = tc.nn.Sequential(tc.nn.Linear(d, 4 * d), tc.nn.ReLU(), tc.nn.Linear(4 * d, d)).double()
W_1, b_1, W_2, b_2 = (p.detach().numpy() for p in dense.parameters())
R = np.maximum(X @ W_1.T + b_1, 0) @ W_2.T + b_2
print(
    f"written out, the result differs by {np.abs(dense(X) - R).max():.0e}; of one word alone, by {np.abs(dense(X[2:3]) - R[2:3]).max():.0e}"
)

# %% [markdown]
# ## [C6] An encoder layer
#
# Around both parts a residual connection, and then the norm:
#
# $$Z = \text{LayerNorm}(X + \text{SelfAttention}(X)), \qquad R = \text{LayerNorm}(Z + \text{Dense}(Z))$$
#
# The library's layer is these two lines.

# %%
encoder = TransformerEncoder(embed_dim=8, dense_dim=32, num_heads=2).double()
x = X[None]  # a batch of one
with tc.no_grad():
    z = layer_norm(x + np.asarray(encoder.attention(tc.tensor(x), tc.tensor(x))), 1, 0)
    r = layer_norm(z + np.asarray(encoder.dense_proj(tc.tensor(z))), 1, 0)
print(encoder)
print(f"the two lines and the layer differ by {np.abs(encoder(x) - r).max():.0e}")

# %% [markdown]
# ## [C7] Reviews
#
# The chapter reads IMDB from folders `train`, `val` and `test`, each with `neg` and `pos`, in batches of 32. That means downloading 50,000 reviews, which a notebook
# cannot rely on. If you have them, or a CSV file with columns for text and label, put its path into `REVIEWS`.
#
# **Otherwise the next cell makes a small data set up**: 384 reviews of stock phrases, of which those that praise and those that pan use different adjectives. It shows
# how everything works, but is far too easy to measure quality; the accuracies below are not IMDB's.

# %%
REVIEWS = ""  # such as "movie_reviews.csv"

ADJECTIVES = {
    "pos": [
        "great",
        "wonderful",
        "moving",
        "brilliant",
        "funny",
        "charming",
        "touching",
        "superb",
        "clever",
        "warm",
        "gripping",
        "delightful",
    ],
    "neg": ["dull", "awful", "boring", "weak", "clumsy", "tedious", "stupid", "pointless", "cold", "messy", "dreadful", "endless"],
}
NOUNS = ["film", "movie", "plot", "story", "cast", "acting", "music", "ending", "script", "dialogue", "camera", "pace"]
OPINIONS = [
    "The {noun} is {adjective}!",
    "I found the {noun} rather {adjective}.",
    "What a {adjective} {noun}...",
    "It has a {adjective} {noun}.",
]
FACTS = ["We saw it on a Friday.", "It runs for two hours.", "A detective looks for her brother.", "I had not read the book.",
         "It was shot in the north, in winter.", "My sister came along.", "There are two other parts.", "The house was half empty."]  # fmt: skip


def made_up_review(kind, draw):
    opinions = [
        draw.choice(OPINIONS).format(noun=draw.choice(NOUNS), adjective=draw.choice(ADJECTIVES[kind])) for _ in range(draw.integers(2, 5))
    ]
    sentences = opinions + list(draw.choice(FACTS, draw.integers(2, 6), replace=False))
    return " ".join(draw.permutation(sentences))


base_dir = Path(tempfile.mkdtemp())
draw = np.random.default_rng(7)
for part, count in {"train": 128, "val": 32, "test": 32}.items():
    for kind in ("neg", "pos"):
        folder = base_dir / part / kind
        folder.mkdir(parents=True)
        for number in range(count):
            (folder / f"{number:03}.txt").write_text(made_up_review(kind, draw))

if REVIEWS:
    texts, classes = tc.datasets.load_reviews(REVIEWS)
    order = np.random.RandomState(0).permutation(len(texts))
    cuts = np.split(order, [int(0.6 * len(texts)), int(0.8 * len(texts))])
    parts = {part: ([texts[i] for i in chosen], classes[chosen]) for part, chosen in zip(("train", "val", "test"), cuts, strict=True)}
else:
    parts = {part: tc.datasets.load_reviews(base_dir / part) for part in ("train", "val", "test")}
for part, (texts, classes) in parts.items():
    print(f"{part:5} {len(texts):6,} reviews, {100 * np.mean(classes):.0f} % of them good")
print(parts["train"][0][0])

# %% [markdown]
# ## [C8] Words as numbers
#
# `TextVectorization` converts to lower case, removes punctuation, splits at spaces and counts. A word's number is its rank: 0 pads, 1 is any word that is not among the
# 20,000 most frequent, 2 is the most frequent. The chapter's prose limits reviews to 600 characters; its code does so to 600 *words*.

# %%
max_length = 600
max_tokens = 20000
text_vectorization = TextVectorization(max_tokens=max_tokens, output_mode="int", output_sequence_length=max_length)
text_vectorization.adapt(parts["train"][0])
vocabulary = text_vectorization.get_vocabulary()
print(f"{len(vocabulary):,} words:", vocabulary[:8])
example = text_vectorization(f"{vocabulary[2].upper()}!!! xyzzy, {vocabulary[3]}.")
print(example[:6])

# %%
batch_size = 32
int_train_ds, int_val_ds, int_test_ds = (
    keras_book.review_loader(*parts[part], text_vectorization, batch_size=batch_size, shuffle=part == "train")
    for part in ("train", "val", "test")
)
inputs, targets = next(iter(int_train_ds))
print("a batch:", inputs.shape, inputs.dtype, targets.shape)

# %% [markdown]
# ## [C9] The encoder of the chapter
#
# `TransformerEncoder(embed_dim, dense_dim, num_heads)`. With `key_dim=embed_dim` each of the two heads is 32 wide and their results together 64. A mask, if given,
# has a 1 for each word that may be attended to and is the same for all queries: `mask[:, None, :]`. Then padding changes nothing: the outputs for the words are the
# same as without padding.

# %%
embed_dim, num_heads, dense_dim, vocab_size = 32, 2, 32, 20000
tc.manual_seed(42)
encoder = TransformerEncoder(embed_dim, dense_dim, num_heads)
x = rng.standard_normal((4, 20, embed_dim)).astype(np.float32)
mask = np.arange(20) < 12
masked, alone, unmasked = encoder(x, np.tile(mask, (4, 1))), encoder(x[:, :12]), encoder(x)
print(encoder.get_config())
for name, output in {"with a mask": masked, "without": unmasked}.items():
    print(f"padding changes the words by {np.abs(output[:, :12] - alone).max():.0e} {name}")

# %% [markdown]
# In the chapter's model no mask ever reaches the encoder, because its embedding does not say which words are padding, and it has no positions either: it treats a review
# as a bag of words, most of them padding. We keep both.

# %%
order = rng.permutation(20)
print(f"words in another order: outputs in that order, {np.abs(encoder(x[:, order]) - unmasked[:, order]).max():.0e} apart")

# %% [markdown]
# ## [C10] The model
#
# An embedding for 20,000 words, the encoder, the largest value of each feature over all words, dropout, and one probability. Its summary matches Keras's to the last
# parameter; the rows of the chapter's spreadsheet follow below.

# %%
tc.manual_seed(42)
model = keras_book.build_model(vocab_size, embed_dim, num_heads, dense_dim)
print(model.summary())
encoder = model.transformer_encoder
rows = {
    "query, key, value: 3 x (32 x 64 + 64)": sum(
        map(parameters, (encoder.attention.query, encoder.attention.key, encoder.attention.value))
    ),
    "output: 64 x 32 + 32": parameters(encoder.attention.output),
    "dense: 2 x (32 x 32 + 32)": parameters(encoder.dense_proj),
    "two layer norms: 2 x (32 + 32)": parameters(encoder.layernorm_1) + parameters(encoder.layernorm_2),
}
print()
for row, count in rows.items():
    print(f"{row:40}{count:>8,}")

# %% [markdown]
# The chapter compares it to an LSTM of the same width: its four gates have $4 (32 \cdot 32 + 32 \cdot 32 + 32)$ parameters, and with embedding and output nearly as many in
# all.

# %%
lstm = 4 * (embed_dim * embed_dim + embed_dim * embed_dim + embed_dim)
print(f"LSTM {lstm:,} of {20000 * 32 + lstm + 33:,};  encoder {parameters(encoder):,} of {parameters(model):,}")

# %% [markdown]
# ## [C11] Training
#
# Keras's `compile` and `fit` are `configure_optimizers` and `tc.Trainer`: RMSprop with Keras's defaults (learning rate 0.001, $\rho = 0.9$, $\epsilon = 10^{-7}$ inside the root),
# binary cross-entropy, accuracy. 15 epochs.

# %%
optimizer = model.configure_optimizers()
group = optimizer.param_groups[0]
epochs = 6 if FAST else 2 if REVIEWS else 15
trainer = tc.Trainer(max_epochs=epochs, progress=False)
trainer.fit(model, int_train_ds, int_val_ds)
tc.plot.losses(trainer.history, title="Reviews" if REVIEWS else "Made-up reviews")

# %%
(result,) = trainer.test(model, int_test_ds, verbose=False)
print(f"test accuracy {100 * result['test_accuracy']:.2f} %" + ("" if REVIEWS else " of made-up reviews"))

# %% [markdown]
# ## Judging a sentence
#
# A Transformer accepts inputs of any length, so a sentence can be judged without padding.

# %%
model.eval()
sentences = ["The plot is great and the acting superb", "A tedious story with an awful ending"]
numbers = [text_vectorization([sentence])[:, : len(sentence.split())] for sentence in sentences]
chances = [float(model.predict(n)[0, 0]) for n in numbers]
for sentence, chance in zip(sentences, chances, strict=True):
    print(f"{100 * chance:5.1f} % good: {sentence}")

# %% [markdown]
# Does it need attention for that? The vectors of the embedding are short, so that all scores are near 0 at the start and all weights near $1/N$. On the stock phrases they
# stay there: one adjective decides a review, and the largest value over all words finds it without help.

# %%
with tc.no_grad():
    embedded = model.embedding(tc.tensor(numbers[0]))
    _, maps = encoder.attention(embedded, embedded, return_attention_scores=True)
uniform = 1 / maps.shape[-1]
print(f"attention weights from {maps.numpy().min():.4f} to {maps.numpy().max():.4f}; 1/N is {uniform:.4f}")
