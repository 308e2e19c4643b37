"""The squares chapter: classes, numbers that are determined, training from the same weights as PyTorch's."""

import copy

import inputs
import numpy as np
import pytest
import transformer_c as tc
from golden import load
from transformer_c.tutorials import godoy

GOLDEN = load("documents")
OPTIONS, SQUARES = GOLDEN["squares"]
MODELS = {"squares": godoy.own_model, "squares_of_torch": godoy.torch_style_model}


def parameters(module):
    return sum(p.numel() for p in module.parameters())


def run(model, epochs, dtype="float32"):
    """The document's training on its points."""
    points = tc.as_tensor(np.stack(godoy.generate_sequences()[0])).float().to(dtype)
    data, loader = tc.data.TensorDataset, tc.data.DataLoader
    sbs = godoy.StepByStep(model, tc.nn.MSELoss(), tc.optim.Adam(model.parameters(), lr=0.01))
    train = loader(data(points, points[:, 2:]), batch_size=16, shuffle=True, generator=tc.Generator())
    sbs.set_loaders(train, loader(data(points[:, :2], points[:, 2:]), batch_size=16))
    sbs.train(epochs)
    return sbs, points


# ---- data ----------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("variable_len", [False, True])
@pytest.mark.parametrize("seed", [13, 17, 19])
def test_sequences_are_the_documents(variable_len, seed):
    points, directions = godoy.generate_sequences(64, variable_len, seed)
    expected, expected_directions = inputs.squares(64, variable_len, seed)
    assert isinstance(points, list) and len(points) == 64
    assert all((a == b).all() and a.dtype == np.float64 for a, b in zip(points, expected, strict=True))
    assert (directions == expected_directions).all()
    assert {len(p) for p in points} == ({2, 3, 4} if variable_len else {4})


def test_sequences_leave_numpy_generator_alone():
    np.random.seed(5)
    before = np.random.get_state()[1].copy()
    points, _ = tc.datasets.square_sequences()
    assert points.shape == (128, 4, 2) and (np.random.get_state()[1] == before).all()


def test_loaders_validate_on_the_training_points():
    train, test = godoy.loaders()
    assert len(train) == len(test) == 8
    corners = np.concatenate([np.concatenate([x.numpy(), y.numpy()], axis=1) for x, y in test])
    assert (corners == SQUARES["points"]).all()
    x, y = next(iter(train))
    assert x.shape == (16, 4, 2) and (y.numpy() == x.numpy()[:, 2:]).all()


# ---- classes ----------------------------------------------------------------------------------------------------------------------


def test_dummy_points():
    mha = godoy.MultiHeadedAttention(n_heads=2, d_model=4, dropout=0.0)
    points = tc.randn(16, 2, 4)
    mha.init_keys(points)
    assert mha(points).shape == (16, 2, 4) and mha.alphas.shape == (16, 2, 2, 2)
    np.testing.assert_allclose(mha.alphas.numpy().sum(-1), 1, rtol=1e-6)


def test_attention_keeps_the_keys_it_was_given(rng):
    """Other queries may follow: keys and values stay those of the last init_keys."""
    mha = godoy.MultiHeadedAttention(n_heads=2, d_model=4, dropout=0.0).eval()
    keys = tc.tensor(rng.standard_normal((3, 5, 4)), dtype="float32")
    queries = tc.tensor(rng.standard_normal((3, 2, 4)), dtype="float32")
    mha.init_keys(keys)
    first = mha(queries).numpy().copy()
    assert first.shape == (3, 2, 4) and (mha(queries).numpy() == first).all()
    mha.init_keys(keys * 2)
    assert np.abs(mha(queries).numpy() - first).max() > 1e-3


def test_alphas_are_kept_after_dropout():
    tc.manual_seed(0)
    mha = godoy.MultiHeadedAttention(n_heads=2, d_model=4, dropout=0.5)
    x = tc.randn(8, 6, 4)
    mha.init_keys(x)
    mha(x)
    dropped = mha.alphas.numpy().copy()
    assert 0.3 < (dropped == 0).mean() < 0.7 and not mha.alphas.requires_grad
    mha.eval()(x)
    kept = dropped != 0
    np.testing.assert_allclose(dropped[kept], 2 * mha.alphas.numpy()[kept], rtol=1e-6)


def test_masked_keys(rng):
    """0 forbids; one mask for all heads; a row without any key attends uniformly."""
    mha = godoy.MultiHeadedAttention(n_heads=2, d_model=4, dropout=0.0)
    x = tc.tensor(rng.standard_normal((3, 4, 4)), dtype="float32")
    mask = np.tril(np.ones((1, 4, 4)))
    mask[0, 0] = 0
    mha.init_keys(x)
    mha(x, tc.tensor(mask))
    alphas = mha.alphas.numpy()
    assert (alphas[:, :, 0] == 0.25).all() and (alphas[:, :, 1, 2:] == 0).all() and (alphas[:, :, 3] > 0).all()


