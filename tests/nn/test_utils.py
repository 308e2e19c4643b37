"""tc.nn.utils: parameters as one vector, sequences of different lengths as one batch."""

import numpy as np
import pytest
import transformer_c as tc
from transformer_c.nn.utils import parameters_to_vector, vector_to_parameters
from transformer_c.nn.utils.rnn import pad_sequence

SEQUENCES = {
    "ids": [np.array([1, 2, 3]), np.array([4])],
    "vectors": [np.ones((2, 3), np.float32), 2 * np.ones((4, 3), np.float32), np.ones((0, 3), np.float32)],
    "masks": [np.array([True]), np.array([False, True])],
}


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("kind", SEQUENCES)
def test_padded_sequences_are_pytorchs(kind, batch_first, side):
    torch = pytest.importorskip("torch")
    options = {"batch_first": batch_first, "padding_value": 7, "padding_side": side}
    expected = torch.nn.utils.rnn.pad_sequence([torch.tensor(x) for x in SEQUENCES[kind]], **options).numpy()
    for made in (pad_sequence([tc.tensor(x) for x in SEQUENCES[kind]], **options).numpy(), pad_sequence(SEQUENCES[kind], **options)):
        assert made.dtype == expected.dtype
        np.testing.assert_array_equal(made, expected)


def test_gradients_of_padded_sequences_are_those_of_their_own_elements():
    x, y = tc.tensor([[1.0, 2.0]], requires_grad=True), tc.ones(3, 2)
    pad_sequence([x, y], padding_value=5.0).square().sum().backward()
    assert x.grad.tolist() == [[2.0, 4.0]]


def test_a_vector_of_parameters_goes_back_into_them():
    layer = tc.nn.Linear(3, 2)
    vector = parameters_to_vector(layer.parameters())
    assert vector.tolist() == [*layer.weight.reshape(-1).tolist(), *layer.bias.tolist()]
    vector.square().sum().backward()
    np.testing.assert_allclose(layer.weight.grad.numpy(), 2 * layer.weight.detach().numpy())
    weight = layer.weight
    vector_to_parameters(np.arange(8.0), layer.parameters())
    assert layer.weight is weight and weight.requires_grad and weight.dtype == np.float32
    assert weight.tolist() == [[0, 1, 2], [3, 4, 5]] and layer.bias.tolist() == [6, 7]


@pytest.mark.parametrize("size", [7, 9])
def test_a_vector_of_another_size_changes_nothing(size):
    layer = tc.nn.Linear(3, 2)
    before = layer.weight.tolist()
    with pytest.raises(ValueError, match=rf"vec has shape \({size},\); expected \(8,\)"):
        vector_to_parameters(tc.ones(size), layer.parameters())
    assert layer.weight.tolist() == before


@pytest.mark.parametrize("norm_type", [1.0, 2.0, float("inf")])
@pytest.mark.parametrize("dtypes", [("float32",), ("float64",), ("float64", "float32")])
def test_norms_of_gradients_are_pytorchs(dtypes, norm_type, rng):
    torch = pytest.importorskip("torch")
    gradients = [rng.standard_normal((3, 4)).astype(dtype) for dtype in (*dtypes, *dtypes)]
    found = []
    for library in (tc, torch):
        parameters = [library.nn.Parameter(library.tensor(g) * 0) for g in gradients]
        for p, g in zip(parameters, gradients, strict=True):
            p.grad = library.tensor(g)
        parameters.append(library.nn.Parameter(library.zeros(2)))  # without one
        total = library.nn.utils.get_total_norm([p.grad for p in parameters[:-1]], norm_type)
        library.nn.utils.clip_grads_with_norm_(parameters, 0.5, total)
        found.append((total, [p.grad.numpy() for p in parameters[:-1]]))
    (ours, clipped), (theirs, expected) = found
    assert ours.shape == () and str(ours.dtype) == str(theirs.dtype).removeprefix("torch.") and not ours.requires_grad
    for a, b in zip([ours.numpy(), *clipped], [theirs.numpy(), *expected], strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12 if dtypes == ("float64",) else 1e-6)


def test_norms_of_no_gradients_and_of_nan():
    p = tc.nn.Parameter([1.0])
    assert tc.nn.utils.get_total_norm([]).item() == 0.0 == tc.nn.utils.get_total_norm(x for x in ()).item()
    tc.nn.utils.clip_grads_with_norm_([p], 1.0, 2.0)
    assert p.grad is None and tc.nn.utils.get_total_norm(tc.tensor([3, 4]).half()).dtype == "float32"
    p.grad = tc.tensor([1.0])
    tc.nn.utils.clip_grads_with_norm_(p, 1.0, tc.tensor(float("nan")))
    assert np.isnan(p.grad.item())
    with pytest.raises(RuntimeError, match="the norm of the gradients is nan"):
        tc.nn.utils.get_total_norm([p.grad], error_if_nonfinite=True)


@pytest.mark.parametrize(
    ("call", "kind", "message"),
    [
        (lambda: pad_sequence([]), ValueError, "at least one sequence"),
        (lambda: pad_sequence([1, 2]), ValueError, "sequences of at least one axis"),
        (lambda: pad_sequence([tc.ones(2, 3), tc.ones(4, 2)]), ValueError, "needs equal shapes"),
        (lambda: pad_sequence([tc.ones(2)], padding_side="end"), ValueError, "padding_side must be 'left' or 'right', got 'end'"),
        (lambda: parameters_to_vector(tc.nn.Linear(2, 2)), TypeError, r"pass module\.parameters\(\)"),
        (lambda: parameters_to_vector(tc.ones(2)), TypeError, r"or \[parameter\]"),
        (lambda: tc.nn.utils.get_total_norm(3), TypeError, r"tensors must be an iterable of Tensors, or one, got 3 \(int\)"),
        (lambda: tc.nn.utils.get_total_norm([1.0]), TypeError, r"tensors must be Tensors, got 1\.0"),
        (lambda: tc.nn.utils.get_total_norm(tc.ones(2), 0), ValueError, "norm_type must be above 0"),
        (lambda: tc.nn.utils.get_total_norm(tc.arange(2)), TypeError, "int64"),
        (lambda: tc.nn.utils.clip_grads_with_norm_(tc.nn.Linear(2, 2), 1.0, 1.0), TypeError, r"pass its \.parameters\(\)"),
        (lambda: tc.nn.utils.clip_grads_with_norm_([], -1.0, 1.0), ValueError, "max_norm must not be negative"),
        (lambda: tc.nn.utils.rnn.pack_padded_sequence, AttributeError, "use lengths="),
        (lambda: tc.nn.utils.weight_norm, AttributeError, r"use tc\.nn\.utils\.parametrizations\.weight_norm"),
    ],
)
def test_refused(call, kind, message):
    with pytest.raises(kind, match=message):
        call()
