"""Writes the bundled question set from the fact tables in `facts/`: `python -m ssrl.data.bundled.make`.

Everything is decided by the tables and by hashes of names, so the same tables always give the same bytes. README.md says what is in it.
"""

from __future__ import annotations

import csv
import json
import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path

HERE = Path(__file__).parent
SIZES = {"validation": 66, "test": 124}  # aims, of which families with few entities fall short; the rest is for training
MOST = 30  # questions of one family that the measured model answers
OTHERS = 0.5
EXAMPLES = {  # stand solved in few-shot prompts
    "What is the capital of Japan?",
    "Who wrote the novel War and Peace?",
    "What is the chemical symbol of iron?",
}
SHORT = 3  # letters of a name that is compared with its case


@dataclass(frozen=True)
class Row:
    """One question. `names` are the entities that it is about; shared classes (continents, years, the euro) are not among them."""

    id: str
    question: str
    answers: tuple[str, ...]
    family: str
    names: tuple[str, ...]
    level: str = ""  # of facts/measured.tsv: greedy, sampled or no
    split: str = ""

    def json(self) -> str:
        fields = {"id": self.id, "question": self.question, "golden_answers": self.answers, "family": self.family, "entities": self.names}
        return json.dumps(fields, ensure_ascii=False)


def table(name: str) -> Iterator[list[list[str]]]:
    """The rows of a fact table; each cell is its list of accepted spellings, the first one is used in questions."""
    with open(HERE / "facts" / f"{name}.tsv", encoding="utf-8", newline="") as file:
        for row in list(csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE))[1:]:
            yield [cell.split("|") if cell else [] for cell in row]


def rank(*parts: str) -> bytes:
    return sha256("/".join(parts).encode()).digest()


def slug(text: str) -> str:
    plain = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode()
    return re.sub(r"[^a-z0-9]+", "-", plain.lower().replace("'", "")).strip("-")


def row(family: str, key: str, question: str, answers: list[str], *names: list[str]) -> Row:
    unique = dict.fromkeys(name for group in names for name in group)
    return Row(f"{family}-{slug(key)}", question, tuple(dict.fromkeys(answers)), family, tuple(unique))


def countries() -> Iterator[Row]:
    """All that can be asked of a country, its capital and its currency, with one hop and with two."""
    for country, capital, continent, currency, unique, language in table("countries"):
        name, about = country[0], (country, capital, unique)
        reverse = capital and not any(alias in capital[0] for alias in country)
        if capital:
            yield row("capital", name, f"What is the capital of {name}?", capital, *about)
        if reverse:
            whose = f"the country whose capital is {capital[0]}"
            yield row("country_of_capital", name, f"Which country has {capital[0]} as its capital?", country, *about)
            if continent:
                yield row("two_hop", f"{name} continent", f"On which continent is {whose}?", continent, *about)
            if currency:
                yield row("two_hop", f"{name} currency", f"What is the currency of {whose}?", currency, *about)
            if language:
                yield row("two_hop", f"{name} language", f"What is the main language of {whose}?", language, *about)
        if continent:
            yield row("continent", name, f"On which continent is {name}?", continent, *about)
        if currency:
            yield row("currency", name, f"What is the currency of {name}?", currency, *about)
        if language:
            yield row("language", name, f"What is the main language spoken in {name}?", language, *about)
        if unique and capital:
            text = f"What is the capital of the country whose currency is the {unique[0]}?"
            yield row("two_hop", f"{name} capital", text, capital, *about)


def elements() -> Iterator[Row]:
    """An element's symbol, and back."""
    for element, symbol in table("elements"):
        name = element[0]
        yield row("element_symbol", name, f"What is the chemical symbol of {name}?", symbol, element)
        yield row("element_of_symbol", name, f"Which chemical element has the symbol {symbol[0]}?", element, element)


def works() -> Iterator[Row]:
    for title, kind, author in table("books"):
        yield row("author", title[0], f"Who wrote the {kind[0]} {title[0]}?", author, title, author)


def places() -> Iterator[Row]:
    for state, capital in table("states"):
        yield row("state_capital", state[0], f"What is the capital of the state of {state[0]}?", capital, state, capital)
    for city, country in table("cities"):
        yield row("city", city[0], f"In which country is the city of {city[0]}?", country, city, country)
    capitals = {country[0]: capital for country, capital, *_ in table("countries")}
    for landmark, place, ask in table("landmarks"):
        yield row("landmark", landmark[0], f"In which {ask[0]} is {landmark[0]}?", place, landmark, place)
        capital = capitals.get(place[0], []) if ask == ["country"] else []
        if capital and place[0] not in capital[0]:
            text = f"What is the capital of the country where you find {landmark[0]}?"
            yield row("two_hop", f"{landmark[0]} capital", text, capital, landmark, place, capital)


