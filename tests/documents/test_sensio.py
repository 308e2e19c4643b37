"""The Spanish post: patches, the MLP, the encoder in both variants, numbers that are determined."""

import inputs
import numpy as np
import pytest
import transformer_c as tc
from golden import load
from transformer_c.tutorials import sensio

GOLDEN = load("documents")
VARIANTS = ["features", "patches"]


def parameters(module):
    return sum(p.numel() for p in module.parameters())


def train(model, x, labels, epochs, batch_size=64):
    """The loss of every batch; shuffles from the default generator."""
    loader = tc.data.DataLoader(tc.data.TensorDataset(x, labels), batch_size=batch_size, shuffle=True)
    optimizer = model.configure_optimizers()
    losses = []
    for _ in range(epochs):
        for i, batch in enumerate(loader):
            optimizer.zero_grad()
            loss = model.training_step(batch, i)
            loss.backward()
            optimizer.step()
            losses.append(float(loss))
    return losses


def accuracy(model, data):
    x, y = data
    return float((model.eval().predict(x) == y).mean())


@pytest.fixture(scope="module")
def digits():
    pytest.importorskip("sklearn")
    return tc.datasets.digits()


# ---- data ------------------------------------------------------------------------------------------------------------------------------


def test_data_module(digits):
    dm = sensio.MNISTDataModule(data=digits)
    dm.setup()
    imgs, labels = next(iter(dm.train_dataloader()))
    assert imgs.shape == (64, 784) and labels.shape == (64,) and imgs.dtype == np.float32 and labels.dtype == np.int64
    assert dm.batch_size == 64 and len(dm.train_ds) == 1437 and len(dm.val_ds) == 360
    first, _ = next(iter(dm.val_dataloader()))
    assert (first.numpy()[0].reshape(28, 28) == digits[1][0][0]).all()  # in order
    image, label = dm.val_ds[3]
    assert image.shape == (784,) and image.dtype == np.float32 and label.shape == () and label.dtype == np.int64


def test_patches(digits):
    dm = sensio.MNISTDataModule(Dataset=sensio.AttnDataset, data=digits)
    imgs, labels = next(iter(dm.val_dataloader()))
    assert imgs.shape == (64, 16, 49) and labels.shape == (64,)
    whole = imgs[6].numpy().reshape(4, 4, 7, 7).swapaxes(1, 2).reshape(28, 28)
    assert (whole == digits[1][0][6]).all()
    assert (dm.val_ds[6][0].numpy() == imgs[6].numpy()).all()


def test_patches_are_those_of_unfold():
    torch = pytest.importorskip("torch")
    x = np.arange(2 * 30 * 29, dtype=np.float32).reshape(2, 30, 29)
    expected = torch.tensor(x).unfold(1, 7, 7).unfold(2, 6, 6).reshape(2, 16, 42).numpy()
    assert (tc.datasets.cut_patches(x, (7, 6)) == expected).all()
    ours = tc.tensor(x[0]).unfold(0, 7, 7).unfold(1, 6, 6).contiguous().view(-1, 42)
    assert (ours.numpy() == expected[0]).all()


@pytest.mark.parametrize("shape, size", [((4, 4), (2, 2)), ((1, 4, 4), (5, 2)), ((1, 4, 4), (0, 2))])
def test_patches_that_do_not_fit(shape, size):
    with pytest.raises(ValueError, match="images have shape"):
        tc.datasets.cut_patches(np.zeros(shape), size)


def test_integers_are_scaled_and_floats_are_not():
    grey = np.arange(2 * 784).reshape(2, 28, 28) % 256
    for images, expected in ((grey.astype(np.uint8), grey / 255), (grey / 255, grey / 255)):
        dm = sensio.MNISTDataModule(data=((images, [0, 1]), (images, [0, 1])))
        x, _ = next(iter(dm.val_dataloader()))
        np.testing.assert_allclose(x.numpy(), expected.reshape(2, 784), rtol=1e-6)


def test_data_module_without_data():
    with pytest.raises(ValueError, match="load_mnist"):
        sensio.MNISTDataModule().setup()
    with pytest.raises(ValueError, match="3 images and y 2 labels"):
        sensio.Dataset(np.zeros((3, 784)), [0, 1])


