"""Pretrained encoders and decoders from folders of transformers' and sentence-transformers'.

loading                                     load, save, create
sentence, pooling, contrastive              SentenceEncoder; one vector of those of a text's tokens; its training
modules                                     Dense, and the other parts of sentence-transformers' folders
cross_encoder                               CrossEncoder
text_classifier, token_classifier           TextClassifier; TokenClassifier
image_classifier, images                    ImageClassifier; images to pixels
image_text_encoder                          ImageTextEncoder
text_generator, generating, sampling        TextGenerator; its loop over tokens; the choice of each
text2text_generator, text2text_generation   Text2TextGenerator; the scores of words of the text that is written
next_words                                  the training of both
speech_recognizer, speech_recognition       SpeechRecognizer; the scores and rules of the words that are written of speech
speech_words                                when each word is said
speech_attempts                             windows that are written again at another temperature
log_mel                                     its features
beams, chats                                the search of several texts at once; chats to texts, by templates
classifier, whole_classifier                what they share; those that answer once for each text or image
pretrained, fitting                         where a fine-tuning begins, and its loop
problems, answers                           classes, several labels, or numbers; reading what a training is given
texts, tokenizing, vocabularies, pieces,
language_pieces, siglip_pieces, filling,
languages                                   texts to batches of numbers
architectures                               the list of the architectures, each a file: a few lines over tc.nn and a table
albert, bert, deberta, deberta_v2, distilbert,
electra, modernbert, mpnet, nomic_bert, roberta these files
image_encoder, vit, dinov2                  what encoders of images share; those of them
image_text, clip, siglip                    the same of images and texts
gemma, gpt2, gpt_neox, llama, olmo2, phi3   those of decoders
layers, rotation, heads                     what they share, rotary positions; what is put on them for a task
t5, bart, m2m_100, marian, mbart, whisper   those of encoder-decoders
encoder_decoder                             what these share
decoder, cache                              what decoders share; the keys and values that they keep
config, folder, table, names                reading config.json, the folder's files, the arrays by their names
"""

from typing import TYPE_CHECKING

from .._names import hooks
from .loading import create, load, save

if TYPE_CHECKING:
    from .cache import Cache
    from .cross_encoder import CrossEncoder
    from .image_classifier import ImageClassifier
    from .image_text_encoder import ImageTextEncoder
    from .modules import Dense
    from .sentence import SentenceEncoder
    from .speech_recognizer import SpeechRecognizer
    from .text2text_generator import Text2TextGenerator
    from .text_classifier import TextClassifier
    from .text_generator import TextGenerator
    from .token_classifier import TokenClassifier

__all__ = [
    "Cache",
    "CrossEncoder",
    "Dense",
    "ImageClassifier",
    "ImageTextEncoder",
    "SentenceEncoder",
    "SpeechRecognizer",
    "Text2TextGenerator",
    "TextClassifier",
    "TextGenerator",
    "TokenClassifier",
    "create",
    "load",
    "save",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = hooks(
        __name__,
        {
            "Cache": "cache",
            "CrossEncoder": "cross_encoder",
            "Dense": "modules",
            "ImageClassifier": "image_classifier",
            "ImageTextEncoder": "image_text_encoder",
            "SentenceEncoder": "sentence",
            "SpeechRecognizer": "speech_recognizer",
            "Text2TextGenerator": "text2text_generator",
            "TextClassifier": "text_classifier",
            "TextGenerator": "text_generator",
            "TokenClassifier": "token_classifier",
        },
        {
            "SentenceTransformer": "tc.models.SentenceEncoder.from_pretrained(folder)",
            "AutoModel": "tc.models.load(folder)",
            "AutoConfig": "model.config of tc.models.load(folder)",
            "AutoTokenizer": "the package tokenizers, or SentenceEncoder and TextClassifier, which read texts",
            "AutoModelForSequenceClassification": 'tc.models.load(folder, task="text-classification"), or TextClassifier(folder)',
            "AutoModelForTokenClassification": 'tc.models.load(folder, task="token-classification"), or TokenClassifier(folder)',
            "AutoModelForQuestionAnswering": 'tc.models.load(folder, task="question-answering")',
            "AutoModelForMaskedLM": 'tc.models.load(folder, task="fill-mask")',
            "AutoModelForImageClassification": 'tc.models.load(folder, task="image-classification"), or ImageClassifier(folder)',
            "AutoModelForCausalLM": 'tc.models.load(folder, task="text-generation"), or TextGenerator.from_pretrained(folder)',
            "AutoModelForSeq2SeqLM": 'tc.models.load(folder, task="text2text-generation"), or Text2TextGenerator.from_pretrained(folder)',
            "AutoModelForSpeechSeq2Seq": 'tc.models.load(folder, task="automatic-speech-recognition"), or SpeechRecognizer.from_pretrained(folder)',
            **dict.fromkeys(
                ("AutoProcessor", "WhisperProcessor"),
                "tc.models.SpeechRecognizer.from_pretrained(folder), whose features(samples) are log-mel",
            ),
            **dict.fromkeys(("AutoImageProcessor", "AutoFeatureExtractor"), "tc.models.ImageClassifier(folder).preprocessor_(image)"),
            **dict.fromkeys(
                ("CLIPModel", "CLIPProcessor", "SiglipModel", "SiglipProcessor", "AutoModelForZeroShotImageClassification"),
                "tc.models.ImageTextEncoder.from_pretrained(folder)",
            ),
            "EncoderDecoderCache": "tc.models.Cache()",
            "DynamicCache": "tc.models.Cache()",
            "pipeline": "tc.models.TextClassifier(folder), TokenClassifier, SentenceEncoder, TextGenerator, Text2TextGenerator, SpeechRecognizer or ImageClassifier",
            "from_pretrained": "tc.models.load(folder)",
        },
    )
