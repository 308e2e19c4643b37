"""The architectures. Each is a class over tc.nn and a table, in a file of its own; docs/models.md says how one is added."""

from __future__ import annotations

from typing import Any

from .albert import Albert
from .bart import Bart
from .bert import Bert, Ernie
from .clip import CLIP, CLIPText, CLIPVision
from .deberta import Deberta
from .deberta_v2 import DebertaV2
from .dinov2 import Dinov2, Dinov2Gated, Dinov2WithRegisters, Dinov2WithRegistersGated
from .distilbert import DistilBert
from .electra import Electra
from .encoder_decoder import EncoderDecoder
from .gemma import Gemma, Gemma2, Gemma3
from .gpt2 import GPT2
from .gpt_neox import GPTNeoX
from .llama import Llama, Mistral, Qwen2, Qwen3
from .m2m_100 import M2M100
from .marian import Marian
from .mbart import MBart
from .modernbert import ModernBert
from .mpnet import MPNet
from .nomic_bert import NomicBert
from .olmo2 import Olmo2
from .phi3 import Phi3
from .roberta import Camembert, Data2VecText, Roberta, XLMRoberta, XLMRobertaXL
from .siglip import SigLIP, SigLIPText, SigLIPVision
from .t5 import T5, T5EncoderAlone
from .vit import ViT
from .whisper import Whisper

_KINDS: tuple[Any, ...] = (
    *(Albert, Bert, Camembert, Data2VecText, DebertaV2, DistilBert, Electra, Ernie, ModernBert, MPNet, NomicBert, Roberta, XLMRoberta),
    *(Deberta, XLMRobertaXL),
    *(Dinov2, Dinov2WithRegisters, ViT),  # of images
    *(CLIP, CLIPText, CLIPVision, SigLIP, SigLIPText, SigLIPVision),  # of images and texts
    *(Gemma, Gemma2, Gemma3, GPT2, GPTNeoX, Llama, Mistral, Olmo2, Phi3, Qwen2, Qwen3),  # decoders
    *(Bart, M2M100, Marian, MBart, T5, Whisper),  # encoder-decoders
)
# By model_type of config.json.
ARCHITECTURES: dict[str, Any] = {kind.table.model_type: kind for kind in sorted(_KINDS, key=lambda kind: kind.table.model_type)}

ALONE: dict[str, Any] = {"T5EncoderModel": T5EncoderAlone}  # encoders of encoder-decoders, by architectures of config.json
GATED: dict[str, Any] = {kind.table.model_type: kind for kind in (Dinov2Gated, Dinov2WithRegistersGated)}  # where it has use_swiglu_ffn


def kind_in(config: dict[str, Any]) -> Any:
    """The class of a config.json whose model_type there is."""
    said = config.get("architectures")
    if config["model_type"] in GATED and config.get("use_swiglu_ffn") is True:
        return GATED[config["model_type"]]
    alone = ALONE.get(said[0]) if isinstance(said, (list, tuple)) and len(said) == 1 and isinstance(said[0], str) else None
    return alone if alone is not None and alone.table.model_type == config["model_type"] else ARCHITECTURES[config["model_type"]]


def writes_another(config: dict[str, Any]) -> bool:
    """Whether the model of a config.json is an encoder-decoder, which writes a text of another."""
    kind = config.get("model_type")
    return isinstance(kind, str) and issubclass(ARCHITECTURES.get(kind, object), EncoderDecoder)
