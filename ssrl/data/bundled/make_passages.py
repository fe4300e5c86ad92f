"""Writes the bundled corpus from the fact tables in `facts/`: `python -m ssrl.data.bundled.make_passages`.

Short passages about the entities of all candidate questions, chosen for the set or not: who does not occur in a question is a distractor.
Which of several wordings a fact gets is decided by a hash of its title, so the same tables always give the same bytes. What joins the two
hops of a two-hop question stands in two passages: that a capital belongs to a country in one, what the country's language is in another.
"""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from ssrl.data.bundled.make import HERE, rank, slug, table
from ssrl.data.bundled.statements import (
    about_count,
    about_person,
    about_year,
    also,
    article,
    capitalised,
    general,
    listed,
    passive,
)

MOST = 4  # sentences of a passage
ENTITIES = ("person", "city", "country", "landmark", "element", "animal")
PERIODIC_TABLE = (
    "H He Li Be B C N O F Ne Na Mg Al Si P S Cl Ar K Ca Sc Ti V Cr Mn Fe Co Ni Cu Zn Ga Ge As Se Br Kr Rb Sr Y Zr Nb Mo Tc Ru Rh Pd Ag Cd In "
    "Sn Sb Te I Xe Cs Ba La Ce Pr Nd Pm Sm Eu Gd Tb Dy Ho Er Tm Yb Lu Hf Ta W Re Os Ir Pt Au Hg Tl Pb Bi Po At Rn Fr Ra Ac Th Pa U Np Pu"
).split()


class Fact(NamedTuple):
    """One sentence of the passage with this title. `kind` tells titles apart that are written alike (Georgia, Mercury)."""

    kind: str
    title: str
    sentence: str


def one_of(title: str, *wordings: str) -> str:
    """The wording that this title gets, as a sentence."""
    return capitalised(wordings[rank("wording", title)[0] % len(wordings)]).replace("..", ".")


def countries() -> Iterator[Fact]:
    peoples = {country[0]: people[0] for country, people in table("peoples")}
    for (country, *_), capital, continent, currency, unique, language in table("countries"):
        title = country.removeprefix("the ")
        if continent:
            yield Fact("country", title, one_of(title, f"{country} is a country in {continent[0]}.", f"{country} lies in {continent[0]}."))
        if language:
            spoken = f"the main language spoken in {country} is {language[0]}."
            yield Fact("country", title, one_of(title, spoken, f"{language[0]} is the main language of {country}."))
        if currency:
            paid = f"people in {country} pay with the {currency[0]}, its currency."
            yield Fact("country", title, one_of(title, f"the currency of {country} is the {currency[0]}.", paid))
        if country in peoples:
            called = f"a person from {country} is called {peoples[country]}."
            yield Fact("country", title, one_of(title, called, f"someone who comes from {country} is called {peoples[country]}."))
        if capital:
            said = (
                f"{capital[0]} is the capital of {country}.",
                f"the capital of {country} is {capital[0]}.",
                f"{capital[0]} is the capital city of {country}.",
            )
            yield Fact("city", capital[0], one_of(capital[0], *said))
        if unique:
            said = (f"the {unique[0]} is the currency of {country}.", f"the {unique[0]} is the money that is used in {country}.")
            yield Fact("currency", capitalised(unique[0]), one_of(unique[0], *said))


def places() -> Iterator[Fact]:
    for (city, *_), (country, *_) in table("cities"):
        said = (f"{city} is a city in {country}.", f"the city of {city} is in {country}.", f"{city} is one of the cities of {country}.")
        yield Fact("city", city, one_of(city, *said))
    for (state, *_), (capital, *_) in table("states"):
        yield Fact("U.S. state", state, f"{state} is a state of the United States.")
        yield Fact("U.S. state", state, one_of(state, f"its capital is {capital}.", f"the state is governed from {capital}, its capital."))
        said = (
            f"{capital} is the capital of the state of {state}.",
            f"{capital} is a city in the United States and the capital of {state}.",
        )
        yield Fact("city", capital, one_of(capital, *said))
    for (landmark, *_), (place, *_), _ in table("landmarks"):
        name, _, apposition = landmark.partition(", ")
        title = capitalised(name.removeprefix("the "))
        seen = f"{name} can be seen in {place}."
        yield Fact("landmark", title, one_of(title, f"{name} is in {place}.", seen, f"{name} is one of the sights of {place}."))
        if apposition:
            yield Fact("landmark", title, f"It is {apposition}.")