def test_positions():
    pe = godoy.PositionalEncoding(100, 6)
    assert list(pe.state_dict()) == ["pe"] and pe.pe.shape == (1, 100, 6)
    angle = 7 * 10000.0 ** (-np.arange(0, 6, 2) / 6)
    np.testing.assert_allclose(pe.pe[0, 7].numpy(), np.stack([np.sin(angle), np.cos(angle)], 1).ravel(), atol=1e-6)
    np.testing.assert_allclose(pe(tc.ones(1, 3, 6)).numpy(), np.sqrt(6) + pe.pe[:, :3].numpy(), rtol=1e-6)
    assert godoy.PositionalEncoding(max_len=10, d_model=5).pe.shape == (1, 10, 5)


def test_layers_are_copies_and_dropout_zero_is_exact():
    layer = godoy.EncoderLayer(n_heads=3, d_model=6, ff_units=10, dropout=0.0)
    encoder = godoy.EncoderTransf(layer, n_layers=2)
    first, second = encoder.layers
    assert first is not layer and first.ffn[0].weight is not second.ffn[0].weight
    assert (first.ffn[0].weight.numpy() == second.ffn[0].weight.numpy()).all()
    x = tc.randn(4, 2, 6)
    assert (encoder(x).numpy() == encoder.eval()(x).numpy()).all()
    np.testing.assert_allclose(encoder(x).numpy().mean(-1), 0, atol=1e-6)  # the last layer norm


def test_parameter_counts():
    model = godoy.own_model()
    assert parameters(model) == 1728
    assert parameters(model.encoder) == 2 * (4 * 42 + 70 + 66 + 2 * 12) + 12
    assert godoy.StepByStep(model, tc.nn.MSELoss(), tc.optim.Adam(model.parameters())).count_parameters() == 1728


def test_model_of_nn_transformer(rng):
    """1,164 parameters; the same two modes; a source mask hides steps from the encoder, as in the document not from the decoder."""
    model = godoy.torch_style_model(dropout=0.0)
    assert parameters(model) == 1164 and model.pe.pe.shape == (1, 2, 6)
    x = rng.standard_normal((5, 4, 2)).astype(np.float32)
    forced, predicted = model(x), model.eval()(x)
    assert forced.shape == predicted.shape == (5, 2, 2) and (model(x[:, :2]) == predicted).all()
    np.testing.assert_allclose(forced[:, 0], predicted[:, 0], atol=1e-6)
    hidden = np.array([[True, False]] * 5)
    masked = model(x, hidden)
    assert np.abs(masked - predicted).max() > 1e-4
    other = x.copy()
    other[:, 0] += 1
    assert np.abs(model(other, hidden) - masked).max() > 1e-4  # the decoder still sees that step's state


def test_layers_of_torch_with_the_class_of_a_norm():
    layer = tc.nn.TransformerEncoderLayer(d_model=6, nhead=3, dim_feedforward=20)
    encoder = tc.nn.TransformerEncoder(layer, num_layers=1, norm=tc.nn.LayerNorm)
    with pytest.raises(TypeError, match="class LayerNorm"):
        encoder(tc.randn(2, 4, 6))


def test_subsequent_mask():
    mask = godoy.EncoderDecoderSelfAttn.subsequent_mask(3)
    assert mask.tolist() == [[[1, 0, 0], [1, 1, 0], [1, 1, 1]]]


def test_train_mode_forces_the_teacher_and_eval_mode_predicts(rng):
    model = godoy.own_model(dropout=0.0)
    x = rng.standard_normal((5, 4, 2)).astype(np.float32)
    forced = model(x)
    changed = x.copy()
    changed[:, 2] += 1  # the third corner is given to the decoder in train mode
    assert (model(changed)[:, 0] == forced[:, 0]).all() and np.abs(model(changed)[:, 1] - forced[:, 1]).max() > 1e-4
    last = x.copy()
    last[:, 3] += 1  # the last one never
    assert (model(last) == forced).all()
    model.eval()
    predicted = model(x)
    assert predicted.shape == (5, 2, 2) and (model(x[:, :2]) == predicted).all() and (model(changed) == predicted).all()
    assert np.abs(predicted[:, 0] - forced[:, 0]).max() < 1e-6  # the first step has the same inputs
    chained = x.copy()
    chained[:, 2] = predicted[:, 0]
    np.testing.assert_allclose(model.train()(chained)[:, 1], predicted[:, 1], atol=1e-5)


