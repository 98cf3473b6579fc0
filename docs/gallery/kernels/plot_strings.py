"""
Correct misspelt words with a string kernel
===========================================

Words are compared by the letters, pairs and triples of letters that they share. With this kernel a
text is an embedding, typing is a conditional distribution from words to strings, and reading a
misspelt word is Bayes' rule: the prior is the topic of the text.
"""

from collections import Counter

import matplotlib.pyplot as plt
import numpy as np

from meanmap import ConditionalEmbedding, embed
from meanmap.kernels import NGrams

BLUE, ORANGE, GREY = "#0072b2", "#d55e00", "#8a8a8a"
rng = np.random.default_rng(0)

# %%
# Two topics with a few words each, some of them only one letter apart. A typist occasionally drops,
# doubles, swaps or mistakes a letter. Marks at both ends of a word tell the kernel where it starts
# and stops.

topics = {
    "weather": ["rain", "storm", "cloud", "wind", "frost", "hail", "sleet", "thunder", "mist"],
    "body": ["brain", "stomach", "blood", "hand", "throat", "nail", "sleep", "finger", "wrist"],
}
words = np.array([f"^{word}$" for topic in topics.values() for word in topic])
KEYS = "abcdefghijklmnopqrstuvwxyz"


def slips(word):
    """Every way to type a word with one slip, as often as it happens."""
    w, out = word[1:-1], Counter()
    for i in range(len(w)):
        share = 1 / len(w)
        out[w[:i] + w[i + 1 :]] += 0.25 * share
        out[w[:i] + w[i] + w[i:]] += 0.25 * share
        j = min(i, len(w) - 2)
        out[w[:j] + w[j + 1] + w[j] + w[j + 2 :]] += 0.25 * share
        for key in KEYS:
            out[w[:i] + key + w[i + 1 :]] += 0.25 * share / len(KEYS)
    return {f"^{typed}$": probability for typed, probability in out.items()}


channel = {word: slips(word) for word in words}


def typed(word):
    if rng.random() < 0.3:
        return word
    return rng.choice(list(channel[word]), p=np.fromiter(channel[word].values(), float))


# %%
# **Embed and compare.** Two texts about the weather are close to each other and far from one about
# the body, even though they are misspelt: the kernel sees letters, not a dictionary.

kernel = NGrams(1) + NGrams(2) + NGrams(3)


def text(topic, n):
    return [typed(f"^{word}$") for word in rng.choice(topics[topic], n)]


weather = embed(text("weather", 300), kernel=kernel)
print(f"another text on weather: {weather.distance(embed(text('weather', 300), kernel)):.3f}")
print(f"a text on the body:      {weather.distance(embed(text('body', 300), kernel)):.3f}")

# %%
# **Condition.** The model is fitted to pairs of a word and the string that was typed for it, with
# every word equally often.

meant = np.repeat(words, 100)
seen = np.array([typed(word) for word in meant])
model = ConditionalEmbedding(kernel, kernel).fit(meant, seen)
print(f"typed for 'rain': {model.given('^rain$').herd(4)}")

# %%
# **Bayes.** The prior is the topic. The same string is read differently under different topics,
# much as under the exact posterior, which is known here because the typist is simulated.


def exact(typed_word, prior):
    likelihood = [
        0.3 * (word == typed_word) + 0.7 * channel[word].get(typed_word, 0.0) for word in words
    ]
    return prior * likelihood / (prior @ likelihood)


share = {"weather": np.repeat([0.9, 0.1], 9) / 9, "body": np.repeat([0.1, 0.9], 9) / 9}
readers = {topic: model.posterior(embed(words, kernel, weights=p)) for topic, p in share.items()}


def indicators(atoms):
    return (atoms[:, None] == words).astype(float)


queries = ("^rain$", "^ail$", "^sleen$")
found = {}
for query in queries:
    for topic, reader in readers.items():
        belief = reader.given(query)
        found[query, topic] = belief.project().expect(indicators)
        best = words[exact(query, share[topic]).argmax()].strip("^$")
        mode = belief.mode(candidates=words).strip("^$")
        print(f"{query.strip('^$'):6} {topic:8} read as {mode:6} by the exact posterior: {best}")

# %%
# How each topic reads three strings. A string that was never typed in training is read by its
# similarity to others, less sharply than by the exact posterior.

fig, axes = plt.subplots(1, 3, figsize=(11, 3.6), layout="constrained", sharex=True)
for ax, query in zip(axes, queries, strict=True):
    truths = {topic: exact(query, share[topic]) for topic in share}
    top = np.argsort(sum(truths.values()))[::-1][:4]
    for i, (topic, colour) in enumerate(zip(share, (BLUE, ORANGE), strict=True)):
        p = found[query, topic]
        place = np.arange(len(top)) + 0.4 * i - 0.2
        ax.barh(place, p[top], height=0.36, color=colour, label=f"text on {topic}")
        label = "exact" if i else None
        ax.plot(truths[topic][top], place, "D", color="black", markersize=5, label=label)
    ax.set_yticks(range(len(top)), [word.strip("^$") for word in words[top]])
    ax.invert_yaxis()
    ax.set(title=f"typed: {query.strip('^$')}", xlabel="posterior probability", xlim=(0, 1.05))
axes[0].legend(frameon=False, loc="lower right")
plt.show()

# %%
# How many new misspelt words, drawn from each topic, are read correctly?

for topic, reader in readers.items():
    truth = rng.choice(words, 200, p=share[topic])
    queries = [typed(word) for word in truth]
    right = reader.given(queries).mode(candidates=words) == truth
    best = [words[exact(query, share[topic]).argmax()] for query in queries] == truth
    print(f"{topic:8} read right: {right.mean():.0%}; by the exact posterior {best.mean():.0%}")