def works() -> Iterator[Fact]:
    books = defaultdict(list)
    for (title, *_), (kind, *_), (author, *_) in table("books"):
        said = (
            f"{title} is {article(kind)} by {author}.",
            f"the {kind} {title} was written by {author}.",
            f"{author} wrote the {kind} {title}.",
        )
        yield Fact(kind, title, one_of(title, *said))
        books[author].append(title)
    for author, titles in books.items():
        works = listed(titles)
        are = "are" if len(titles) > 1 else "is"
        yield Fact("person", author, one_of(author, f"{author} is the author of {works}.", f"among the works of {author} {are} {works}."))


def words() -> Iterator[Fact]:
    for (word, *_), opposites in table("opposites"):
        others = listed(opposites, "or")
        said = (f"the opposite of {word} is {others}.", f"the word {word} is the opposite of {others}.")
        yield Fact("word", capitalised(word), one_of(word, *said))
    for (animal, *_), kinds in table("animals"):
        said = (f"the {animal} is {article(kinds[0])}.", f"{article(animal)} is {article(kinds[0])}.")
        yield Fact("animal", capitalised(animal), one_of(animal, *said))
    for (meaning, *_), answers in table("words"):
        name = with_article(answers)
        said = (f"{name} is {meaning}.", f"{meaning} is called {name}.")
        yield Fact("topic", capitalised(answers[0]), one_of(meaning, *said))
    for (element, *_), (symbol, *_) in table("elements"):
        said = (f"{element} is a chemical element with the symbol {symbol}.", f"{symbol} is the chemical symbol of the element {element}.")
        yield Fact("element", capitalised(element), one_of(element, *said))
        yield Fact("element", capitalised(element), f"Its atomic number is {PERIODIC_TABLE.index(symbol) + 1}.")


def events() -> Iterator[Fact]:
    for family, state in (("years", about_year), ("counts", about_count)):
        for (question, *_), answers, names in table(family):
            yield Fact("topic", capitalised(names[0]), state(question, answers))
    for (question, *_), answers, names in table("science"):
        yield Fact("topic", capitalised(names[0]), general(question, answers, with_article(answers)))


def people() -> Iterator[Fact]:
    """A planet, god or person with all that is said of it, and the works and inventions of persons."""
    told: set[tuple[str, str]] = set()
    for family in ("planets", "people", "inventions"):
        for (question, *_), answers, _ in table(family):
            name = with_article(answers)
            title = name.removeprefix("the ")
            kind, sentence = about_person(question, name)
            if kind != "person" and (kind, title) not in told:
                yield Fact(kind, title, f"{name} is {article(kind)}{' of the Solar System' if kind == 'planet' else ''}.")
            yield Fact(kind, title, also(sentence, name) if (kind, title) in told else sentence)
            told.add((kind, title))
            if made := passive(question, name):
                yield Fact(*made)


def with_article(answers: Iterable[str]) -> str:
    """The first answer, or the spelling of it that has an article."""
    first, *others = answers
    return next((one for one in others if re.fullmatch(rf"(a|an|the) {re.escape(first)}", one)), first)


def facts() -> Iterator[Fact]:
    """All of them; what is told of a topic joins the passage of a person, city or other entity of that name."""
    told = [*countries(), *places(), *works(), *words(), *events(), *people()]
    told += [Fact("topic", title, sentence) for (title, *_), (sentence, *_) in table("context")]
    kinds = {fact.title: fact.kind for kind in reversed(ENTITIES) for fact in told if fact.kind == kind}
    for fact in told:
        yield fact._replace(kind=kinds.get(fact.title, "topic")) if fact.kind == "topic" else fact


def build() -> str:
    """The contents of passages.jsonl."""
    passages: dict[tuple[str, str], list[str]] = defaultdict(list)
    for fact in facts():
        if fact.sentence not in passages[fact.kind, fact.title]:
            passages[fact.kind, fact.title].append(fact.sentence)
    alike = Counter(title for _, title in passages)
    rows: dict[str, dict[str, str]] = {}
    for (kind, title), sentences in passages.items():
        for start in range(0, len(sentences), MOST):
            part = f" {start // MOST + 1}" if start else ""
            name = slug(f"{kind} {title}{part}")
            shown = f"{title} ({kind})" if alike[title] > 1 and kind != "topic" else title
            rows[name] = {"id": name, "title": shown, "contents": " ".join(sentences[start : start + MOST])}
    return "".join(json.dumps(rows[name], ensure_ascii=False) + "\n" for name in sorted(rows, key=lambda name: rank("passage", name)))


if __name__ == "__main__":
    (HERE / "passages.jsonl").write_text(build(), encoding="utf-8")
