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


@pytest.mark.parametrize(
    ("call", "kind", "message"),
    [
        (lambda: pad_sequence([]), ValueError, "at least one sequence"),
        (lambda: pad_sequence([1, 2]), ValueError, "sequences of at least one axis"),
        (lambda: pad_sequence([tc.ones(2, 3), tc.ones(4, 2)]), ValueError, "needs equal shapes"),
        (lambda: pad_sequence([tc.ones(2)], padding_side="end"), ValueError, "padding_side must be 'left' or 'right', got 'end'"),
        (lambda: parameters_to_vector(tc.nn.Linear(2, 2)), TypeError, r"pass module\.parameters\(\)"),
        (lambda: parameters_to_vector(tc.ones(2)), TypeError, r"or \[parameter\]"),
        (lambda: tc.nn.utils.rnn.pack_padded_sequence, AttributeError, "use lengths="),
        (lambda: tc.nn.utils.weight_norm, AttributeError, "use no wrapper"),
    ],
)
def test_refused(call, kind, message):
    with pytest.raises(kind, match=message):
        call()
