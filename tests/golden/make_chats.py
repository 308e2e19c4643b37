"""Makes chats.json: the texts that transformers' apply_chat_template (5.23) makes of the chats of tests/models/chats.py, null where the template
refuses them. Run it with ``PYTHONPATH=tests/models`` where transformers and jinja2 are installed."""

import json
from pathlib import Path

from chats import CHATS, SPECIAL, TEMPLATES, VALUES


def text_of(tokenizer, chat, values):
    try:
        return tokenizer.apply_chat_template(chat, **{"tokenize": False, "add_generation_prompt": True, **values})
    except Exception as error:
        assert type(error).__module__.startswith("jinja2") or isinstance(error, TypeError), error
        return None


def texts():
    """{template: {chat: {values: text}}}"""
    from tokenizers import Tokenizer, models
    from transformers import PreTrainedTokenizerFast

    special = {name: own["content"] if isinstance(own, dict) else own for name, own in SPECIAL.items()}
    found = {}
    for name, template in TEMPLATES.items():
        tokenizer = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.WordLevel({"a": 0})), chat_template=template, **special)
        found[name] = {key: {said: text_of(tokenizer, chat, values) for said, values in VALUES.items()} for key, chat in CHATS.items()}
    for by_values in found["llama3.1"].values():
        by_values.pop("plain")  # the year changes
    return found


if __name__ == "__main__":
    path = Path(__file__).parent / "chats.json"
    path.write_text(json.dumps(texts(), indent=1, ensure_ascii=False) + "\n")
