"""NomicBERT: folders with the names that its values had before it was in transformers, what it refuses, and arrays by both of their names."""

import numpy as np
import pytest
import transformer_c as tc

SMALL = {"model_type": "nomic_bert", "vocab_size": 40, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2,
         "intermediate_size": 24, "max_position_embeddings": 64, "layer_norm_eps": 1e-6, "initializer_range": 0.3}  # fmt: skip
OLDER = {  # as in the folders of Nomic Embed
    "model_type": "nomic_bert", "vocab_size": 40, "n_embd": 16, "n_layer": 2, "n_head": 2, "n_inner": 24, "n_positions": 64,
    "layer_norm_epsilon": 1e-6, "activation_function": "swiglu", "resid_pdrop": 0.0, "attn_pdrop": 0.0, "embd_pdrop": 0.0, "prenorm": False,
    "qkv_proj_bias": False, "mlp_fc1_bias": False, "mlp_fc2_bias": False, "parallel_block": False, "use_rms_norm": False, "causal": False,
    "rotary_emb_base": 1000, "rotary_emb_fraction": 1.0, "rotary_emb_interleaved": False, "rotary_emb_scale_base": None,
    "rotary_scaling_factor": None, "scale_attn_weights": True, "scale_attn_by_inverse_layer_idx": False, "initializer_range": 0.3,
}  # fmt: skip
IDS = np.random.default_rng(0).integers(4, 40, (2, 12))


def create(**values):
    tc.manual_seed(1)
    return tc.models.create({**SMALL, **values})


def test_older_names_of_values(tmp_path):
    """In a folder, in a new model, and after both are saved."""
    model = create()
    expected, state = model(IDS), tc.convert.to_hf(model)
    assert np.array_equal(tc.convert.from_hf(state, OLDER)(IDS), expected)
    tc.manual_seed(1)
    older = tc.models.create(OLDER)
    tc.models.save(older, tmp_path)
    assert np.array_equal(older(IDS), expected) and np.array_equal(tc.models.load(tmp_path)(IDS), expected)
    assert older.longest == 64 and older.layers[0].norm1.eps == 1e-6
    for base in ({"rotary_emb_base": 7}, {"rope_theta": 7.0}, {"rope_parameters": {"rope_type": "default", "rope_theta": 7.0}}):
        assert tc.convert.from_hf(state, {**SMALL, **base}).layers[1].rotation.base == 7.0
    assert not np.array_equal(tc.convert.from_hf(state, {**OLDER, "rotary_emb_base": 7})(IDS), expected)


def test_arrays_by_the_names_that_transformers_has_in_memory():
    """Queries, keys and values are three there, of which one array is made; of an array that is missing the error names all."""
    model = create()
    state = {}
    for name, value in tc.convert.to_hf(model).items():
        name = name.replace("encoder.layers", "layers").replace("emb_ln", "embeddings.LayerNorm").replace("fc11", "up_proj")
        name = name.replace("fc12", "gate_proj").replace("fc2", "down_proj").replace("attn.out_proj", "self_attn.o_proj")
        name = name.replace("norm1", "post_attention_layernorm").replace("norm2", "post_mlp_layernorm")
        parts = ["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"] if "Wqkv" in name else [""]
        for i, part in enumerate(parts):
            state[name.replace("attn.Wqkv", part)] = value[16 * i : 16 * (i + 1)] if len(parts) > 1 else value
    assert len(state) == len(tc.convert.to_hf(model)) + 4
    assert np.array_equal(tc.convert.from_hf(state, SMALL)(IDS), model(IDS))
    del state["layers.1.self_attn.k_proj.weight"]
    with pytest.raises(tc.CheckpointError, match=r"the weights lack 'encoder.layers.1.attn.k_proj.weight'$"):
        tc.convert.from_hf(state, SMALL)
    for part in "qv":
        del state[f"layers.1.self_attn.{part}_proj.weight"]
    with pytest.raises(tc.CheckpointError, match=r"the weights lack 'encoder.layers.1.attn.Wqkv.weight'$"):
        tc.convert.from_hf(state, SMALL)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"n_embd": 32}, "n_embd = 32; expected 16"),
        ({"layer_norm_epsilon": 1e-5}, "layer_norm_epsilon = 1e-05; expected 1e-06"),
        ({"activation_function": "geglu"}, "activation_function = 'geglu'; expected 'swiglu'"),
        ({"prenorm": True}, "prenorm = True"),
        ({"qkv_proj_bias": True}, "qkv_proj_bias = True"),
        ({"rotary_emb_fraction": 0.5}, "rotary_emb_fraction = 0.5"),
        ({"rotary_scaling_factor": 2}, "rotary_scaling_factor = 2"),
        ({"rope_parameters": {"rope_type": "ntk", "factor": 2.0}}, "rope_parameters = .*; expected rope_type 'default', 'linear'"),
        ({"head_dim": 4}, "head_dim = 4; expected None or 8"),
        ({"num_attention_heads": 16}, "hidden_size / num_attention_heads = 1; rotary positions need an even number"),
    ],
)
def test_what_is_not_computed_is_refused(values, message):
    with pytest.raises(tc.CheckpointError, match=message):
        create(**values)


def test_a_new_encoder_has_no_pooler():
    """As in transformers, where the head for classes of texts alone has one."""
    assert create().pooler is None
    names = tc.convert.to_hf(tc.models.create(SMALL, task="text-classification"))
    assert {name for name in names if "encoder" not in name and "emb" not in name} == {
        "nomic_bert.pooler.dense.weight", "nomic_bert.pooler.dense.bias", "classifier.weight", "classifier.bias",
    }  # fmt: skip
