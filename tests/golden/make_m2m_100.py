"""Writes m2m_100.npz with transformers 5 on PyTorch 2.13: the case of M2M100, of the form of encoder_decoders.npz, whose script makes it.

python tests/golden/make_m2m_100.py [FOLDER]

The positions are rounded as here, from float64: transformers' own, of float32, differ by up to 2e-5 with the processor.
"""

import make_encoder_decoders as others
import numpy as np
import torch
import transformers as T
import writing
from transformers.models.m2m_100 import modeling_m2m_100 as module


def rounded(count, width, padding=None):
    half = width // 2
    frequencies = torch.exp((torch.arange(half).float() * -(np.log(10000) / (half - 1))).double()).float()
    angles = (torch.arange(count).float()[:, None] * frequencies).double()
    found = torch.cat([torch.sin(angles), torch.cos(angles), torch.zeros(count, width % 2).double()], 1).float()
    found[padding] = 0
    return found


def main(folder):
    torch.set_num_threads(1)
    module.M2M100SinusoidalPositionalEmbedding.get_embedding = staticmethod(rounded)
    others.CASES["m2m_100"] = (T.M2M100Config(**others.BART, activation_function="relu"), T.M2M100ForConditionalGeneration)
    with torch.no_grad():
        writing.write(folder / "m2m_100.npz", {"m2m_100": others.run("m2m_100")})


if __name__ == "__main__":
    main(writing.folder())
