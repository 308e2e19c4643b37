"""The documents' models in PyTorch, written another way (einsum, functions), with the same state-dict keys and order of draws."""

import copy
import math

import torch
import torch.nn.functional as F
from torch import nn


def named(**modules):
    """A module that has these."""
    found = nn.Module()
    for name, module in modules.items():
        found.add_module(name, module)
    return found


# ---- squares ---------------------------------------------------------------------------------------------------------------------


def heads(d_model):
    return named(**{f"linear_{name}": nn.Linear(d_model, d_model) for name in ("query", "key", "value", "out")})


def attend(module, query, key, n_heads, mask, dropout, training):
    """mask (L, S), True where a key may be attended to."""
    split = lambda x: x.unflatten(-1, (n_heads, -1))
    q, k, v = split(module.linear_query(query)), split(module.linear_key(key)), split(module.linear_value(key))
    scores = torch.einsum("nlhd,nshd->nhls", q, k) / math.sqrt(q.shape[-1])
    if mask is not None:
        scores = torch.where(mask, scores, -1e9)
    alphas = F.dropout(scores.softmax(-1), dropout, training)
    return module.linear_out(torch.einsum("nhls,nshd->nlhd", alphas, v).flatten(2))


class Layer(nn.Module):
    """An encoder layer, or with `cross` a decoder layer; normalises first."""

    def __init__(self, n_heads, d_model, ff_units, dropout, cross):
        super().__init__()
        self.n_heads, self.p, self.cross = n_heads, dropout, cross
        self.self_attn_heads = heads(d_model)
        if cross:
            self.cross_attn_heads = heads(d_model)
        self.ffn = nn.Sequential(nn.Linear(d_model, ff_units), nn.ReLU(), nn.Dropout(dropout), nn.Linear(ff_units, d_model))
        for i in range(3 if cross else 2):
            self.add_module(f"norm{i + 1}", nn.LayerNorm(d_model))

    def forward(self, x, states=None, mask=None):
        options = (self.p, self.training)
        drop = lambda y: F.dropout(y, *options)
        y = self.norm1(x)
        x = x + drop(attend(self.self_attn_heads, y, y, self.n_heads, mask, *options))
        if self.cross:
            x = x + drop(attend(self.cross_attn_heads, self.norm2(x), states, self.n_heads, None, *options))
        return x + drop(self.ffn((self.norm3 if self.cross else self.norm2)(x)))


class Positions(nn.Module):
    def __init__(self, length, width):
        super().__init__()
        angle = torch.arange(length)[:, None].float() * torch.exp(torch.arange(0, width, 2).float() * (-math.log(10000.0) / width))
        self.register_buffer("pe", torch.stack([angle.sin(), angle.cos()], -1).flatten(1)[None, :, :width].contiguous())

    def forward(self, x):
        return x * math.sqrt(x.shape[-1]) + self.pe[:, : x.shape[1]]


class Stack(nn.Module):
    def __init__(self, layer, n_layers, width):
        super().__init__()
        self.pe = Positions(100, width)
        self.norm = nn.LayerNorm(width)
        self.layers = nn.ModuleList([copy.deepcopy(layer) for _ in range(n_layers)])

    def forward(self, x, *args):
        x = self.pe(x)
        for layer in self.layers:
            x = layer(x, *args)
        return self.norm(x)


class Squares(nn.Module):
    """godoy.EncoderDecoderTransf with its own layers: `source` and `target` steps."""

    def __init__(self, n_heads=3, d_model=6, ff_units=10, dropout=0.1, n_layers=2, source=2, target=2, n_features=2):
        super().__init__()
        self.source, self.target = source, target
        layers = [Layer(n_heads, d_model, ff_units, dropout, cross) for cross in (False, True)]
        self.encoder, self.decoder = (Stack(layer, n_layers, d_model) for layer in layers)
        self.proj = nn.Linear(n_features, d_model)
        self.linear = nn.Linear(d_model, n_features)

    def after(self, states, steps):
        mask = torch.ones(steps.shape[1], steps.shape[1]).tril().bool()
        return self.linear(self.decoder(self.proj(steps), states, mask))

    def forward(self, x):
        states = self.encoder(self.proj(x[:, : self.source]))
        if self.training:
            return self.after(states, x[:, self.source - 1 : -1])
        steps = x[:, self.source - 1 : self.source]
        for _ in range(self.target):
            steps = torch.cat([steps, self.after(states, steps)[:, -1:]], 1)
        return steps[:, 1:]