# ---- training -----------------------------------------------------------------------------------------------------------------------


def golden_weights(case):
    return {k.removeprefix("weight."): v for k, v in GOLDEN[case][1].items() if k.startswith("weight.")}


@pytest.mark.parametrize("case", MODELS)
def test_weights_of_seed_42(case):
    tc.manual_seed(42)
    state, golden = MODELS[case](dropout=0.0).state_dict(), golden_weights(case)
    assert list(state) == list(golden)
    for name, value in golden.items():
        np.testing.assert_allclose(state[name].numpy(), value, rtol=3e-7, atol=6e-8, err_msg=name)


@pytest.mark.parametrize("case", MODELS)
@pytest.mark.parametrize(("dtype", "tag", "atol"), [("float64", "f64", 1e-9), ("float32", "f32", 2e-4)])
def test_loss_curve_is_pytorchs(case, dtype, tag, atol):
    """50 epochs from the same weights, without dropout: the same shuffles, the same losses."""
    options, golden = GOLDEN[case]
    model = MODELS[case](dropout=0.0)
    model.load_state_dict(golden_weights(case))
    sbs, points = run(model.to(dtype=dtype), options["epochs"], dtype)
    np.testing.assert_allclose(sbs.losses, golden[f"{tag}.train"], rtol=0, atol=atol)
    np.testing.assert_allclose(sbs.val_losses, golden[f"{tag}.validation"], rtol=0, atol=atol)
    model.eval()
    final = tc.F.mse_loss(model(points[:, :2]), points[:, 2:])
    np.testing.assert_allclose(float(final), golden[f"{tag}.final"], rtol=0, atol=atol)
    assert sbs.val_losses[-1] < 0.02 and sbs.total_epochs == 50


def test_dropout_makes_the_training_loss_larger():
    """The document's note: the same batch in train mode and in eval mode."""
    tc.manual_seed(42)
    sbs, points = run(godoy.own_model(), 30)
    x, y = points[:64], points[:64, 2:]
    losses = {}
    for mode in (True, False):
        sbs.model.train(mode)
        losses[mode] = float(tc.F.mse_loss(sbs.model(x), y))
    assert losses[True] > 1.5 * losses[False] and losses[False] < 0.06


def test_step_by_step_seeds_itself():
    histories = []
    for seed in (1, 2):
        model = godoy.own_model()
        model.load_state_dict(golden_weights("squares"))
        tc.manual_seed(seed)
        histories.append(run(model, 2)[0].losses)
    assert histories[0] == histories[1]


def test_step_by_step_goes_on_from_a_checkpoint(tmp_path):
    tc.manual_seed(1)
    sbs, points = run(godoy.own_model(), 3)
    sbs.save_checkpoint(tmp_path / "squares.safetensors")
    other = copy.deepcopy(sbs.model)
    godoy.xavier(other)
    again = godoy.StepByStep(other, tc.nn.MSELoss(), tc.optim.Adam(other.parameters(), lr=0.01))
    again.load_checkpoint(tmp_path / "squares.safetensors")
    assert again.total_epochs == 3 and again.losses == sbs.losses and again.val_losses == sbs.val_losses
    assert (again.predict(points) == sbs.predict(points)).all()
    for each in (sbs, again):
        each.set_loaders(*godoy.loaders())
        each.train(1, seed=3)
    assert sbs.losses == again.losses


def test_step_by_step_without_data():
    model = tc.nn.Linear(1, 1)
    with pytest.raises(RuntimeError, match="set_loaders"):
        godoy.StepByStep(model, tc.nn.MSELoss(), tc.optim.SGD(model.parameters(), lr=0.1)).train(1)


def test_figures():
    pytest.importorskip("matplotlib")
    tc.manual_seed(1)
    sbs, points = run(godoy.own_model(), 2)
    (ax,) = sbs.plot_losses().axes
    assert ax.get_yscale() == "log" and ax.get_xlabel() == "epoch" and ax.get_ylabel() == "loss"
    assert [line.get_label() for line in ax.lines] == ["training loss", "validation loss"] and len(ax.lines[0].get_xdata()) == 2
    assert len(godoy.plot_data(*godoy.generate_sequences(), n_rows=1).axes) == 5
    figure = godoy.sequence_pred(sbs, points, godoy.generate_sequences(seed=17)[1])
    assert len(figure.axes) == 10
    true, dashed = figure.axes[0].lines
    assert dashed.get_linestyle() == "--" and (points[0].numpy() == np.array(true.get_data()).T).all()
    path = np.array(dashed.get_data()).T
    assert path.shape == (3, 2) and (path[0] == points[0, 1].numpy()).all()
    np.testing.assert_allclose(path[1:], sbs.predict(points[:1, :2])[0], atol=1e-6)