def test_digits_are_scikit_learns(digits):
    (x, y), (v, w) = digits
    assert x.shape == (1437, 28, 28) and v.shape == (360, 28, 28) and x.dtype == np.float32
    assert x.min() >= 0 and x.max() <= 1 and np.bincount(np.append(y, w)).tolist() == [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]
    patches, classes = tc.datasets.digit_patches()
    assert patches.shape == (1797, 16, 49) and classes.shape == (1797,)
    small, _ = tc.datasets.digit_patches((2, 2), side=8)
    from sklearn.datasets import load_digits

    assert small.shape == (1797, 16, 4)
    assert (small[0].reshape(4, 4, 2, 2).swapaxes(1, 2).reshape(8, 8) * 16 == load_digits().images[0]).all()


# ---- classes ----------------------------------------------------------------------------------------------------------------------------


def test_shapes_and_counts():
    mlp, model = sensio.MLP(), sensio.Model(n_layers=3)
    assert mlp(tc.randn(64, 784)).shape == (64, 10) and parameters(mlp) == 623_290
    counts = {name: parameters(part) for name, part in model.named_children()}
    assert counts == {"inp_emb": 2_450, "tranformer": 527_142, "fc": 7_850} and model.pos_emb.shape == (1, 16, 49)
    assert parameters(model) == 538_226 and parameters(sensio.Model(n_layers=3, over="patches")) == 538_226
    assert model.mlp is None and not any(k.startswith("mlp.") for k in model.state_dict())
    assert (model.pos_emb.numpy() == 0).all() and model(tc.randn(2, 16, 49)).shape == (2, 10)


@pytest.mark.parametrize("over, size", [("features", 49), ("patches", 16)])
def test_maps(over, size):
    model = sensio.Model(n_layers=2, over=over)
    maps = model.attention_maps(np.random.default_rng(0).random((3, 16, 49), np.float32))
    assert [m.shape for m in maps] == [(3, 16, size, size)] * 2
    np.testing.assert_allclose(np.asarray(maps[1]).sum(-1), 1, rtol=1e-5)


def test_patches_attend_to_patches_alone(rng):
    """Exchanging two patches exchanges two rows of the output over patches; over features it does not."""
    x = rng.standard_normal((1, 16, 49)).astype(np.float32)
    order = rng.permutation(16)
    for over in VARIANTS:
        attention = sensio.MultiHeadAttention(49, 4, over=over)
        moved, expected = attention(x[:, order]), attention(x)[:, order]
        assert (np.abs(moved - expected).max() < 1e-5) == (over == "patches")


def test_over_takes_two_values():
    with pytest.raises(ValueError, match="'features' or 'patches'"):
        sensio.MultiHeadAttention(49, 4, over="heads")


def test_predict_and_accuracy(rng):
    mlp = sensio.MLP()
    x = rng.random((5, 784), np.float32)
    predicted = mlp.predict(x)
    assert isinstance(predicted, np.ndarray) and predicted.shape == (5,) and (predicted == mlp(x).argmax(1)).all()
    loss, acc = mlp.compute_loss_and_acc((tc.tensor(x), tc.tensor(predicted)))
    assert acc == 1.0 and loss.requires_grad
    mlp.validation_step((tc.tensor(x), tc.tensor(predicted)), 0)
    assert mlp.logged["val_acc"] == 1.0 and mlp.configure_optimizers().param_groups[0]["lr"] == 0.0003


# ---- numbers ----------------------------------------------------------------------------------------------------------------------------


def assert_weights(model, golden):
    """The first values and the sum of each."""
    expected = {k.removeprefix("glimpse."): v for k, v in golden.items() if k.startswith("glimpse.")}
    state = model.state_dict()
    assert list(state) == list(expected)
    for name, value in expected.items():
        weight = state[name].numpy()
        np.testing.assert_allclose(weight.ravel()[:4], value[: min(4, weight.size)], rtol=3e-7, atol=1e-8, err_msg=name)
        np.testing.assert_allclose(weight.astype(np.float64).sum(), value[-1], rtol=1e-4, atol=1e-4, err_msg=name)


@pytest.mark.parametrize("over", VARIANTS)
def test_results_and_losses_of_pytorch(over):
    """Weights of seed 42, outputs, maps, and three epochs' losses with PyTorch's shuffles."""
    options, golden = GOLDEN[f"patches_{over}"]
    x, labels = inputs.digits()
    tc.manual_seed(42)
    model = sensio.Model(**options)
    assert_weights(model, golden)
    np.testing.assert_allclose(model(x[:2]), golden["y"], atol=3e-6)
    np.testing.assert_allclose(model.attention_maps(x[:2])[0], golden["map"], atol=1e-6)
    losses = train(model, x, labels, epochs=3)
    assert len(losses) == 12
    np.testing.assert_allclose(losses, golden["losses"], rtol=0, atol=2e-4)


