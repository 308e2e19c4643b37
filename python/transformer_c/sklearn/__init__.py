"""Transformers as scikit-learn's estimators: tables, sequences and texts.

A table's features are the tokens: each number scales a vector of its own, to which another is added (Gorishniy et al. 2021, section 3.3). The
steps of a sequence or the words of a text are tokens with a position. One more token, learnt, gathers what the head needs.
"""

try:
    from sklearn.utils.validation import validate_data  # noqa: F401 (new in 1.6)
except ImportError as error:
    raise ImportError("tc.sklearn needs scikit-learn 1.6 or newer: pip install 'transformer_c[sklearn]'") from error


from typing import TYPE_CHECKING

from .._names import hooks
from .estimators import TransformerClassifier, TransformerRegressor

__all__ = ["TransformerClassifier", "TransformerRegressor"]

if not TYPE_CHECKING:
    __getattr__, __dir__ = hooks(__name__)
