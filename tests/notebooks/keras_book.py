"""What the cells of notebooks/keras_book.py must give; run in the notebook by tools/notebooks.py, each part after the cell that begins so."""

# ruff: noqa: F821

# %% words = ["the", "film", "a", "movie"]
assert np.abs(Z - weights @ X).max() < 1e-12 and np.abs(weights.sum(-1) - 1).max() < 1e-12
assert weights[1, [1, 3]].sum() > 0.9

# %% d = 3
assert np.abs(word_by_word - Z).max() < 1e-12

# %% N, d, H = 5, 8, 2
assert Z.shape == (N, d) and max(apart.values()) < 1e-12

# %% heads = np.stack([softmax(X @ q @ (X @ k).T / d**0.5) for q, k in zip(W_q, W_k, strict=True)])
assert heads.shape == (H, N, N) and np.abs(heads[0] - heads[1]).max() > 0.1

# %% def layer_norm(a, gamma, beta, eps=1e-3):
assert keras_book.LAYER_NORM_EPS == 1e-3
assert np.abs(norm(X) - layer_norm(X, gamma=1, beta=0)).max() < 1e-12

# %% dense = tc.nn.Sequential(tc.nn.Linear(d, 4 * d), tc.nn.ReLU(), tc.nn.Linear(4 * d, d)).double()
assert np.abs(dense(X) - R).max() < 1e-12 and np.abs(dense(X[2:3]) - R[2:3]).max() < 1e-12

# %% encoder = TransformerEncoder(embed_dim=8, dense_dim=32, num_heads=2).double()
assert np.abs(encoder(x) - r).max() < 1e-12

# %% REVIEWS = ""  # such as "movie_reviews.csv"
assert REVIEWS or [len(texts) for texts, _ in parts.values()] == [256, 64, 64]

# %% max_length = 600
assert vocabulary[:2] == ["", "[UNK]"] and len(vocabulary) <= max_tokens
assert example.shape == (600,) and example.tolist() == [2, 1, 3] + 597 * [0]
assert (text_vectorization(" ".join(["word"] * 700)) > 0).sum() == 600  # 3,499 characters, 600 words

# %% batch_size = 32
assert inputs.shape == (32, 600) and targets.shape == (32,) and int(inputs.max()) < max_tokens

# %% embed_dim, num_heads, dense_dim, vocab_size = 32, 2, 32, 20000
assert encoder.get_config() == {"name": "transformer_encoder", "embed_dim": 32, "num_heads": 2, "dense_dim": 32}
assert encoder.attention.query.weight.shape == (64, 32) and encoder.attention.output.weight.shape == (32, 64)
assert np.abs(masked[:, :12] - alone).max() < 1e-5 and np.abs(unmasked[:, :12] - alone).max() > 1e-2

# %% order = rng.permutation(20)
assert np.abs(encoder(x[:, order]) - unmasked[:, order]).max() < 1e-5

# %% tc.manual_seed(42)
assert list(rows.values()) == [6_336, 2_080, 2_112, 128] and parameters(encoder.attention) == 8_416
assert parameters(encoder) == 10_656 and parameters(model) == 650_689
largest = float(np.abs(model.embedding.weight.detach().numpy()).max())
assert 0.0499 < largest <= 0.05  # Keras's embedding starts in U(-0.05, 0.05)

# %% lstm = 4 * (embed_dim * embed_dim + embed_dim * embed_dim + embed_dim)
assert lstm == 8_320 and 20000 * 32 + lstm + 33 == 648_353

# %% optimizer = model.configure_optimizers()
assert type(optimizer).__name__ == "RMSprop" and (group["lr"], group["alpha"], group["eps"]) == (1e-3, 0.9, 1e-7)

# %% (result,) = trainer.test(model, int_test_ds, verbose=False)
assert result["test_accuracy"] >= 0.85
assert trainer.history["loss"][-1] < trainer.history["loss"][0]

# %% model.eval()
assert chances[0] > 0.5 > chances[1]

# %% with tc.no_grad():
assert maps.shape == (1, 2, 8, 8) and np.abs(maps.numpy().sum(-1) - 1).max() < 1e-5
assert REVIEWS or np.abs(maps.numpy() - uniform).max() < 0.05
