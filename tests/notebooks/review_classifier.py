"""What the cells of notebooks/review_classifier.py must give; run in the notebook by tools/notebooks.py, each part after the cell that begins so."""

# ruff: noqa: F821

# %% TRAIN = {
opinions = [{sentence for part in of.values() for sentence in part} for of in (used, kept_back, TEST)]
assert not (opinions[0] & opinions[1] or opinions[0] & opinions[2] or opinions[1] & opinions[2])
assert all(part[1].count("good") == len(part[1]) / 2 == len(part[0]) / 2 for part in (train, held, familiar, new))
assert len(words[1] - words[0]) > 0.6 * len(words[1])

# %% tuned = tc.models.TextClassifier(MODEL, epochs=3, learning_rate=1e-4, random_state=0)
assert len(tuned.history_) == 3 and tuned.history_[-1]["loss"] < 0.3

# %% encoder = tc.models.SentenceEncoder.from_pretrained(MODEL)
lasts = [history[-1] for history in histories.values()]
assert lasts[1]["loss"] < 0.1 and lasts[1]["val_loss"] > np.log(2) > lasts[0]["val_loss"]

# %% scratch.fit(*train)
assert all(old > 0.9 for old, _ in accuracy.values())
other = {name: found for name, (_, found) in accuracy.items()}
assert other["fine-tuned"] > other["its vectors, logistic regression"] + 0.05
assert other["fine-tuned"] > max(other["from nothing"], other["from nothing, over words"]) + 0.25

# %% sizes = [240] if FAST else [24, 72, 240]
assert len(curve["fine-tuned"]) == len(sizes) and sorted(curve["fine-tuned"]) == curve["fine-tuned"]

# %% review = "We drove there with the neighbours. They treated us like royalty."
assert len(maps) == 6 and last.shape == (1, 12, len(pieces), len(pieces)) and abs(looks.sum() - 1) < 1e-5
assert looks[pieces.index("royalty")] == looks.max()

# %% tuned.save("reviews")
assert np.array_equal(again.predict_proba(new[0]), odds)