def test_live_against_pytorch(rng):
    """Random weights, masks of every length, gradients."""
    torch = pytest.importorskip("torch")
    import torch_twins as twins

    options = dict(n_heads=2, d_model=8, ff_units=12, dropout=0.0, n_layers=2)
    twin = twins.Squares(**options, source=3, target=4, n_features=5).double()
    encoder = godoy.EncoderTransf(godoy.EncoderLayer(2, 8, 12, dropout=0.0), n_layers=2)
    decoder = godoy.DecoderTransf(godoy.DecoderLayer(2, 8, 12, dropout=0.0), n_layers=2)
    model = godoy.EncoderDecoderTransf(encoder, decoder, input_len=3, target_len=4, n_features=5).double()
    model.load_state_dict({k: v.numpy() for k, v in twin.state_dict().items()})
    x = rng.standard_normal((6, 7, 5))
    for training in (True, False):
        model.train(training), twin.train(training)
        with torch.no_grad():
            expected = twin(torch.tensor(x)).numpy()
        np.testing.assert_allclose(model(x), expected, rtol=0, atol=1e-12)
    (model.train()(tc.tensor(x)) ** 2).sum().backward()
    (twin.train()(torch.tensor(x)) ** 2).sum().backward()
    for (name, ours), theirs in zip(model.named_parameters(), twin.parameters(), strict=True):
        np.testing.assert_allclose(ours.grad.numpy(), theirs.grad.numpy(), rtol=1e-9, atol=1e-10, err_msg=name)


@pytest.mark.parametrize("ignored", [False, True])
def test_nn_transformer_live_against_pytorch(rng, ignored):
    torch = pytest.importorskip("torch")
    import torch_twins as twins

    twin, model = twins.xavier(twins.small_torch_model(0.0)).double(), godoy.torch_style_model(dropout=0.0).double()
    model.load_state_dict({k: v.numpy() for k, v in twin.state_dict().items()})
    x = rng.standard_normal((6, 4, 2))
    mask = np.array([[True, False]] * 3 + [[False, False]] * 3) if ignored else None
    for training in (True, False):
        model.train(training), twin.train(training)
        expected = twin(torch.tensor(x), None if mask is None else torch.tensor(mask)).detach().numpy()
        np.testing.assert_allclose(model(x, mask), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("case", MODELS)
def test_pytorch_loads_our_state_strictly(case):
    torch = pytest.importorskip("torch")
    import torch_twins as twins

    model, twin = MODELS[case](), {"squares": twins.Squares, "squares_of_torch": twins.small_torch_model}[case]()
    twin.load_state_dict({k: torch.tensor(v.numpy()) for k, v in model.state_dict().items()}, strict=True)
    x = SQUARES["points"]
    with torch.no_grad():
        np.testing.assert_allclose(model.eval()(x), twin.eval()(torch.tensor(x)).numpy(), atol=1e-5)


# ---- as a module for tc.Trainer ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "make"), [("own", godoy.own_model), ("nn", godoy.torch_style_model)])
def test_squares_predictor(name, make, tmp_path):
    """The same weights, steps and optimizer as the document's; it comes back from a file."""
    tc.manual_seed(42)
    expected = make().state_dict()
    tc.manual_seed(42)
    module = godoy.SquaresPredictor(name)
    state = module.model.state_dict()
    assert list(state) == list(expected) and all(np.array_equal(np.asarray(state[k]), np.asarray(expected[k])) for k in state)
    x = godoy.square_sequences(4)[0].astype(np.float32)
    tc.save(module, tmp_path / "m.safetensors")
    found = godoy.SquaresPredictor.load_from_checkpoint(tmp_path / "m.safetensors")
    assert np.array_equal(found(x[:, :2]), module.eval()(x[:, :2]))
    module.validation_step((tc.tensor(x[:, :2]), tc.tensor(x[:, 2:])), 0)
    assert module.logged["val_loss"] == pytest.approx(((module(x[:, :2]) - x[:, 2:]) ** 2).mean(), rel=1e-5)
    with pytest.raises(ValueError, match="model must be one of 'own', 'nn', got 'lstm'"):
        godoy.SquaresPredictor("lstm")


def test_the_squares_that_the_document_meant():
    """Seed 17, as it made them before it used the training points; nothing of the training's."""
    x, y = next(iter(godoy.corners_loader(17, batch_size=128)))
    points = godoy.square_sequences(seed=17)[0].astype(np.float32)
    assert np.array_equal(x.numpy(), points[:, :2]) and np.array_equal(y.numpy(), points[:, 2:])
    assert not np.array_equal(points, godoy.square_sequences(seed=13)[0].astype(np.float32))
