"""What the cells of notebooks/uva_tutorial.py must give; run in the notebook by tools/notebooks.py, each part after the cell that begins so."""

# ruff: noqa: F821

# %% at the end
printed = {
    "Q": [[0.3367, 0.1288], [0.2345, 0.2303], [-1.1229, -0.1863]],
    "K": [[2.2082, -0.6380], [0.4617, 0.2674], [0.5349, 0.8094]],
    "V": [[1.1103, -1.6898], [-0.9890, 0.9580], [1.3221, 0.8172]],
    "Values": [[0.5698, -0.1520], [0.5379, -0.0265], [0.2246, 0.5556]],
    "Attention": [[0.4028, 0.2886, 0.3086], [0.3538, 0.3069, 0.3393], [0.1303, 0.4630, 0.4067]],
}
for name, digits in printed.items():
    assert difference(found[name], digits) < 6e-5, name
assert difference(uniform, np.full(uniform.shape, 1 / 64)) < 1e-6
assert same_weights and difference(permuted, output[:, order]) < 1e-5 and difference(maps[0].sum(-1), np.ones((32, 4, 48))) < 1e-5
assert difference(encoder_by_hand(x), encoder(x)) < 1e-5 and difference(hand_maps[-1].detach(), quirk[-1]) < 1e-5
assert (quirk[0] == right[0]).all() and difference(quirk[-1], right[-1]) > 1e-4
position, i = np.arange(96)[:, None], np.arange(24)
exact = np.stack([np.sin(position / 10000 ** (i / 24)), np.cos(position / 10000 ** (i / 24))], axis=-1).reshape(96, 48)
assert difference(encoding.pe[0], exact) < 1e-5
for step, factor in {0: 0.0, 50: 0.4992293, 100: 0.9938442, 101: 0.9937207, 1000: 0.5, 2000: 0.0}.items():
    assert abs(factors[step] - factor) < 1e-7 and abs(by_hand.get_lr_factor(step) - factor) < 1e-7
assert count == 10_346 and len(train_loader) == 390
assert first_inputs.tolist() == [9, 6, 2, 0, 6, 2, 7, 9, 7, 3, 3, 4, 3, 7, 0, 9] and first_labels.tolist() == first_inputs.tolist()[::-1]
assert min(val_acc, test_acc) > 0.999 and reverse_maps[0].shape == (128, 1, 16, 16)
assert (reverse_maps[0].numpy()[:, 0].argmax(-1) == 15 - np.arange(16)).mean() > 0.99
test_labels = arrays["test_labels"][sets["test"].test_sets]
assert (test_labels[:, :9] == test_labels[:, :1]).all() and (test_labels[:, 9] != test_labels[:, 0]).all()
assert sum(p.numel() for p in anomaly_model.parameters()) == 2_306_305
assert accuracy["Test"] > (0.85 if FAST else 0.95) and (FAST or predictions[0] == 9) and len(mistakes) < 16
assert difference(preds[:, permut], perm_preds) < 1e-5 and [m.shape for m in attention_maps] == [(64, 4, 10, 10)] * 4