class SquaresOfTorch(nn.Module):
    """godoy.TransformerModel around torch.nn.Transformer."""

    def __init__(self, transformer, source=2, target=2, n_features=2):
        super().__init__()
        self.transf, self.source, self.target = transformer, source, target
        self.proj = nn.Linear(n_features, transformer.d_model)
        self.linear = nn.Linear(transformer.d_model, n_features)
        self.pe = Positions(max(source, target), transformer.d_model)
        self.norm = nn.LayerNorm(transformer.d_model)

    def after(self, source, steps, ignored):
        into = lambda x: self.norm(self.pe(self.proj(x))).transpose(0, 1)
        mask = nn.Transformer.generate_square_subsequent_mask(steps.shape[1], dtype=steps.dtype)
        out = self.transf(into(source), into(steps), src_key_padding_mask=ignored, tgt_mask=mask)
        return self.linear(out.transpose(0, 1))

    def forward(self, x, ignored=None):
        source = x[:, : self.source]
        if self.training:
            return self.after(source, x[:, self.source - 1 : -1], ignored)
        steps = source[:, -1:]
        for _ in range(self.target):
            steps = torch.cat([steps, self.after(source, steps, ignored)[:, -1:]], 1)
        return steps[:, 1:]


def small_torch_model(dropout=0.1):
    return SquaresOfTorch(nn.Transformer(6, 3, 1, 1, 20, dropout))


def xavier(model):
    for parameter in model.parameters():
        if parameter.dim() > 1:
            nn.init.xavier_uniform_(parameter)
    return model


def train_squares(model, points, epochs=50, batch_size=16, seed=42, lr=0.01):
    """Mean training and validation loss of every epoch, and the loss over all points at the end, as godoy.StepByStep trains."""
    generator = torch.Generator()
    data = torch.utils.data.TensorDataset(points, points[:, 2:])
    loader = torch.utils.data.DataLoader(data, batch_size=batch_size, shuffle=True, generator=generator)
    optimizer = torch.optim.Adam(model.parameters(), lr=lr)
    torch.manual_seed(seed)
    generator.manual_seed(seed)
    train, validation = [], []
    for _ in range(epochs):
        model.train()
        losses = []
        for x, y in loader:
            loss = F.mse_loss(model(x), y)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.item())
        train.append(sum(losses) / len(losses))
        model.eval()
        with torch.no_grad():
            held = [F.mse_loss(model(x[:, :2]), x[:, 2:]).item() for x in points.split(batch_size)]
        validation.append(sum(held) / len(held))
    with torch.no_grad():
        return train, validation, F.mse_loss(model(points[:, :2]), points[:, 2:]).item()


# ---- digits in patches -------------------------------------------------------------------------------------------------------------


class PatchBlock(nn.Module):
    def __init__(self, width, n_heads, over):
        super().__init__()
        self.n_heads, self.over = n_heads, over
        self.ln1, self.ln2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attn = named(**{name: nn.Linear(width, width * n_heads) for name in ("key", "query", "value")})
        self.attn.proj = nn.Linear(width * n_heads, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.ReLU(), nn.Linear(4 * width, width))

    def attention(self, x):
        q, k, v = self.attn.query(x), self.attn.key(x), self.attn.value(x)
        if self.over == "features":  # feature f of head h is column f H + h
            q, k, v = (t.unflatten(-1, (-1, self.n_heads)) for t in (q, k, v))
            maps = (torch.einsum("blfh,blgh->bhfg", q, k) / math.sqrt(x.shape[1])).softmax(-1)
            y = torch.einsum("bhfg,blgh->bfhl", maps, v).reshape(x.shape[0], x.shape[1], -1)
        else:
            q, k, v = (t.unflatten(-1, (self.n_heads, -1)) for t in (q, k, v))
            maps = (torch.einsum("blhf,bmhf->bhlm", q, k) / math.sqrt(x.shape[2])).softmax(-1)
            y = torch.einsum("bhlm,bmhf->blhf", maps, v).flatten(2)
        return self.attn.proj(y), maps

    def forward(self, x):
        x = self.ln1(x + self.attention(x)[0])
        return self.ln2(x + self.mlp(x))


class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.mlp = nn.Sequential(nn.Linear(784, 784), nn.ReLU(), nn.Linear(784, 10))

    def forward(self, x):
        return self.mlp(x)


class Patches(Mlp):
    """sensio.Model, which draws an MLP's weights first."""

    def __init__(self, n_input=49, n_embd=49, seq_len=16, n_heads=16, n_layers=1, over="features"):
        super().__init__()
        self.mlp = None
        self.pos_emb = nn.Parameter(torch.zeros(1, seq_len, n_embd))
        self.inp_emb = nn.Linear(n_input, n_embd)
        self.tranformer = nn.Sequential(*[PatchBlock(n_embd, n_heads, over) for _ in range(n_layers)])
        self.fc = nn.Linear(n_embd * seq_len, 10)

    def forward(self, x):
        return self.fc(self.tranformer(self.inp_emb(x) + self.pos_emb).flatten(1))


def train_digits(model, x, y, epochs, batch_size=64, lr=3e-4):
    """The loss of every batch; the loader shuffles from the default generator."""
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, y), batch_size=batch_size, shuffle=True)
    optimizer = torch.optim.Adam(model.parameters(), lr=lr)
    losses = []
    for _ in range(epochs):
        for inputs, labels in loader:
            optimizer.zero_grad()
            loss = F.cross_entropy(model(inputs), labels)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    return losses
