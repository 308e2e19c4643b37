"""Writes small.weights.h5 and keras.npz: a file and results of Keras 3 (on PyTorch) for a small version of the book chapter's model.

KERAS_BACKEND=torch python tests/golden/make_keras.py [FOLDER]
"""

import pathlib
import sys

import keras
import numpy as np
from keras import layers
from make_golden import Cases

VOCABULARY, EMBED, DENSE, HEADS = 12, 4, 6, 3


class TransformerEncoder(layers.Layer):
    """One block, the residuals as functions."""

    def __init__(self, **options):
        super().__init__(**options)
        self.attention = layers.MultiHeadAttention(HEADS, EMBED)
        self.dense_proj = keras.Sequential([layers.Dense(DENSE, "relu"), layers.Dense(EMBED)])
        self.layernorm_1, self.layernorm_2 = layers.LayerNormalization(), layers.LayerNormalization()

    def call(self, x, mask=None):
        keys = None if mask is None else mask[:, None]
        z = self.layernorm_1(layers.add([x, self.attention(x, x, attention_mask=keys)]))
        return self.layernorm_2(layers.add([z, self.dense_proj(z)]))


def main(folder):
    keras.utils.set_random_seed(42)
    words = keras.Input((None,), dtype="int64")
    encoder = TransformerEncoder()
    x = encoder(layers.Embedding(VOCABULARY, EMBED)(words))
    x = layers.Dropout(0.0)(layers.GlobalMaxPooling1D()(x))
    model = keras.Model(words, layers.Dense(1, activation="sigmoid")(x))
    for weight in model.weights:  # biases and layer norms that are not 0 and 1, to tell them apart
        if weight.path.endswith(("bias", "beta", "gamma")):
            weight.assign_add(keras.random.normal(weight.shape, stddev=0.2))
    model.save_weights(pathlib.Path(folder) / "small.weights.h5")
    random = np.random.RandomState(3)
    inputs = random.standard_normal((3, 7, EMBED)).astype(np.float32)
    mask = np.arange(7) < np.array([[7], [3], [0]])
    numbers, labels = random.randint(VOCABULARY, size=(8, 5)), np.arange(8) % 2
    found = {"y": encoder(inputs), "masked": encoder(inputs, mask=keras.ops.convert_to_tensor(mask)), "probability": model(numbers)}
    found = {name: keras.ops.convert_to_numpy(value) for name, value in found.items()}
    model.compile(optimizer="rmsprop", loss="binary_crossentropy")
    losses = []
    for _ in range(20):
        model.reset_metrics()  # which would otherwise be means over all steps
        losses.append(float(model.train_on_batch(numbers, labels)))
    cases = Cases()
    cases.add("small", {"vocab_size": VOCABULARY, "embed_dim": EMBED, "dense_dim": DENSE, "num_heads": HEADS}, inputs=inputs, mask=mask,
              numbers=numbers, labels=labels, losses=losses, **found)  # fmt: skip
    cases.write(pathlib.Path(folder) / "keras.npz")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent)
