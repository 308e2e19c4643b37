"""`rng` and `generator`, two names of the source of random numbers."""

import pytest
import transformer_c as tc


@pytest.mark.parametrize(
    "draw",
    [
        lambda **both: tc.randn(2, **both),
        lambda **both: tc.rand(2, **both),
        lambda **both: tc.bernoulli([0.5], **both),
        lambda **both: tc.randint(3, (2,), **both),
        lambda **both: tc.randperm(3, **both),
        lambda **both: tc.multinomial([0.5, 0.5], 1, **both),
        lambda **both: tc.data.random_split([1, 2], [1, 1], **both),
        lambda **both: tc.data.RandomSampler([1, 2], **both),
        lambda **both: tc.data.SubsetRandomSampler([0], **both),
        lambda **both: tc.data.WeightedRandomSampler([1.0], 1, **both),
        lambda **both: tc.data.DataLoader([1.0, 2.0], shuffle=True, **both),
    ],
)
def test_two_names_of_one_source_are_refused_together(draw):
    draw(rng=1)
    draw(generator=tc.Generator(1))
    with pytest.raises(TypeError, match="rng and generator are two names of one argument: pass one of them"):
        draw(rng=1, generator=tc.Generator(2))
