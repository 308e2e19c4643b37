"""Common first mistakes: each error says what was passed, and what to write instead."""

import copy
import importlib.util
import inspect
import pickle
import traceback

import numpy as np
import pytest
import transformer_c as tc
from transformer_c import _hints, _names, _tensor_numpy


def _attend(attn_mask):
    q, k = np.zeros((3, 2, 5, 4)), np.zeros((3, 2, 6, 4))
    return tc.functional.scaled_dot_product_attention(q, k, k, attn_mask=attn_mask)


_LINEAR = tc.nn.Linear(4, 4)
_ENCODER = tc.nn.TransformerEncoderLayer(8, 2, 8, batch_first=True)


def _schedule(make, **options):
    return make(tc.optim.SGD([tc.nn.Parameter([1.0])], lr=0.1), **options)


MISTAKES = {
    "a digit without pixels": (lambda: tc.datasets.digits(side=0), ValueError, "side must be at least 1, got 0"),
    "one number for a patch": (
        lambda: tc.datasets.cut_patches(np.zeros((1, 8, 8)), 4),
        TypeError,
        r"patch_size must be a height and a width, such as \(7, 7\), got 4",
    ),
    "sizes that are no list": (
        lambda: tc.datasets.cut_patches(np.zeros((1, 2, 2)), np.array([3, 3])),
        ValueError,
        "with room for a patch of 3 x 3",
    ),
    "half a pixel": (lambda: tc.datasets.cut_patches(np.zeros((1, 8, 8)), (4.5, 4)), TypeError, r"patch_size must be an int, got 4\.5"),
    "no squares": (lambda: tc.datasets.square_sequences(-1), ValueError, "n must be at least 1, got -1"),
    "no categories": (lambda: tc.datasets.ReverseDataset(0, 16, 3), ValueError, "num_categories must be at least 1, got 0"),
    "an op that is no function": (lambda: tc.custom_op(3, np.cos), TypeError, r"forward must be a function on ndarrays, got 3 \(int\)"),
    "an op without a backward": (lambda: tc.custom_op(np.sin, None), TypeError, "backward must be a function on ndarrays, got None"),
    "a number for a schedule": (
        lambda: _schedule(tc.optim.lr_scheduler.LambdaLR, lr_lambda=0.9),
        TypeError,
        "lr_lambda must be a function of the epoch, or a list of one for each group, got 0.9",
    ),
    "a limit in quotes": (
        lambda: tc.nn.utils.clip_grad_norm_(_LINEAR.parameters(), "1.0"),
        TypeError,
        r"max_norm must be a number, got '1\.0' \(str\)",
    ),
    "a text to round": (lambda: tc.round("a"), TypeError, "^input has dtype <U1"),
    "a text to compare with": (lambda: tc.allclose(tc.ones(2), "a"), TypeError, "^other has dtype <U1"),
    "zeros like nothing": (lambda: tc.zeros_like(None), TypeError, "^input is None"),
    "a grid of a text": (lambda: tc.meshgrid(tc.ones(2), "a"), TypeError, "^array 1 has dtype <U1"),
    "a vector for a matrix": (lambda: tc.ones(2, 2).addmm(tc.ones(2, 2), tc.ones(2)), ValueError, r"^mat2 has shape \(2,\); addmm"),
    "a mask of another length": (
        lambda: tc.masked_select(tc.ones(3), tc.ones(2) > 0),
        ValueError,
        r"^input \(3,\) and mask \(2,\) do not broadcast",
    ),
    "vectors of other lengths": (
        lambda: tc.functional.cosine_similarity(tc.ones(1, 2), tc.ones(1, 3)),
        ValueError,
        r"^x1 \(1, 2\) and x2 \(1, 3\) do not broadcast",
    ),
    "the limits of floats": (lambda: tc.iinfo(tc.float32), TypeError, r"iinfo\(\) takes a dtype of integers, got .*tc\.finfo"),
    "a mask of nothing": (lambda: tc.expand_mask(None), TypeError, r"expand_mask\(\) takes a Tensor or an array of numbers"),
    "a probability that is text": (lambda: tc.nn.Dropout("a"), TypeError, "^the dropout probability must be a number, got 'a'"),
    "a range without an end": (lambda: tc.arange(0, float("inf")), ValueError, "^end must be finite, got inf"),
    "the largest of nothing": (lambda: tc.ones(0, 3).max(0), ValueError, "^max over no elements"),
    "a deviation of integers": (lambda: tc.ones(2).long().std(), TypeError, "^the argument of var or std is int64"),
    "one milestone": (
        lambda: _schedule(tc.optim.lr_scheduler.MultiStepLR, milestones=3),
        TypeError,
        r"milestones must be a list of ints, such as \[30, 80\], not int",
    ),
    "modules without names": (lambda: tc.nn.ModuleDict([_LINEAR]), TypeError, "ModuleDict takes a dict of modules"),
    "a layer without its heads": (
        lambda: tc.nn.TransformerEncoderLayer(8),
        TypeError,
        r"^TransformerEncoderLayer\(\) missing 1 required positional argument: 'nhead'",
    ),
    "a dtype after the lengths": (lambda: tc.zeros(2, 3, float), TypeError, r"write the dtype by name, as in zeros\(\(2, 3\), dtype="),
    "a text among arrays": (lambda: tc.cat([tc.ones(2), "a"]), TypeError, r"^tensors\[1\] has dtype <U1"),
    "one dataset to join": (
        lambda: tc.data.ConcatDataset(tc.data.TensorDataset(tc.ones(3))),
        TypeError,
        "datasets must be a list of datasets, not TensorDataset",
    ),
    "a split into text": (lambda: tc.data.random_split([1, 2], "a"), TypeError, "lengths must be a list of sizes or of fractions, not str"),
    "one schedule to chain": (
        lambda: tc.optim.lr_scheduler.ChainedScheduler(_schedule(tc.optim.lr_scheduler.StepLR, step_size=2)),
        TypeError,
        "schedulers must be a list of schedules, not StepLR",
    ),
    "a factor that is text": (
        lambda: _schedule(tc.optim.lr_scheduler.ConstantLR, factor="a"),
        TypeError,
        "factor must be a number, got 'a'",
    ),
    "a decay that is text": (
        lambda: _schedule(tc.optim.lr_scheduler.ExponentialLR, gamma="a"),
        TypeError,
        "gamma must be a number, got 'a'",
    ),
    "a least change that is text": (
        lambda: tc.callbacks.EarlyStopping("x", min_delta="a"),
        TypeError,
        "min_delta must be a number, got 'a'",
    ),
    "a sum of an array": (
        lambda: tc.distributed.all_reduce(np.ones(2), np.ones(2)),
        ValueError,
        "op must be 'sum' or 'mean' or 'max', got",
    ),
    "a convolution without a kernel": (lambda: tc.nn.Conv1d(3, 4), TypeError, r"^Conv1d\(\) missing 1 .*'kernel_size'"),
    "an activation of two arguments": (lambda: tc.nn.ReLU(True, 3), TypeError, r"^ReLU\(\) takes from 1 to 2"),
    "an activation's typo": (lambda: tc.nn.ReLU(in_place=True), TypeError, "did you mean 'inplace'"),
    "a parameter without a list": (lambda: tc.nn.ParameterList(3), TypeError, "values must be a list of parameters, not int"),
    "a dropout without a seed": (lambda: tc.ops.dropout_forward(np.ones(2), 0.5, None, 1), TypeError, "seed must be an int, not NoneType"),
    "parameters that are not called": (lambda: tc.optim.SGD(_LINEAR.parameters, lr=0.1), TypeError, r"not method; call it: parameters\(\)"),
    "gradients of a method": (lambda: tc.nn.utils.clip_grad_norm_(_LINEAR.parameters, 1.0), TypeError, r"call it: parameters\(\)"),
    "a negative limit": (
        lambda: tc.nn.utils.clip_grad_norm_(_LINEAR.parameters(), -1.0),
        ValueError,
        "max_norm must not be negative, got -1.0",
    ),
    "a device for a dtype": (lambda: tc.ones(2).softmax(-1, "cpu"), TypeError, "'cpu' is not a dtype"),
    "a number for a dtype": (lambda: tc.ones(2).cumsum(0, 9), TypeError, "9 is not a dtype; expected one of float32"),
    "random numbers of a number": (lambda: tc.rand_like(tc.ones(2), 9), TypeError, "9 is not a dtype"),
    "a permutation of a device": (lambda: tc.randperm(3, dtype="cpu"), TypeError, "'cpu' is not a dtype"),
    "no value to watch": (
        lambda: _schedule(tc.optim.lr_scheduler.ReduceLROnPlateau).step(None),
        TypeError,
        "metrics must be a number, got None",
    ),
    "normal ints in place": (lambda: tc.ones(2).long().normal_(0.0, 0.02), TypeError, r"floating tensor, not int64; tc\.randint"),
    "a range upside down": (lambda: tc.ones(2).uniform_(1.0, 0.0), ValueError, "low=1.0, to=0.0"),
    "a negative deviation": (lambda: tc.ones(2).normal_(std=-1.0), ValueError, "std must not be negative"),
    "a bound that is no number": (
        lambda: tc.ones(2).uniform_(0.0, float("nan")),
        ValueError,
        "finite bounds, low at most to, got low=0.0, to=nan",
    ),
    "initial values of a range upside down": (lambda: tc.nn.init.uniform_(tc.ones(2), 1.0, 0.0), ValueError, "low=1.0, to=0.0"),
    "initial values of a negative gain": (lambda: tc.nn.init.xavier_uniform_(tc.ones(2, 2), gain=-1), ValueError, "low at most to"),
    "initial values of a negative deviation": (lambda: tc.nn.init.normal_(tc.ones(2), std=-1.0), ValueError, "std must not be negative"),
    "a leaf to draw into": (lambda: tc.ones(2, requires_grad=True).uniform_(), RuntimeError, "leaf"),
    "the limits of integers": (lambda: tc.finfo(tc.long), TypeError, r"got int64; tc\.iinfo"),
    "a cast to 16 bits": (lambda: tc.ones(2).short(), AttributeError, r"use t\.int\(\): there are no integers of 16 bits"),
    "PyTorch's ndimension": (lambda: tc.ones(2).ndimension(), AttributeError, r"use t\.ndim"),
    "a complementary error function": (lambda: tc.ones(2).erfc(), AttributeError, r"use 1 - t\.erf\(\)"),
    "arrays to join one by one": (lambda: tc.cat(tc.ones(2), tc.ones(2)), TypeError, r"into one list: cat\(\[a, b\]\)"),
    "arrays to stack one by one": (lambda: tc.stack(np.ones(2), np.ones(2)), TypeError, r"into one list"),
    "an axis that is not there to flatten": (lambda: tc.nn.Flatten(7)(tc.ones(2, 3, 4)), IndexError, "7"),
    "a scalar to flatten": (lambda: tc.nn.Flatten()(tc.tensor(1.0)), IndexError, "1"),
    "axes to flatten in the wrong order": (lambda: tc.nn.Flatten(2, 1)(tc.ones(2, 3, 4)), ValueError, "2"),
    "a state dict with a key missing and a wrong shape": (
        lambda: tc.nn.Linear(2, 2).load_state_dict({"weight": np.ones((3, 3))}),
        RuntimeError,
        r"missing keys: 'bias'\n  weight: got \(3, 3\)",
    ),
    "query, key and value": (
        lambda: tc.MultiheadAttention(32, 32, 4)(*[tc.ones(2, 5, 32)] * 3),
        TypeError,
        r"that of x: this layer attends .*layer\(x, mask\)",
    ),
    "x twice": (lambda: tc.MultiheadAttention(32, 32, 4)(*[tc.ones(2, 5, 32)] * 2), TypeError, r"tc\.nn\.MultiheadAttention takes query"),
    "a loss that is not made": (lambda: tc.nn.MSELoss(tc.ones(2), tc.ones(2)), TypeError, "MSELoss"),
    "a cross-entropy that is not made": (
        lambda: tc.nn.CrossEntropyLoss(tc.ones(2, 3), tc.ones(2).long()),
        TypeError,
        r"CrossEntropyLoss\(\)\(input, target\)",
    ),
    "silu of integers": (lambda: tc.functional.silu([1, 2]), TypeError, r"the argument of silu is int64; .*\.float\(\)"),
    "a backward of other shapes": (
        lambda: tc.ops.silu_backward(tc.ones(3), tc.ones(4)),
        ValueError,
        r"dy has shape \(3,\) but x has \(4,\)",
    ),
    "no argument": (lambda: tc.ones(2).transpose(), TypeError, "is missing the arguments 'dim0', 'dim1'"),
    "no arguments": (
        lambda: tc._core.linear(),
        TypeError,
        r"linear\(\) is missing the arguments 'x', 'weight'; its signature is linear\(x, w",
    ),
    "a number for padding": (lambda: tc.functional.pad(tc.ones(2), 2), TypeError, "pad must be a sequence of ints, two for each axis"),
    "var(unbiased) as in PyTorch": (lambda: tc.ones(2, 2).var(False), TypeError, "dim must be an int, not bool"),
    "keepdim for an axis": (lambda: tc.ones(2, 2).sum(True), TypeError, "axis must be an int, not bool"),
    "keepdim for an axis of argmax": (lambda: tc.ones(2, 2).argmax(True), TypeError, "axis must be an int, not bool"),
    "an index to ignore among probabilities": (
        lambda: tc.nn.CrossEntropyLoss(ignore_index=1)(tc.zeros(2, 3), np.eye(3)[:2]),
        ValueError,
        "ignore_index is 1 and target has probabilities",
    ),
    "a method of PyTorch": (lambda: tc.ones(2).dot(tc.ones(2)), AttributeError, r"no attribute 'dot'; use t @ u"),
    "differences": (lambda: tc.ones(2).diff(), AttributeError, r"use t\[\.\.\., 1:\] - t\[\.\.\., :-1\]"),
    "a function as a method": (lambda: tc.ones(2).dropout(0.5), AttributeError, r"use tc\.functional\.dropout\(t\)"),
    "values of max": (lambda: tc.ones(2, 2).max(axis=1).values, AttributeError, r"use t\.max\(dim\)\.values"),
    "no attribute anywhere": (lambda: tc.ones(2).foo, AttributeError, "'Tensor' object has no attribute 'foo'$"),
    "a method as a function": (lambda: tc.tolist(tc.ones(2)), AttributeError, r"use the method, t\.tolist\(\)"),
    "a misspelt name": (lambda: tc.Tensro, AttributeError, r"no attribute 'Tensro'; use tc\.Tensor, if that is what you mean"),
    "a misspelt function": (lambda: tc.sofmax, AttributeError, r"use tc\.softmax, if that is what you mean"),
    "a misspelt layer": (lambda: tc.nn.Liner, AttributeError, "module 'transformer_c.nn' has no attribute 'Liner'; did you mean 'Linear'"),
    "a misspelt loss": (lambda: tc.functional.cross_entrpy, AttributeError, "did you mean 'cross_entropy'"),
    "an optimizer in small letters": (lambda: tc.optim.adam, AttributeError, "did you mean 'Adam'"),
    "a misspelt method": (lambda: tc.ones(2).sofmax(0), AttributeError, r"use t\.softmax, if that is what you mean"),
    "a loss of arrays": (
        lambda: tc.functional.mse_loss(np.ones(3), np.zeros(3)).backward(),
        AttributeError,
        r"this loss is an ndarray .* Pass Tensors, for instance model\(tc\.tensor\(x\)\)",
    ),
    "a loss module of arrays": (lambda: tc.nn.CrossEntropyLoss()(np.ones((2, 3)), [0, 1]).backward(), AttributeError, "Pass Tensors"),
    "classes on the last axis": (
        lambda: tc.nn.CrossEntropyLoss()(tc.zeros(2, 5, 3), tc.zeros(2, 5).long()),
        ValueError,
        r"they belong on axis 1: pass input\.swapaxes\(1, -1\), or input\.reshape\(-1, 3\) and target\.reshape\(-1\)",
    ),
    "two widths": (lambda: tc.nn.Linear("3", -1), TypeError, "2 arguments are wrong:\n  in_features .*'3'.*\n  out_features .* -1"),
    "four options of a block": (
        lambda: tc.EncoderBlock(8.0, 2, 16, dropout=3, activation="tanh", layer_norm_eps=-1.0),
        TypeError,
        r"4 arguments are wrong:\n  input_dim .*\n  the dropout probability .*\n  activation .*\n  layer_norm_eps",
    ),
    "three options of a layer": (
        lambda: tc.nn.TransformerEncoderLayer("8", 2, 0, dropout=-1),
        TypeError,
        r"3 arguments are wrong:\n  d_model .*\n  dim_feedforward .*\n  the dropout",
    ),
    "a layer's activation and heads as well": (
        lambda: tc.nn.TransformerEncoderLayer(30, 7, -1, dropout=2, activation="foo"),
        ValueError,
        r"4 arguments are wrong:\n  dim_feedforward .*\n  the dropout .*\n  activation .*\n  d_model 30 must be a multiple of nhead 7",
    ),
    "heads and dropout": (
        lambda: tc.nn.MultiheadAttention(30, 7, dropout=3),
        ValueError,
        r"2 arguments are wrong:\n  the dropout .*\n  embed_dim 30 must be a multiple of num_heads 7",
    ),
    "heads of a block": (
        lambda: tc.EncoderBlock(32, 5, -3, dropout=2),
        ValueError,
        r"3 arguments are wrong:\n  dim_feedforward .*\n  the dropout .*\n  Embedding dimension must be 0 modulo",
    ),
    "blocks that none is made of": (
        lambda: tc.TransformerEncoder(num_layers=0, input_dim=30, num_heads=7, dim_feedforward=-1),
        ValueError,
        "2 arguments are wrong",
    ),
    "a share of batches that is no share": (
        lambda: tc.Trainer(1, limit_train_batches=-(10**5000)),
        ValueError,
        "limit_train_batches must be a number of batches, .* got an int of 16610 bits",
    ),
    "a place in a container of modules": (lambda: tc.nn.ModuleList()[10**5000], IndexError, "index an int of 16610 bits is out of range"),
    "one axis for a transposed convolution": (
        lambda: tc.nn.ConvTranspose2d(4, 2, 3)(np.ones(4, np.float32), output_size=9),
        ValueError,
        r"ConvTranspose2d takes input of 4 axes \(samples, channels, height, width\), or without samples, .*got input \(4,\)",
    ),
    "groups of a convolution": (
        lambda: tc.nn.Conv1d(3, 4, 2, stride=0, groups=2),
        ValueError,
        r"2 arguments are wrong:\n  stride.*\n  in_channels 3 must be a multiple of groups 2",
    ),
    "orders of a loader": (
        lambda: tc.data.DataLoader([1], batch_size=0, num_workers=-1, sampler=3, shuffle=True),
        ValueError,
        r"3 arguments are wrong:\n  batch_size .*\n  num_workers .*\n  sampler and shuffle",
    ),
    "options of a trainer": (
        lambda: tc.Trainer(0, gradient_clip_val=-1, mode="x", precision=16, callbacks=3, fast_dev_run=-1),
        TypeError,
        r"6 arguments are wrong:\n  max_epochs .*\n  gradient_clip_val .*\n  mode .*\n  precision .*\n  fast_dev_run .*\n  callbacks ",
    ),
    "options that a trainer lacks": (
        lambda: tc.Trainer(profiler="simple", val_check_interval=2, max_epoch=3),
        TypeError,
        "3 arguments are wrong:\n.*'profiler'.*\n.*'val_check_interval'.*\n.*did you mean 'max_epochs'",
    ),
    "a rate by Keras's name": (lambda: tc.optim.Adam([], learning_rate=1), TypeError, r"Adam\(\) has no option 'learning_rate': lr="),
    "an eps of text": (lambda: tc.nn.LayerNorm(4, eps="1e-5"), TypeError, r"eps must be a number, got '1e-5' \(str\)"),
    "an eps of None": (lambda: tc.nn.LayerNorm(4, eps=None), TypeError, r"eps must be a number, got None"),
    "an eps below 0": (lambda: tc.nn.RMSNorm(4, eps=-1.0), ValueError, r"eps must not be negative, got -1.0"),
    "groups with an eps that is NaN": (lambda: tc.nn.GroupNorm(1, 4, eps=np.nan), ValueError, r"eps must not be negative, got nan"),
    "epsilon by Keras's name": (lambda: tc.nn.LayerNorm(4, epsilon=1e-3), TypeError, r"LayerNorm\(\) has no option 'epsilon': eps="),
    "a misspelt option of a layer": (
        lambda: tc.nn.TransformerEncoderLayer(4, 2, dim_feedforwrd=3),
        TypeError,
        r"TransformerEncoderLayer\(\) has no option 'dim_feedforwrd': did you mean 'dim_feedforward'",
    ),
    "two words of a loader": (
        lambda: tc.data.DataLoader([1], batchsize=2, shufle=True),
        TypeError,
        "2 arguments are wrong:\n.*'batch_size'\\?\n.*'shuffle'",
    ),
    "a misspelt method of a module": (lambda: _LINEAR.paramters(), AttributeError, "no attribute 'paramters'; did you mean 'parameters'"),
    "PyTorch's names for an EncoderBlock": (
        lambda: tc.EncoderBlock(d_model=8, nhead=2, dim_feedforward=16, batch_first=True),
        TypeError,
        r"has no option 'd_model': input_dim=\n.*has no option 'nhead': num_heads=",
    ),
    "a misspelt layer of a module": (lambda: tc.EncoderBlock(4, 1, 8).self_atn, AttributeError, "did you mean 'self_attn'"),
    "a module to fit": (lambda: _LINEAR.fit([1]), AttributeError, r"use tc\.Trainer\(epochs\)\.fit"),
    "arrays into a loader": (
        lambda: tc.data.DataLoader((np.ones((6, 2)), np.ones(6)), batch_size=2),
        TypeError,
        r"a tuple of arrays of one length; write TensorDataset\(X, y\)",
    ),
    "a recurrent layer": (lambda: tc.nn.LSTM, AttributeError, r"'LSTM'; use nn\.TransformerEncoder.*: there are no recurrent layers"),
    "a normalisation of channels": (
        lambda: tc.nn.InstanceNorm2d,
        AttributeError,
        r"'InstanceNorm2d'; use nn\.GroupNorm\(channels, channels, affine=False\)",
    ),
    "a pooling of whole channels": (lambda: tc.nn.AdaptiveMaxPool1d, AttributeError, r"use t\.amax\(-1, keepdim=True\), for one number"),
    "an optimizer that does not exist": (lambda: tc.optim.Adadelta, AttributeError, r"'Adadelta'; use optim\.AdamW"),
    "options of an optimizer": (
        lambda: tc.optim.Adam(_LINEAR.parameters(), lr=-1, betas=(0.9, 2)),
        ValueError,
        r"2 arguments are wrong:\n  lr .*\n  betas\[1\]",
    ),
    "arguments of a call": (
        lambda: tc.ones(2, 2).sum(1.5, keepdim="a", foo=3),
        TypeError,
        r"3 arguments of sum\(\) are wrong:\n  axis .*float\n  keepdim .*str\n  sum\(\) has no argument 'foo'",
    ),
    "a functional at top level": (lambda: tc.gelu(tc.ones(2)), AttributeError, r"use tc\.functional\.gelu"),
    "a layer at top level": (lambda: tc.Linear(2, 2), AttributeError, r"use tc\.nn\.Linear"),
    "a name of NumPy": (lambda: tc.interp, AttributeError, r"use NumPy: np\.interp, with t\.numpy\(\) and without a gradient"),
    "a method that is made of others": (lambda: tc.ones(2).take(tc.tensor([0])), AttributeError, r"use t\.reshape\(-1\)\[index\]$"),
    "attention by a function of scores": (lambda: tc.nn.attention.flex_attention, AttributeError, "use .* with bias=, window="),
    "a name of NumPy that takes no array": (lambda: tc.blackman, AttributeError, "no attribute 'blackman'$"),
    "equal arrays": (lambda: tc.array_equal, AttributeError, r"use tc\.equal$"),
    "TensorBoard as in PyTorch": (lambda: tc.utils.tensorboard, AttributeError, r"use tc\.loggers\.TensorBoardLogger"),
    "several processes": (lambda: tc.nn.parallel, AttributeError, r"tc\.distributed\.all_reduce"),
    "an older new_empty": (lambda: tc.ones(2).new(2, 3), AttributeError, r"use t\.new_empty\(lengths\)"),
    "a dropout of channels": (lambda: tc.nn.Dropout2d, AttributeError, r"of ones \(N, C, 1, 1\): whole channels"),
    "a function in place": (lambda: tc.ones(2).log2_(), AttributeError, r"use t\.copy_\(t\.log2\(\.\.\.\)\), or t = t\.log2"),
    "a shape in place": (lambda: tc.ones(2).unsqueeze_(0), AttributeError, r"use t = t\.unsqueeze\(\.\.\.\)$"),
    "NumPy's moveaxis": (lambda: tc.moveaxis, AttributeError, r"use tc\.movedim$"),
    "columns side by side": (lambda: tc.column_stack, AttributeError, r"of vectors, tc\.cat\(tensors, dim=1\) of matrices"),
    "an inverse of erf": (lambda: tc.ones(2).erfinv_(), AttributeError, r"use tc\.nn\.init\.trunc_normal_"),
    "a padding layer": (lambda: tc.nn.ReplicationPad1d, AttributeError, "use functional.pad\\(t, padding, mode='replicate'\\)"),
    "windows by strides": (lambda: tc.ones(4).as_strided((2, 2), (1, 1)), AttributeError, r"use t\.unfold\(dim, size, step\), for windows"),
    "windows of the package": (lambda: tc.as_strided, AttributeError, r"use t\.unfold\(dim, size, step\), for windows"),
    "a window of audio": (lambda: tc.hann_window(4), AttributeError, r"use 0\.5 - 0\.5 \* tc\.cos\(2 \* tc\.pi \* tc\.arange"),
    "an exponential distribution": (lambda: tc.ones(2).exponential_(0.0), ValueError, r"needs a positive, finite lambd, got 0\.0"),
    "an older name of resizing": (lambda: tc.F.upsample_bilinear, AttributeError, r"use tc\.functional\.interpolate$"),
    "channels that are dropped": (lambda: tc.F.dropout2d, AttributeError, r"of ones \(N, C, 1, \.\.\.\)"),
    "a layer that resizes": (lambda: tc.nn.Upsample, AttributeError, "use functional.interpolate$"),
    "a method of ndarrays": (lambda: tc.ones(2).tobytes(), AttributeError, r"use t\.numpy\(\)\.tobytes, without a gradient"),
    "an axis more": (lambda: tc.expand_dims, AttributeError, r"use tc\.unsqueeze, or t\[None\]"),
    "a loader at top level": (lambda: tc.DataLoader, AttributeError, r"use tc\.data\.DataLoader$"),
    "an optimizer at top level": (lambda: tc.Adam, AttributeError, r"use tc\.optim\.Adam$"),
    "a callback at top level": (lambda: tc.Callback, AttributeError, r"use tc\.callbacks\.Callback$"),
    "a data set at top level": (lambda: tc.Dataset, AttributeError, r"use tc\.data\.Dataset$"),
    "a seed as in NumPy": (lambda: tc.random.seed(0), AttributeError, r"use tc\.manual_seed\(seed\)"),
    "a normal distribution of no size": (lambda: tc.random.normal(), TypeError, r"needs a size: normal\(mean, std, size\)"),
    "a dtype after the shape": (lambda: tc.zeros((2, 3), int), TypeError, r"write the dtype by name, as in zeros\(\(2, 3\), dtype="),
    "a place for the result": (
        lambda: tc.mul(tc.ones(2), 2.0, out=tc.ones(2)),
        TypeError,
        r"mul\(\) has no argument 'out'; use its result, or out\.copy_\(mul\(",
    ),
    "a dtype of a sum": (lambda: tc.ones(2).sum(dtype="float64"), TypeError, r"has no argument 'dtype'; .* \.to\(dtype\)"),
    "a method of NumPy's": (lambda: tc.ones(2).median(), AttributeError, r"use NumPy: np\.median, with t\.numpy\(\)"),
    "argwhere": (lambda: tc.argwhere, AttributeError, "use tc.nonzero"),
    "GradScaler": (lambda: tc.GradScaler, AttributeError, "use tc.amp.GradScaler"),
    "a capital": (lambda: tc.optim.Adamw, AttributeError, "did you mean 'AdamW'"),
    "no name anywhere": (lambda: tc.foo, AttributeError, "no attribute 'foo'$"),
    "a misspelt device": (lambda: tc.ones(2).to("cud"), ValueError, r"to\('cud'\): neither a dtype .* nor a device"),
    "a module on a misspelt device": (lambda: tc.nn.Linear(2, 2).to("cud"), ValueError, "neither a dtype .* nor a device"),
    "a module into an optimizer": (lambda: tc.optim.Adam(_LINEAR), TypeError, r"pass its \.parameters\(\)"),
    "a module to clip": (lambda: tc.nn.utils.clip_grad_norm_(_LINEAR, 1.0), TypeError, r"pass its \.parameters\(\)"),
    "named triples": (lambda: tc.optim.Adam([("weight", _LINEAR.weight, 0.1)]), TypeError, "takes Tensors, got tuple"),
    "named modules": (lambda: tc.optim.Adam(tc.nn.Sequential(_LINEAR).named_modules()), TypeError, "takes Tensors, got Sequential"),
    "a learning rate in quotes": (lambda: tc.optim.Adam(_LINEAR.parameters(), lr="1e-3"), TypeError, "lr must be a number, got '1e-3'"),
    "a width in quotes": (lambda: tc.MultiheadAttention("32", 32, 4), TypeError, r"input_dim must be an int, got '32' \(str\)"),
    "heads as a float": (lambda: tc.MultiheadAttention(32, 32, 4.0), TypeError, "num_heads must be an int, got 4.0"),
    "no heads": (lambda: tc.MultiheadAttention(32, 32, 0), ValueError, "num_heads must be at least 1, got 0"),
    "negative features": (lambda: tc.nn.Linear(-1, 2), ValueError, "in_features must be at least 0, got -1"),
    "layers in quotes": (lambda: tc.TransformerEncoder("2"), TypeError, "num_layers must be an int"),
    "a layer norm of another width": (
        lambda: tc.nn.LayerNorm(8)(np.ones((2, 4))),
        ValueError,
        r"normalized_shape is \(8,\), but x has shape \(2, 4\)",
    ),
    "a mask by name": (lambda: _attend("causal"), TypeError, "expected .* an array of numbers"),
    "a module's mask by name": (
        lambda: tc.MultiheadAttention(4, 4, 1)(np.ones((1, 2, 4)), mask="causal"),
        TypeError,
        "mask must be an array of bool or numbers",
    ),
    "key padding as it comes": (lambda: _attend(np.ones((3, 6), bool)), ValueError, r"write mask\[:, None, None, :\]"),
    "ragged lists": (lambda: tc.tensor([[1, 2], [3]]), ValueError, "nested lists have different lengths"),
    "a size that is none": (lambda: tc.randn("a"), TypeError, "size must be ints or one sequence of ints, got 'a'"),
    "a list into Sequential": (lambda: tc.nn.Sequential([_LINEAR, _LINEAR]), TypeError, r"unpacked with \*"),
    "a precision there is none of": (lambda: tc.set_float32_precision("low"), ValueError, "'highest' or 'high' or 'medium', got 'low'"),
    "a loss that is made of its inputs": (
        lambda: tc.nn.MSELoss(tc.ones(2), tc.ones(2)),
        TypeError,
        r"make the loss first, then call it: MSELoss\(\)\(input, target\)",
    ),
    "one beta": (lambda: tc.optim.Adam(_LINEAR.parameters(), betas=0.9), TypeError, r"betas must be two numbers, .* got 0\.9"),
    "three betas": (lambda: tc.optim.AdamW(_LINEAR.parameters(), betas=(0.9, 0.9, 0.9)), TypeError, "betas must be two numbers"),
    "a count of parameters": (lambda: _LINEAR.num_parameters(), AttributeError, r"use sum\(p\.numel\(\) for p in model\.parameters\(\)\)"),
    "a function with gradients of gradients": (
        lambda: tc.autograd.function.FunctionCtx(()).save_for_forward,
        AttributeError,
        r"use save_for_backward\(\)",
    ),
    "a distribution that there is not": (lambda: tc.distributions.Multinomial(3), AttributeError, r"use tc\.multinomial\(p, n"),
    "the factors of a matrix": (lambda: tc.qr, AttributeError, r"use tc\.linalg\.qr"),
    "transforms of functions": (lambda: tc.func, AttributeError, r"use tc\.autograd\.grad"),
    "a function that is traced": (lambda: tc.jit.trace, AttributeError, "use the module itself"),
    "gradients of gradients": (
        lambda: tc.autograd.grad(_LINEAR.weight.sum(), _LINEAR.weight, create_graph=True),
        ValueError,
        "there are no gradients of gradients",
    ),
    "a longer name of NumPy's": (lambda: tc.multiply, AttributeError, r"use tc\.mul$"),
    "a method by its longer name": (lambda: tc.ones(2).true_divide, AttributeError, r"use t\.div$"),
    "a default dtype": (lambda: tc.set_default_dtype("float64"), AttributeError, r"use dtype= .* and model\.double\(\)"),
    "pooling as a function": (lambda: tc.F.adaptive_max_pool2d, AttributeError, r"use t\.amax\(dim, keepdim=True\)"),
    "an initialisation that there is not": (lambda: tc.nn.init.sparse_, AttributeError, r"use t\.zero_\(\)"),
    "a factorisation that there is not": (lambda: tc.linalg.cholesky, AttributeError, r"np\.linalg\.cholesky of t\.numpy"),
    "an outer product by its old name": (lambda: tc.ger, AttributeError, r"use tc\.outer$"),
    "complex numbers": (lambda: tc.polar, AttributeError, "two real Tensors.*no complex dtypes"),
    "a sparse tensor": (lambda: tc.ones(2).to_sparse(), AttributeError, "use t itself: there are no sparse tensors"),
    "a lazy layer": (lambda: tc.nn.LazyLinear, AttributeError, r"use nn\.Linear\(width"),
    "a progress bar of Lightning's": (lambda: tc.callbacks.TQDMProgressBar, AttributeError, r"use Trainer\(progress=True\)"),
    "a logger of Lightning's": (lambda: tc.loggers.WandbLogger, AttributeError, r"extends tc\.loggers\.Logger"),
    "a metric that there is not": (lambda: tc.metrics.AUROC, AttributeError, r"use sklearn\.metrics"),
    "a search for a learning rate": (lambda: tc.Trainer(1).tune, AttributeError, "no rate or size is searched for"),
    "a figure of the losses": (lambda: tc.plot.history, AttributeError, r"use tc\.plot\.losses\(trainer\)"),
    "a schedule's option": (lambda: _schedule(tc.optim.lr_scheduler.StepLR, step=3), TypeError, r"StepLR\(\) has no option 'step': it has"),
    "a schedule that prints": (
        lambda: _schedule(tc.optim.lr_scheduler.ReduceLROnPlateau, verbose=True),
        TypeError,
        r"'verbose': print\(scheduler\.get_last_lr\(\)\)",
    ),
    "a callback's option": (lambda: tc.callbacks.EarlyStopping("val_loss", patiance=3), TypeError, "did you mean 'patience'"),
    "the rate of an optimizer": (lambda: tc.optim.SGD(_LINEAR.parameters(), 0.1).lr, AttributeError, r"param_groups\[0\]"),
    "the rate of a schedule": (
        lambda: _schedule(tc.optim.lr_scheduler.StepLR, step_size=3).lr,
        AttributeError,
        r"scheduler\.get_last_lr\(\)",
    ),
    "a data set by PyTorch's name": (lambda: tc.datasets.MNIST, AttributeError, r"use datasets\.load_mnist\(folder\)"),
    "the tutorial's encoder of a layer": (
        lambda: tc.TransformerEncoder(_LINEAR, 2),
        TypeError,
        r"tc\.nn\.TransformerEncoder takes a layer",
    ),
    "another layer's mask": (lambda: _ENCODER(np.ones((2, 5, 8)), attn_mask=None), TypeError, "'attn_mask': did you mean 'src_mask'"),
    "transformers' mask": (
        lambda: _ENCODER(np.ones((2, 5, 8)), attention_mask=np.ones((2, 5))),
        TypeError,
        r"'attention_mask': src_key_padding_mask=mask == 0",
    ),
    "two unknown arguments": (lambda: _ENCODER(np.ones((2, 5, 8)), causal=1, key_mask=2), TypeError, "'causal'.*\n.*'key_mask'"),
    "PyTorch's mask of the tutorial's layer": (
        lambda: tc.EncoderBlock(8, 2, 8)(np.ones((2, 5, 8)), key_padding_mask=np.ones((2, 5))),
        TypeError,
        r"mask=~mask\[:, None, :\], nonzero = attend, of a mask \(B, T\), True = ignore",
    ),
    "key padding as a mask": (lambda: _ENCODER(np.ones((2, 5, 8)), np.ones((2, 5), bool)), ValueError, "Write it as the key padding mask"),
    "a mask of heads": (lambda: _ENCODER(np.ones((2, 5, 8)), np.ones((2, 2, 5, 5), bool)), ValueError, r"mask\.reshape\(4, 5, 5\)"),
    "a mask for all heads": (
        lambda: _ENCODER(np.ones((2, 5, 8)), np.ones((2, 1, 5, 5), bool)),
        ValueError,
        r"tc\.repeat_interleave\(mask\[:, 0\], 2, 0\)",
    ),
    "a mask as key padding": (
        lambda: _ENCODER(np.ones((2, 5, 8)), src_key_padding_mask=np.ones((5, 5), bool)),
        ValueError,
        r"Write attn_mask=mask",
    ),
    "batch first or not": (
        lambda: tc.nn.TransformerEncoderLayer(8, 2, 8)(np.ones((2, 5, 8)), src_key_padding_mask=np.ones((2, 5), bool)),
        ValueError,
        r"if the inputs are \(B, T, E\), make the layer with batch_first=True",
    ),
    "two names of one array": (lambda: tc.F.softmax(tc.ones(2), 0, x=tc.ones(2)), TypeError, "input and x are two names of one argument"),
    "two names of one axis": (lambda: tc.ones(2, 2).softmax(0, dim=1), TypeError, "axis=0 and dim=1"),
    "the bits of floats": (lambda: ~tc.ones(2), TypeError, "~ is for bools and integers, not float32; compare first, or use 1 - t"),
    "nothing to sort": (lambda: tc.sort(None), TypeError, "input is None; expected a Tensor, an ndarray"),
    "nothing by name": (lambda: tc.topk(k=1, input=None), TypeError, "input is None; expected a Tensor, an ndarray"),
    "a number to expand as": (
        lambda: tc.ones(1).expand_as(1),
        TypeError,
        r"expand_as\(\) takes another Tensor, got 1 \(int\); expand\(\) takes a shape",
    ),
    "a shape to view as": (
        lambda: tc.ones(2).view_as([1, 2]),
        TypeError,
        r"view_as\(\) takes another Tensor, got \[1, 2\] \(list\); view\(\) takes a shape",
    ),
    "numbers to clip": (lambda: tc.optim.clip_grad_norm_([1], 1.0), TypeError, r"parameters must be Tensors, got 1 \(int\)"),
    "a number to clip": (
        lambda: tc.optim.clip_grad_norm_(3, 1.0),
        TypeError,
        r"parameters must be an iterable of parameters, or one, got 3 \(int",
    ),
    "a value in quotes": (
        lambda: tc.nn.utils.clip_grad_value_(_LINEAR.parameters(), "1.0"),
        TypeError,
        r"clip_value must be a number, got '1\.0' \(str\)",
    ),
    "maps of no module": (lambda: tc.nn.attention_maps("mean"), TypeError, r"module must be an nn\.Module, got 'mean' \(str\)"),
    "an array as an axis": (lambda: tc.ones(2, 3).amax(np.ones((2, 3))), TypeError, r"dim must be an int, not ndarray of shape \(2, 3\)"),
    "a length beyond 64 bits": (lambda: tc.randn(2**63), ValueError, "size is 9223372036854775808; expected an int of at most 64 bits"),
    "a range of a pair": (lambda: tc.arange((0, 1)), TypeError, r"end must be a number, got \(0, 1\) \(tuple\)"),
    "a range in steps of text": (lambda: tc.arange(0, 4, "2"), TypeError, r"step must be a number, got '2' \(str\)"),
    "nothing to join": (lambda: tc.hstack(True), TypeError, "tensors must be a sequence of tensors, not bool"),
    "text to join": (lambda: tc.vstack("ab"), TypeError, "tensors must be a sequence of tensors, not str"),
    "an order of nothing": (lambda: tc.randperm(None), TypeError, r"n must be an int, got None \(NoneType\)"),
    "a bound that is text": (lambda: tc.nn.init.uniform_(tc.ones(2), "a"), TypeError, r"a must be a number, got 'a' \(str\)"),
    "a deviation that is text": (lambda: tc.nn.init.normal_(tc.ones(2), 0.0, "a"), TypeError, r"std must be a number, got 'a' \(str\)"),
    "bounds that are text": (
        lambda: tc.nn.init.trunc_normal_(tc.ones(2), a="a", b="b"),
        TypeError,
        "2 arguments are wrong:\n  a must be a number",
    ),
    "an order of too many": (lambda: tc.randperm(10**30), ValueError, f"n is {10**30}; expected an int of at most 64 bits"),
    "digits beyond all floats": (lambda: tc.round(np.ones(2), 400), ValueError, "decimals must be between -308 and 308, got 400"),
    "an axis beyond 64 bits": (lambda: tc.flip(np.ones((2, 3)), -(2**63)), IndexError, "out of range"),
    "nothing as axes": (lambda: tc.flip(np.ones((2, 3)), None), TypeError, "dims must be an int"),
    "a function to flip": (lambda: tc.flip(len, 0), TypeError, "expected float32"),
    "a diagonal beyond 64 bits": (lambda: tc.diag((1,), 10**30), ValueError, "diagonal is 1000.*; expected an int of at most 64 bits"),
    "no lengths": (lambda: tc.nn.Unflatten(1, None), TypeError, r"unflattened_size must be a sequence of ints, got None \(NoneType\)"),
    "a softmax of nothing, as float64": (lambda: tc.softmax(None, -1, np.float64), TypeError, "x has dtype object; expected float32"),
    **{
        f"{loss.__name__} of nothing, with weights": (
            lambda loss=loss: loss(weight=[1.0, 2.0])(None, None),
            TypeError,
            "expected a Tensor|None",
        )
        for loss in (tc.nn.CrossEntropyLoss, tc.nn.NLLLoss, tc.nn.BCELoss, tc.nn.BCEWithLogitsLoss)
    },
    "digits in a list": (lambda: tc.ones(2).round([]), TypeError, r"decimals must be an int, got \[\] \(list\)"),
    "a list as reduction": (
        lambda: tc.scatter(np.ones(2), 0, np.zeros(2, int), np.ones(2), reduce=[]),
        TypeError,
        r"reduce must be 'add', 'multiply' or None, got \[\] \(list\)",
    ),
    "a copy of a result": (
        lambda: copy.deepcopy((tc.ones(2, requires_grad=True) * 2).clone()),
        RuntimeError,
        r"only leaf Tensors can be deep-copied; this one is a result that was recorded: use detach\(\) first$",
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_the_error_says_what_to_write_instead(mistake):
    call, kind, message = MISTAKES[mistake]
    with pytest.raises(kind, match=message):
        call()


def test_saving_into_a_folder_that_is_not_there_names_the_folder(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"the folder to write to does not exist; make it first: .*nowhere'$"):
        tc.save(_LINEAR, tmp_path / "nowhere" / "model.safetensors")


def test_a_missing_attribute_is_none_to_getattr_and_hasattr():
    assert not hasattr(tc.ones(2), "mv") and getattr(tc.ones(2), "dot", None) is None
    assert not hasattr(tc, "gelu") and getattr(tc, "gelu", None) is None


def test_loaders_and_datasets_say_what_they_are():
    data = tc.data.TensorDataset(np.zeros((6, 2), np.float32), np.arange(6))
    assert repr(data) == "TensorDataset(float32 (6, 2), int64 (6,))"
    loader = tc.data.DataLoader(data, batch_size=4, shuffle=True)
    assert repr(loader) == f"DataLoader({data!r}, batch_size=4, shuffle=True, drop_last=False)"
    assert repr(tc.data.random_split(data, [2, 4], rng=0)[0]) == f"Subset(2 of {data!r})"
    assert repr(tc.datasets.ReverseDataset(10, 4, 3)) == "ReverseDataset(num_categories=10, seq_len=4, size=3)"
    anomaly = tc.datasets.SetAnomalyDataset(np.zeros((6, 2)), [0, 0, 0, 1, 1, 1], set_size=3)
    assert repr(anomaly) == "SetAnomalyDataset(6 images of 2 classes, set_size=3, train=True)"


def test_softmax_of_a_tensor_by_method_and_by_layer():
    x = tc.tensor([[0.0, np.log(3.0)], [1.0, 1.0]], dtype="float64", requires_grad=True)
    expected = [[0.25, 0.75], [0.5, 0.5]]
    for y in (x.softmax(1), x.softmax(dim=-1), tc.nn.Softmax(dim=1)(x)):
        np.testing.assert_allclose(y.detach().numpy(), expected, rtol=1e-15)
    for y in (x.log_softmax(1), tc.nn.LogSoftmax(1)(x)):
        np.testing.assert_allclose(y.detach().numpy(), np.log(expected), rtol=1e-15)
    assert x.softmax(1).requires_grad and repr(tc.nn.Softmax(dim=1)) == "Softmax(dim=1)"


def test_a_loss_of_arrays_is_a_number_like_any_other():
    loss = tc.functional.mse_loss(np.ones(3, np.float32), np.zeros(3, np.float32))
    assert isinstance(loss, np.ndarray) and loss == 1 and repr(loss) == "array(1., dtype=float32)" and f"{loss:.2f}" == "1.00"
    assert type(loss + 1) is np.float32 and type(loss * np.ones(2)) is np.ndarray and type(np.mean([loss, loss])) is np.float32
    assert copy.deepcopy(loss) == 1 and type(pickle.loads(pickle.dumps(loss))) is np.ndarray
    assert not hasattr(loss, "backward") and not hasattr(loss, "numpy")


class Frame:
    """What a data frame has, of as many columns as are given."""

    def __init__(self, **columns):
        self.columns, self.values = list(columns), columns

    def __getitem__(self, name):
        return Column(self.values[name])

    def to_numpy(self):
        kinds = {np.asarray(v).dtype for v in self.values.values()}
        return np.stack([np.asarray(v, object if len(kinds) > 1 else None) for v in self.values.values()], 1)


class Column:
    def __init__(self, values):
        self.values = values

    def to_numpy(self):
        return np.asarray(self.values)


def frames():
    """(name, function that makes a frame of columns)."""
    yield pytest.param(Frame, id="a stand-in")
    for library in ("pandas", "polars"):
        yield pytest.param(lambda library=library, **columns: pytest.importorskip(library).DataFrame(columns), id=library)


@pytest.mark.parametrize("make", [*frames()])
def test_modules_and_functions_take_frames(make):
    columns = {"a": [1.0, 2.0], "b": [3, 4]}
    x, layer = np.array([[1, 3], [2, 4]], np.float32), tc.nn.Linear(2, 3)
    np.testing.assert_allclose(layer(make(**columns)), layer(x), rtol=1e-6)
    np.testing.assert_allclose(tc.nn.Sequential(layer, tc.nn.ReLU())(make(**columns)), np.maximum(layer(x), 0), rtol=1e-6)
    classes = make(y=[0, 2])["y"]
    assert float(tc.nn.CrossEntropyLoss()(tc.ones(2, 3), classes)) == pytest.approx(np.log(3))
    for take in (layer, tc.functional.relu, lambda f: tc.functional.linear(f, np.ones((1, 2))), tc.tensor):
        with pytest.raises(TypeError, match="Frame has columns that are not numbers: 'city'; leave them out"):
            take(make(a=[1.0, 2.0], city=["x", "y"]))
    np.testing.assert_allclose(tc.functional.relu(make(a=[-1.0, 2.0], b=[0.5, -1.0])), [[0, 0.5], [2, 0]])


class Foreign:
    """An array of another library, such as PyTorch's Tensor."""

    def __init__(self, values):
        self.values = values

    def __array__(self, dtype=None, copy=None):
        return np.asarray(self.values, dtype)


@pytest.mark.parametrize("wrap", [Foreign, memoryview])
def test_modules_and_functions_take_arrays_of_other_libraries(wrap):
    x, ids = np.linspace(-1, 1, 24).reshape(2, 3, 4), np.array([[0, 2], [1, 1]])
    modules = [tc.nn.Linear(4, 2), tc.nn.LayerNorm(4), tc.EncoderBlock(4, 2, 8), tc.nn.Sequential(tc.nn.Linear(4, 2), tc.nn.ReLU())]
    for module in (*modules, tc.nn.TransformerEncoderLayer(4, 2, 8, 0.0), tc.functional.relu):
        result = module(wrap(x))
        assert isinstance(result, np.ndarray) and np.array_equal(result, module(x))
    embedding = tc.nn.Embedding(3, 2)
    assert isinstance(embedding(wrap(ids)), np.ndarray) and np.array_equal(embedding(wrap(ids)), embedding(ids))


def test_the_error_for_several_arrays_says_how_they_become_one():
    for x in ([tc.ones(4), tc.ones(4)], (tc.ones(4), tc.ones(4))):
        with pytest.raises(TypeError, match=r"Linear takes a Tensor or an array of numbers, not (list|tuple); several .* tc\.stack"):
            tc.nn.Linear(4, 4)(x)


def test_the_error_for_a_value_of_a_state_dict_names_its_key():
    layer = tc.nn.Linear(2, 2)
    before = layer.weight.tolist(), layer.bias.tolist()
    for value in (None, "text", 1j):
        with pytest.raises(TypeError, match="the value of 'bias' in the state dict cannot be loaded: data "):
            layer.load_state_dict({"weight": np.zeros((2, 2)), "bias": value})
    assert (layer.weight.tolist(), layer.bias.tolist()) == before


@pytest.mark.parametrize("module", [tc, tc.nn, tc.nn.init, tc.functional, tc.optim, tc.data, tc.datasets, tc.plot, tc.convert, tc.cuda])
def test_completion_shows_what_belongs_to_a_module(module):
    names = [name for name in dir(module) if not name.startswith("_")]
    assert names and not {"np", "Any", "annotations", "math", "importlib", "TYPE_CHECKING", "Callable", "as_generator", "hooks"} & set(
        names
    )
    listed = [name for name in getattr(module, "__all__", names) if not name.startswith("_")]
    more = ["sklearn"] if module is tc else []  # which needs an extra, so that a star import leaves it out
    assert sorted([*listed, *more]) == names, "not the submodules that a package is made of"
    assert all(hasattr(module, name) for name in names)


def test_the_picture_of_a_module_unfolds():
    page = tc.nn.Sequential(tc.EncoderBlock(8, 2, 16), tc.nn.Tanh())._repr_html_()
    assert page.count("<details open>") == 1 and page.count("<details") == page.count("</details>") > 5
    assert "(0) <b>EncoderBlock</b>: 600 parameters" in page and "(1) <b>Tanh</b>()" in page
    assert page.index("(qkv_proj)") < page.index("<code>weight</code>")


def test_no_hint_is_of_a_name_that_is_there():
    assert [name for name in _hints._TENSOR if hasattr(tc.Tensor, name)] == []
    assert [name for name in _hints._PACKAGE if hasattr(tc, name)] == []
    assert [name for name in _tensor_numpy._OURS if hasattr(tc.Tensor, name)] == []
    assert [name for name in _tensor_numpy._OTHERS if not hasattr(tc, name)] == []


LAYERS = {
    "MultiheadAttention": tc.MultiheadAttention(4, 4, 1),
    "EncoderBlock": tc.EncoderBlock(4, 1, 8),
    "TransformerEncoder": tc.TransformerEncoder(num_layers=1, input_dim=4, num_heads=1, dim_feedforward=8),
    "PositionalEncoding": tc.PositionalEncoding(4),
    "Linear": _LINEAR,
    "LayerNorm": tc.nn.LayerNorm(4),
    "Flatten": tc.nn.Flatten(),
    "GlobalAveragePool1D": tc.nn.GlobalAveragePool1D(),
    "TransformerEncoderLayer": tc.nn.TransformerEncoderLayer(4, 1, 8, dropout=0.0, batch_first=True),
}


@pytest.mark.parametrize("name", LAYERS)
def test_layers_take_lists_and_say_what_else_they_got(name):
    layer, x = LAYERS[name].eval(), np.random.default_rng(0).standard_normal((2, 3, 4)).astype(np.float32)
    np.testing.assert_allclose(layer(x.tolist()), layer(x), rtol=1e-6)
    for wrong in (None, "text", {}, object()):
        with pytest.raises(TypeError, match=f"takes a Tensor or an array of numbers, not {type(wrong).__name__}"):
            layer(wrong)


@pytest.mark.parametrize("thing", [tc.ones(2), tc, tc.nn, _LINEAR], ids=["Tensor", "tc", "tc.nn", "Linear"])
def test_advice_is_looked_for_only_where_the_error_is_read(thing, monkeypatch):
    """hasattr() asks often."""
    asked = []
    monkeypatch.setattr(_names, "nearest", lambda name, names: asked.append(name) or "other")
    assert not hasattr(thing, "strange_name") and asked == []
    with pytest.raises(AttributeError, match="'strange_name'.*other") as error:
        _ = thing.strange_name
    assert asked and traceback.format_exception_only(error.value)[0].startswith("AttributeError: ")
    assert str(pickle.loads(pickle.dumps(error.value))) == str(error.value)


def test_axis_is_taken_where_the_pages_say_so():
    names = [
        "all",
        "any",
        "amax",
        "amin",
        "argmax",
        "argmin",
        "count_nonzero",
        "logsumexp",
        "max",
        "mean",
        "min",
        "norm",
        "prod",
        "std",
        "sum",
        "var",
    ]
    names += ["softmax", "log_softmax", "sort", "argsort", "topk", "gather", "cat", "stack"]
    assert [name for name in names if "axis" not in inspect.signature(getattr(tc, name, None) or getattr(tc.Tensor, name)).parameters] == []


IMPORTS = {
    "import transformer_c.fft as fft": "no attribute 'fft'; use NumPy: np.fft",
    "from transformer_c.autograd import Variable": "a Variable is a Tensor",
    "from transformer_c import nn, median": r"no attribute 'median'; use NumPy: np\.median",
    "from transformer_c.nn.attention.flex_attention import flex_attention": "use .*scaled_dot_product_attention with bias=",
    "from transformer_c.nn import LSTM": "no attribute 'LSTM'; use .*there are no recurrent layers",
    "from transformer_c.nn.modules import LSTM": "there are no recurrent layers",
    "from transformer_c.nn import ModuleLst": "did you mean 'ModuleList'",
    "from transformer_c.nn.parallel import DistributedDataParallel": "no attribute 'parallel'; use Trainer",
    "from transformer_c.utils.tensorboard import SummaryWriter": r"use tc\.loggers\.TensorBoardLogger",
    "from transformer_c import nothing_like_it": "cannot import name 'nothing_like_it' from 'transformer_c'",
    "import transformer_c.nothing_like_it": "No module named 'transformer_c.nothing_like_it'",
}


@pytest.mark.parametrize("statement", IMPORTS)
def test_imports_of_what_there_is_not_say_what_to_use(statement):
    with pytest.raises(ImportError, match=IMPORTS[statement]):
        exec(statement)


def test_a_question_for_a_module_is_answered():
    assert importlib.util.find_spec("transformer_c.fft") is None and importlib.util.find_spec("transformer_c.nn.LSTM") is None


def test_what_replaces_functions_that_there_are_not():
    x = tc.tensor([1.0, 1.0, 3.0, 1.0])
    assert x[tc.cat([tc.ones(1).bool(), x[1:] != x[:-1]])].tolist() == [1.0, 3.0, 1.0]
    assert tc.ones(2, 3).tril().nonzero().T.tolist() == [[0, 1, 1], [0, 0, 1]]
    assert (x.unsqueeze(-1) * tc.eye(4)).diag().tolist() == x.tolist()


LONG = [0] * 100_000


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda value: tc.optim.Adam(_LINEAR.parameters(), betas=value), TypeError, r"betas must be two numbers.* got \[0, 0, "),
        (lambda value: tc.optim.SGD(_LINEAR.parameters(), lr=value), TypeError, r"lr must be a number, got \[0, 0, "),
        (lambda value: tc.optim.Muon([_LINEAR.weight], ns_coefficients=value), TypeError, r"three numbers.* got \[0, 0, "),
        (lambda value: tc.nn.Linear(value, 2), TypeError, "must be an int"),
        (lambda value: tc.functional.interpolate(tc.ones(1, 1, 2, 2), scale_factor=value), ValueError, r"got \[0, 0, "),
        (lambda value: tc.Trainer(value), TypeError, r"must be an int, got \[0, 0, "),
        (lambda value: tc.models.create({"model_type": "nomic_bert", "n_head": 2, "num_attention_heads": value}), ValueError, "n_head"),
    ],
)
def test_messages_are_short_whatever_is_given(call, error, message):
    with pytest.raises(error, match=message) as info:
        call(LONG)
    assert len(str(info.value)) < 500


@pytest.mark.parametrize("number", [10**400, -(10**5000)], ids=["large", "largest"])
def test_integers_that_no_float_can_be(number):
    """Those with more than 4300 digits cannot even be shown."""
    with pytest.raises(ValueError, match=r"^lr must be a number that a float can be, got an int of \d+ bits$"):
        tc.optim.SGD(_LINEAR.parameters(), lr=number)
    with pytest.raises(ValueError, match=r"is an int of \d+ bits; expected an int of at most 64 bits$"):
        tc.Trainer(number)
    x = tc.ones(2, 2)
    for call in (
        lambda: tc.zeros(number),
        lambda: x.reshape(number, -1),
        lambda: x.sum(number),
        lambda: x.softmax(number),
        lambda: x.to(number),
        lambda: x.repeat_interleave(number),
        lambda: tc.device("cpu", number),
        lambda: tc.manual_seed(number),
        lambda: tc.set_num_threads(number),
        lambda: tc.nn.MultiheadAttention(4, number),
        lambda: tc.functional.embedding(np.array([0]), x, padding_idx=number),
    ):
        with pytest.raises((ValueError, TypeError, IndexError), match=r"an int of \d+ bits") as info:
            call()
        assert len(str(info.value)) < 200