def test_losses_of_the_mlp():
    options, golden = GOLDEN["mlp"]
    x, labels = inputs.digits()
    tc.manual_seed(42)
    mlp = sensio.MLP()
    losses = train(mlp, x.reshape(len(x), 784), labels, options["epochs"])
    np.testing.assert_allclose(losses, golden["losses"], rtol=0, atol=1e-4)


def test_a_short_training_learns(digits):
    """Two epochs: far better than chance on digits that were not trained on."""
    tc.manual_seed(0)
    model = sensio.MLP()
    (x, y), (v, w) = digits
    train(model, x.reshape(-1, 784), y, epochs=2)
    assert accuracy(model, (v.reshape(-1, 784), w)) > 0.75


def test_figures(digits):
    pytest.importorskip("matplotlib")
    from transformer_c.plot._figures import RIGHT, WRONG

    dm = sensio.MNISTDataModule(data=digits)
    imgs, labels = next(iter(dm.val_dataloader()))
    figure = sensio.plot_digits(imgs, labels)
    assert len(figure.axes) == 64 and figure.axes[9].get_title() == str(labels[9].item())
    assert (figure.axes[9].images[0].get_array() == imgs[9].numpy().reshape(28, 28)).all()
    mlp = sensio.MLP()
    preds = mlp.predict(imgs)
    for ax, label, predicted in zip(sensio.plot_digits(imgs, labels, preds).axes, labels.tolist(), preds.tolist(), strict=True):
        assert ax.get_title() == f"{label}/{predicted}" and ax.title.get_color() == (RIGHT if label == predicted else WRONG)
    patches, labels = next(iter(sensio.MNISTDataModule(Dataset=sensio.AttnDataset, data=digits).val_dataloader()))
    assert (sensio.plot_digits(patches, labels).axes[3].images[0].get_array() == imgs[3].numpy().reshape(28, 28)).all()
    assert len(tc.plot.patches(patches[6]).axes) == 16
    model = sensio.Model()
    predicted = model.predict(patches[2:3])[0].item()
    figure = sensio.plot_prediction(model, patches, labels, 2)
    assert len(figure.axes) == 16 and figure._suptitle.get_text() == f"{labels[2].item()} / {predicted}"
    assert len(sensio.plot_prediction(model, patches, labels).axes) == 16


@pytest.mark.parametrize("over", VARIANTS)
def test_live_against_pytorch(over, rng):
    torch = pytest.importorskip("torch")
    import torch_twins as twins

    options = dict(n_input=6, n_embd=8, seq_len=5, n_heads=3, n_layers=2, over=over)
    twin = twins.Patches(**options).double()
    model = sensio.Model(**options).double()
    model.load_state_dict({k: v.numpy() for k, v in twin.state_dict().items()})
    x, y = rng.standard_normal((4, 5, 6)), rng.integers(0, 10, 4)
    torch.nn.functional.cross_entropy(twin(torch.tensor(x)), torch.tensor(y)).backward()
    loss, _ = model.compute_loss_and_acc((tc.tensor(x), tc.tensor(y)))
    loss.backward()
    np.testing.assert_allclose(model(x), twin(torch.tensor(x)).detach().numpy(), atol=1e-12)
    for (name, ours), theirs in zip(model.named_parameters(), twin.parameters(), strict=True):
        np.testing.assert_allclose(ours.grad.numpy(), theirs.grad.numpy(), rtol=1e-9, atol=1e-12, err_msg=name)


def test_pytorch_loads_our_state_strictly():
    torch = pytest.importorskip("torch")
    import torch_twins as twins

    for model, twin in ((sensio.Model(n_layers=2), twins.Patches(n_layers=2)), (sensio.MLP(), twins.Mlp())):
        twin.load_state_dict({k: torch.tensor(v.numpy()) for k, v in model.state_dict().items()}, strict=True)


@pytest.mark.parametrize(
    "make", [lambda: sensio.MLP(n_hidden=5, lr=0.1), lambda: sensio.Model(n_embd=7, n_heads=2, over="patches", lr=0.1)]
)
def test_hyper_parameters_are_in_the_file(make, tmp_path):
    model = make().eval()
    tc.save(model, tmp_path / "m.safetensors")
    found = type(model).load_from_checkpoint(tmp_path / "m.safetensors")
    assert vars(found.hparams) == vars(model.hparams) and found.configure_optimizers().param_groups[0]["lr"] == 0.1
    x = np.ones((2, 784) if type(model) is sensio.MLP else (2, 16, 49), np.float32)
    assert np.array_equal(found(x), model(x))
    found.test_step((x, np.zeros(2, int)), 0)
    assert {"test_loss", "test_acc"} <= set(found.logged)
