"""Writes images.npz with transformers 5 on PyTorch 2.13 and Pillow: what its image processors without torchvision make of images.

python tests/golden/make_images.py [FOLDER]

``processors``: ``image.I`` some images, and for each of ``calls`` in the options, (image, processor, values), ``pixels.J``.
"""

import numpy as np
import transformers as T
import writing

CALLS = [  # (image, processor, what preprocessor_config.json says)
    (0, "ViTImageProcessor", {"size": 8}),
    (
        1,
        "ViTImageProcessor",
        {"size": {"height": 9, "width": 6}, "resample": 3, "image_mean": [0.1, 0.2, 0.3], "image_std": [0.4, 0.5, 0.6]},
    ),
    (2, "ViTImageProcessor", {"size": [5, 7], "resample": 0, "rescale_factor": 1 / 127.5}),
    (1, "ViTImageProcessor", {"do_resize": False, "do_rescale": False, "do_center_crop": True, "crop_size": 14}),
    (0, "ViTImageProcessor", {"size": {"shortest_edge": 9, "longest_edge": 11}, "do_normalize": False}),
    (1, "ViTImageProcessor", {"size": {"shortest_edge": 9, "longest_edge": 40}, "do_normalize": False, "do_rescale": False, "resample": 1}),
    (0, "CLIPImageProcessor", {"size": 8, "crop_size": 8}),
    (1, "CLIPImageProcessor", {"size": {"shortest_edge": 7}, "crop_size": {"height": 8, "width": 6}}),
    (2, "CLIPImageProcessor", {"size": {"shortest_edge": 20}, "crop_size": {"height": 9, "width": 21}, "resample": 5}),
    (1, "BitImageProcessor", {"size": {"shortest_edge": 10}, "crop_size": 8, "image_mean": 0.5, "image_std": 0.25}),
    (2, "SiglipImageProcessor", {"size": {"height": 8, "width": 8}}),
    (0, "SiglipImageProcessor", {"size": 6, "resample": 4}),
]


def images():
    """Smooth ones with noise; the last is a strip."""
    rng = np.random.default_rng(0)
    for height, width in ((17, 12), (13, 19), (6, 23)):
        waves = np.sin(np.arange(height)[:, None, None] / 3 + np.arange(width)[None, :, None] / 4 + np.arange(3))
        yield np.clip(127 + 90 * waves + rng.integers(-30, 30, (height, width, 3)), 0, 255).astype(np.uint8)


def main(folder):
    made = list(images())
    arrays = {f"image.{i}": image for i, image in enumerate(made)}
    for i, (number, kind, values) in enumerate(CALLS):
        processor = getattr(T, f"{kind}Pil")(**values)
        arrays[f"pixels.{i}"] = processor(made[number], return_tensors="np")["pixel_values"][0].astype("f4")
    writing.write(folder / "images.npz", {"processors": ({"calls": CALLS}, arrays)})


if __name__ == "__main__":
    main(writing.folder())