def others() -> Iterator[Row]:
    for family in ("years", "counts"):  # their answers are numbers: a shared class
        for question, answers, names in table(family):
            yield row(family.rstrip("s"), question[0], question[0], answers, names)
    for word, opposite in table("opposites"):
        names = [f"the opposite of {one}" for one in [*word, *opposite]]
        yield row("opposite", word[0], f"What is the opposite of {word[0]}?", opposite, names)
    for animal, kind in table("animals"):
        article = "an" if animal[0][0] in "aeiou" else "a"
        text = f"Is {article} {animal[0]} a mammal, a bird, a reptile, an amphibian, a fish or an insect?"
        yield row("animal", animal[0], text, kind, animal)
    for meaning, word in table("words"):
        yield row("word", meaning[0], f"What do you call {meaning[0]}?", word, meaning, word)
    for country, people in table("peoples"):
        yield row("people", country[0], f"What is a person from {country[0]} called?", people, country)
    for question, answers, names in table("science"):
        yield row("science", question[0], question[0], answers, names)
    for family, name in (("person", "inventions"), ("person", "people"), ("planet", "planets")):
        for question, answers, names in table(name):
            yield row(family, question[0], question[0], answers, names, answers)


def candidates() -> list[Row]:
    rows = [*countries(), *elements(), *works(), *places(), *others()]
    return [one for one in rows if one.question not in EXAMPLES]


def select(rows: list[Row]) -> Iterator[Row]:
    """Of each family what the measured model answers, by its likeliest text or by a sample, and a share of the rest, all by hash."""
    levels = {key[0]: level[0] for key, level in table("measured")}
    families: dict[str, dict[str, list[Row]]] = defaultdict(lambda: defaultdict(list))
    for one in sorted(rows, key=lambda one: rank(one.id)):
        families[one.family][levels[one.id]].append(replace(one, level=levels[one.id]))
    for family in families.values():
        greedy = family["greedy"][:MOST]
        yield from [*greedy, *family["sampled"], *family["no"][: round(OTHERS * len(greedy))]]


def components(rows: list[Row]) -> list[list[Row]]:
    """Groups of rows that must stay together: those that share an entity, or where one's text holds the name of another's entity."""
    parent = list(range(len(rows)))

    def find(index: int) -> int:
        while parent[index] != index:
            index = parent[index]
        return index

    texts = [" / ".join([one.question, *one.names]) for one in rows]
    folded = [text.casefold() for text in texts]
    owners: dict[str, int] = {}
    for index, one in enumerate(rows):
        for name in one.names:
            parent[find(index)] = find(owners.setdefault(fold(name), index))
    for name, owner in owners.items():
        pattern = re.compile(rf"(?<!\w){re.escape(name)}(?!\w)")
        for index, text in enumerate(texts if len(name) <= SHORT else folded):
            if name in text and pattern.search(text):
                parent[find(index)] = find(owner)
    groups = defaultdict(list)
    for index, one in enumerate(rows):
        groups[find(index)].append(one)
    return list(groups.values())


def fold(name: str) -> str:
    """Names are compared without case; those of three letters or fewer (US, tin) as they are, or "In" would be found everywhere."""
    return name if len(name) <= SHORT else name.casefold()


def assign(groups: list[list[Row]], total: int) -> Iterator[Row]:
    """Large groups first, each to the split that it fills best, so that every split has its share of every family and level."""
    shares = {split: size / total for split, size in SIZES.items()}
    shares["train"] = 1 - sum(shares.values())
    kinds = Counter(kind for group in groups for one in group for kind in (one.family, one.level))
    have: dict[str, Counter[str]] = {split: Counter() for split in shares}
    for group in sorted(groups, key=lambda group: (-len(group), rank(min(one.id for one in group)))):
        need = Counter(kind for one in group for kind in (one.family, one.level))

        def room(split: str, need: Counter[str] = need) -> float:
            """How empty the split is in the kinds of this group; below 0: over-full."""
            return sum(n * (1 - (have[split][kind] + n) / (shares[split] * kinds[kind])) for kind, n in need.items())

        split = max(shares, key=room)
        have[split].update(need)
        yield from (replace(one, split=split) for one in group)


def build() -> dict[str, str]:
    """The contents of the three files by name."""
    rows = list(select(candidates()))
    split_of = {one.id: one.split for one in assign(components(rows), len(rows))}
    lines: dict[str, list[str]] = {"train": [], "validation": [], "test": []}
    # another hash than that of select, or the first lines would be of the families of which most was left out
    for one in sorted(rows, key=lambda one: rank("order", one.id)):
        lines[split_of[one.id]].append(one.json() + "\n")
    return {f"{split}.jsonl": "".join(texts) for split, texts in lines.items()}


if __name__ == "__main__":
    for name, text in build().items():
        (HERE / name).write_text(text, encoding="utf-8")
