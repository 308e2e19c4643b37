"""What the cells of notebooks/notes_search.py must give; run in the notebook by tools/notebooks.py, each part after the cell that begins so."""

# ruff: noqa: F821

# %% NOTES = ""  # such as "~/notes"
assert len(SAMPLES) == 8 and all(text.count("\n\n") == 2 for text in SAMPLES.values())

# %% class Search:
assert repr(search.encoder) == "SentenceEncoder(Bert, pooling=mean, normalize=True, max_length=256)"
assert search.vectors.shape == (24, 384) and np.abs(np.linalg.norm(search.vectors, axis=1) - 1).max() < 1e-6

# %% QUESTIONS = ["why is my bread not rising", "What should be done about noisy brakes?", "Which papers replace a stolen ID?"]
assert [results[0][1] for results in found.values()] == ["kitchen", "bicycle", "travel"]

# %% ASKED = [
assert len(ASKED) == len(texts) == 24 and sorted(texts) == sorted(part for name in SAMPLES for part in SAMPLES[name].split("\n\n"))
assert np.mean(ranked["by meaning"] == 1) >= 0.9 and ranked["by meaning"].max() <= 3
assert max(np.mean(ranked[kind] == 1) for kind in ("by words", "by letters")) < 0.3

# %% similarity = search.encoder.similarity(search.vectors, search.vectors)
assert np.abs(similarity - search.vectors @ search.vectors.T).max() < 1e-6 and starts == list(range(0, 24, 3))
assert sorted(names[i] for i in closest) == ["garden", "house"]

# %% centred = search.vectors - search.vectors.mean(0)
assert points.shape == (24, 2) and 0.1 < kept < 0.5

# %% before = search.vectors.copy()
assert np.array_equal(again, search.vectors) and np.array_equal(again[:24], before)
assert name == "music"
