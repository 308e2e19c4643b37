"""Writes clip.npz and siglip.npz with transformers 5 on PyTorch 2.13: small models of images and texts with random weights, and what they compute in float64.

python tests/golden/make_clip.py [FOLDER]

For each case ``config`` (in the options), ``state.NAME`` the arrays, ``ids``, ``mask`` and ``pixels``; ``states.text`` and ``states.image``,
``vectors.text`` and ``vectors.image``, and ``scores``, its ``logits_per_image``; of SigLIP also ``unmasked.text``, ``vectors.text`` without the mask.
"""

import torch
import transformers as T
import writing

SIDE = {"num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 20, "layer_norm_eps": 1e-4}
TEXT = {**SIDE, "hidden_size": 12, "vocab_size": 40, "max_position_embeddings": 14, "bos_token_id": 3, "pad_token_id": 1}
VISION = {**SIDE, "hidden_size": 16, "image_size": 8, "patch_size": 4}
BOTH = {"projection_dim": 10, "logit_scale_init_value": 1.5}
SMALL = {**TEXT, "vocab_size": 40, "eos_token_id": 37, "projection_size": 16}
CASES = {
    "clip": (T.CLIPModel, T.CLIPConfig(**BOTH, text_config={**TEXT, "eos_token_id": 37}, vision_config=VISION)),
    "older": (  # whose text ends at the largest number
        T.CLIPModel,
        T.CLIPConfig(**BOTH, text_config={**TEXT, "eos_token_id": 2, "hidden_act": "gelu"}, vision_config={**VISION, "hidden_act": "gelu"}),
    ),
    "siglip": (T.SiglipModel, T.SiglipConfig(text_config=SMALL, vision_config=VISION)),
    "quick": (  # with other activations, and patches that leave pixels over
        T.SiglipModel,
        T.SiglipConfig(
            text_config={**SMALL, "hidden_size": 16, "projection_size": None, "hidden_act": "quick_gelu", "pad_token_id": 0},
            vision_config={**VISION, "image_size": 10, "num_channels": 3, "hidden_act": "gelu"},
        ),
    ),
}
FILES = {"clip": ("clip", "older"), "siglip": ("siglip", "quick")}


def run(name):
    kind, config = CASES[name]
    torch.manual_seed(42)
    model = kind(config).double().eval()
    for key, parameter in model.named_parameters():
        if parameter.ndim:
            spread, middle = (0.1, 1.0) if parameter.ndim == 1 and "norm" in key and key.endswith("weight") else (0.3, 0.0)
            parameter.data = (middle + spread * torch.randn_like(parameter)).float().double()
    model.logit_scale.data = torch.full_like(model.logit_scale, 1.375)
    if hasattr(model, "logit_bias"):
        model.logit_bias.data = torch.full_like(model.logit_bias, -2.25)
    ids = torch.randint(4, 37, (3, 11))
    mask = torch.ones_like(ids)
    for row, length in enumerate((11, 6, 2)):
        ids[row, 0], ids[row, length - 1], ids[row, length:], mask[row, length:] = 3, 37, 1, 0
    size = config.vision_config.image_size
    pixels = torch.randn(2, 3, size, size).float()
    output = model(input_ids=ids, attention_mask=mask, pixel_values=pixels.double())
    arrays = {
        **{f"state.{key}": value.float() for key, value in model.state_dict().items()},
        **{"ids": ids, "mask": mask, "pixels": pixels, "scores": output.logits_per_image},
        **{"states.text": output.text_model_output.last_hidden_state, "states.image": output.vision_model_output.last_hidden_state},
        "vectors.text": model.get_text_features(input_ids=ids, attention_mask=mask).pooler_output,
        "vectors.image": model.get_image_features(pixel_values=pixels.double()).pooler_output,
    }
    if name in FILES["siglip"]:
        arrays["unmasked.text"] = model.get_text_features(input_ids=ids).pooler_output
    return {"config": {key: value for key, value in config.to_dict().items() if value is not None}}, {
        k: v.numpy() for k, v in arrays.items()
    }


def main(folder):
    torch.set_num_threads(1)
    with torch.no_grad():
        for file, names in FILES.items():
            writing.write(folder / f"{file}.npz", {name: run(name) for name in names})


if __name__ == "__main__":
    main(writing.folder())
