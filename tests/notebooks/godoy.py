"""What the cells of notebooks/godoy.py must give; run in the notebook by tools/notebooks.py, each part after the cell that begins so."""

# ruff: noqa: F821

# %% tc.manual_seed(0)
assert positions.pe.shape == (1, 100, 6) and list(positions.state_dict()) == ["pe"]
assert largest_difference(positions(x), np.asarray(x) * 6**0.5 + np.asarray(positions.pe)[:, :5]) < 1e-6

# %% mha = MultiHeadedAttention(n_heads=3, d_model=6, dropout=0.5)
assert mha.alphas.shape == (2, 3, 5, 5) and np.abs(sums - 1).max() > 0.1

# %% mha.eval()
assert largest_difference(by_hand, output.detach()) < 1e-6 and largest_difference(weights, mha.alphas) < 1e-6
assert np.abs(mha.alphas.numpy().sum(-1) - 1).max() < 1e-6 and not np.triu(mha.alphas.numpy(), 1).any()

# %% dummy_points = tc.randn(16, 2, 4)  # N, L, F
assert out.shape == (16, 2, 4)

# %% layer = EncoderLayer(n_heads=3, d_model=6, ff_units=10, dropout=0.0)
assert largest_difference(output, by_hand) < 1e-6
assert [type(m).__name__ for m in layer.ffn] == ["Linear", "ReLU", "Dropout", "Linear"]

# %% encoder = EncoderTransf(layer, n_layers=2)
assert largest_difference(first.detach(), second.detach()) == 0 and first is not second
assert largest_difference(output, by_hand) == 0

# %% enclayer = nn.TransformerEncoderLayer(d_model=6, nhead=3, dim_feedforward=20)
assert output.shape == (2, 16, 6)

# %% layer = DecoderLayer(n_heads=3, d_model=6, ff_units=10, dropout=0.0)
assert largest_difference(output, by_hand) < 1e-6
assert layer.cross_attn_heads.alphas.shape == (2, 3, 2, 4)

# %% decoder = DecoderTransf(DecoderLayer(n_heads=3, d_model=6, ff_units=10), n_layers=2)
assert output.shape == (2, 2, 6)

# %% print(EncoderDecoderSelfAttn.subsequent_mask(4))
assert EncoderDecoderSelfAttn.subsequent_mask(4).tolist() == np.tril(np.ones((1, 4, 4))).tolist()

# %% tc.manual_seed(0)
assert taught.shape == alone.shape == (1, 2, 2)
assert largest_difference(taught[:, 0], alone[:, 0]) < 1e-6  # the first step sees the same point in both modes
assert largest_difference(taught[:, 1], alone[:, 1]) > 1e-3  # the second sees the truth, or the first prediction
assert largest_difference(alone[:, 0], step_1[:, 0]) < 1e-6 and largest_difference(alone[:, 1], step_2[:, 1]) < 1e-6

# %% points, directions = generate_sequences()
assert (np.random.randint(2, size=128) == directions).all()
for walk, base, direction in zip(points, bases, directions, strict=True):
    ideal = np.roll(corners, -base, axis=0)[:: 2 * direction - 1]
    assert (walk == ideal + np.random.randn(4, 2) * 0.1).all()
assert full_train.shape == (128, 4, 2) and len(train_loader) == len(test_loader) == 8
assert largest_difference(full_test, full_train) == 0

# %% EPOCHS = 50
assert parameters(model_transf) == 1_728

# %% sbs_seq_transf = StepByStep(model_transf, loss, optimizer)
assert sbs_seq_transf.total_epochs == len(sbs_seq_transf.losses) == len(sbs_seq_transf.val_losses) == 50

# %% tc.manual_seed(11)
assert train_loss > 1.5 * eval_loss and eval_loss < 0.03

# %% tc.manual_seed(42)
for epoch, (training, validation) in pytorch.items():
    assert abs(sbs_plain.losses[epoch - 1] - training) < 3e-4 and abs(sbs_plain.val_losses[epoch - 1] - validation) < 3e-4

# %% ideal = np.stack([np.roll(corners, -b, axis=0)[:: 2 * d - 1] for b, d in zip(bases, directions, strict=True)])
assert 0.009 < floor < 0.011 and error < 0.03
assert (nearest == true).mean() > 0.98

# %% model_transf.eval()
assert [a.shape for a in alphas] == [(1, 3, 2, 2)] * 2

# %% tc.manual_seed(42)
assert model_transformer.trg_masks.tolist() == [[0.0, -np.inf], [0.0, 0.0]]
assert difference > 1e-3

# %% model_transformer.train()
assert parameters(model_transformer) == 1_164

# %% medians = {}
assert max(medians.values()) <= (0.03 if FAST else 0.022)
