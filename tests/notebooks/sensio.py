"""What the cells of notebooks/sensio.py must give; run in the notebook by tools/notebooks.py, each part after the cell that begins so."""

# ruff: noqa: F821

# %% MNIST = ""  # por ejemplo "datos/mnist"
assert MNIST or (len(dm.train_ds), len(dm.val_ds)) == (1437, 360)

# %% tc.manual_seed(0)
assert imgs.shape == (64, 784) and labels.shape == (64,)
assert float(imgs.min()) >= 0 and float(imgs.max()) <= 1

# %% tc.manual_seed(0)
assert output.shape == (64, 10) and parámetros(mlp) == 623_290
assert mlp.configure_optimizers().param_groups[0]["lr"] == 3e-4
assert abs(loss.item() - np.log(10)) < 0.2 and 0 <= acc <= 0.4  # sin entrenar, todas las clases le parecen casi igual de probables

# %% tc.manual_seed(0)
assert exactitud_mlp >= (0.9 if FAST else 0.965 if MNIST else 0.97)

# %% imgs, labels = next(iter(dm.val_dataloader()))
assert preds.shape == (64,) and int((preds == labels).sum()) > 50

# %% attn_dm = MNISTDataModule(Dataset=AttnDataset, data=datos)
assert imgs.shape == (64, 16, 49) and labels.shape == (64,)
for i in range(4):
    for j in range(4):
        assert (trozos[4 * i + j].numpy().reshape(7, 7) == imagen[7 * i : 7 * i + 7, 7 * j : 7 * j + 7]).all()
assert (juntos == imagen).all()

# %% def a_mano(atención, x):
y_fiel, mapas_fieles = atención(x, return_attention=True)
assert mapas_fieles.shape == (2, 16, 49, 49)
assert diferencia(y_fiel.detach(), y_a_mano) < 1e-5 and diferencia(mapas_fieles.detach(), mapas_a_mano) < 1e-5
assert mapas.shape == (2, 16, 16, 16) and parámetros(corregida) == parámetros(atención)

# %% orden = np.random.default_rng(0).permutation(16)
with tc.no_grad():
    assert diferencia(corregida(x[:, orden]), corregida(x)[:, orden]) < 1e-5
    assert diferencia(atención(x[:, orden]), atención(x)[:, orden]) > 1e-2

# %% bloque = TransformerBlock(n_embd=49, n_heads=16)
assert diferencia(salida, salida_a_mano) < 1e-6
assert [type(capa).__name__ for capa in bloque.mlp] == ["Linear", "ReLU", "Linear"] and bloque.mlp[0].weight.shape == (196, 49)

# %% uno = Model()
assert (len(uno.tranformer), uno.pos_emb.shape) == (1, (1, 16, 49)) and not uno.pos_emb.detach().numpy().any()
assert isinstance(uno, MLP) and uno.mlp is None
assert uno(imgs).shape == (64, 10)

# %% modelos, historias = {}, {}
assert partes == {"inp_emb": 2_450, "tranformer": 527_142, "fc": 7_850} and parámetros(modelo) == 538_226

# %% print(f"perceptrón             {100 * exactitud_mlp:.2f} %")
for historia in historias.values():
    assert historia["val_acc"][-1] >= (0.8 if FAST else 0.98)
    assert FAST or historia["val_acc"][-1] > exactitud_mlp

# %% attn_imgs, attn_labels = next(iter(attn_dm.val_dataloader()))
assert preds.shape == (64,) and float((preds == attn_labels).float().mean()) > 0.7

# %% mapas = modelos["rasgos"].attention_maps(attn_imgs[:1])
assert [m.shape for m in mapas] == 3 * [(1, 16, 49, 49)] and diferencia(mapas[-1].numpy().sum(-1), 1) < 1e-5

# %% mapas = modelos["parches"].attention_maps(attn_imgs[:1])
assert [m.shape for m in mapas] == 3 * [(1, 16, 16, 16)] and diferencia(mapas[-1].numpy().sum(-1), 1) < 1e-5
