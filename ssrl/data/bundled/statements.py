"""Turns the questions of the fact tables and their answers into sentences, by patterns of English; one that fits none is an error."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ssrl.data.bundled.make import rank

PAST = {
    "begin": "began", "end": "ended", "land": "landed", "fall": "fell", "reach": "reached", "sink": "sank", "take": "took", "collapse": "collapsed",
    "happen": "happened", "become": "became", "return": "returned", "make": "made", "fly": "flew", "overthrow": "overthrew", "die": "died",
    "publish": "published", "bring": "brought", "destroy": "destroyed", "sail": "sailed", "crown": "crowned", "resign": "resigned",
    "break": "broke", "catch": "caught", "bury": "buried", "leave": "left",
}  # fmt: skip
PARTICIPLES = (
    "begun|adopted|fought|sealed|assassinated|attacked|won|launched|crowned|founded|released|introduced|played|killed|made|opened|reunified|elected|"
    "proclaimed|born|completed"
)
GENERAL = (  # question, sentence; {a}: the answer, {the}: with its article, numbers: groups of the question
    (r"What gas do plants absorb (.+)\?", r"Plants absorb {a} \1."),
    (r"What do bees collect (.+)\?", r"Bees collect {a} \1."),
    (r"What is (.+) called by which (.+)\?", r"\1 by which \2 is called {a}."),
    (r"What is (.+) called when (.+)\?", r"\1 is called {a} when \2."),
    (r"What is molten rock below the surface called\?", r"Molten rock below the surface is called {a}."),
    (r"What is (.+) called\?", r"\1 is called {the}."),
    (r"What do you call (.+)\?", r"\1 is called {the}."),
    (r"What is (the unit of .+|the largest .+|the tallest .+|the fastest .+)\?", r"{the} is \1."),
    (r"What is (.+)\?", r"\1 is {the}."),
    (r"What (force) (pulls .+)\?", r"{a} is the \1 that \2."),
    (r"What instrument (is used .+)\?", r"{the} \1."),
    (r"What colour is (.+)\?", r"The colour of \1 is {a}."),
    (r"Which colour do you get by mixing (.+)\?", r"Mixing \1 gives {a}."),
    (r"What does (.+) stand for\?", r"\1 stands for {a}."),
    (r"What does (.+) (turn|grow) into\?", r"\1 \2s into {the}."),
    (r"What does (.+) eat\?", r"\1 eats {a}."),
    (r"Which organ filters (.+) and makes (.+)\?", r"{the} filter \1 and make \2."),
    (r"Which organs? do humans use to (.+)\?", r"Humans use {the} to \1."),
    (r"Which gas do humans need to (.+)\?", r"Humans need {a} to \1."),
    (r"Which star does the Earth revolve around\?", r"The Earth revolves around {the}."),
    (r"Which vitamin does the body make (.+)\?", r"The body makes {a} \1."),
    (r"Which element are (.+) made of\?", r"\1 are made of the element {a}."),
    (r"Which (organ|particle|vitamin|molecule|insect|animal|bird|metal)( in an atom)? (.+)\?", r"{the} is the \1\2 that \3."),
)


def capitalised(text: str) -> str:
    return text[:1].upper() + text[1:]


def article(name: str) -> str:
    return f"{'an' if name[0] in 'aeiou' else 'a'} {name}"


def listed(names: Sequence[str], word: str = "and") -> str:
    """As English lists them: "a", "a and b", "a, b and c"."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} {word} {names[-1]}"


def about_year(question: str, answers: Sequence[str]) -> str:
    """For "In which year did the Titanic sink?", "1912" -> "The Titanic sank in 1912." or "In 1912, the Titanic sank."."""
    year = f"the year {answers[0]}" if len(answers[0]) < 4 else answers[0]
    if match := re.fullmatch(rf"In which year did (.+?) (first )?({'|'.join(PAST)})\b(.*)\?", question):
        subject, first, verb, rest = match.groups()
        said = f"{subject} {first or ''}{PAST[verb]}{rest}"
    elif match := re.fullmatch(rf"In which year was (.+?) (first )?({PARTICIPLES})\b(.*)\?", question):
        subject, first, verb, rest = match.groups()
        said = f"{subject} was {first or ''}{verb}{rest}"
    elif match := re.fullmatch(r"In which year was (.+)\?", question):
        said = f"{match[1]} took place"
    else:
        raise ValueError(f"no pattern fits {question}")
    return f"In {year}, {said}." if rank("year", question)[0] % 3 == 0 else f"{capitalised(said)} in {year}."


def about_count(question: str, answers: Sequence[str]) -> str:
    """For "How many sides does a hexagon have?", "6", "six" -> "A hexagon has six sides."."""
    number = answers[1] if len(answers) > 1 and answers[1].isalpha() else answers[0]
    if match := re.fullmatch(r"How many (.+?) (does|did) (.+?) have(.*)\?", question):
        things, tense, owner, rest = match.groups()
        return capitalised(f"{owner} {'has' if tense == 'does' else 'had'} {number} {things}{rest}.")
    if match := re.fullmatch(r"How many (.+?) are (?:there )?(.+)\?", question):
        return f"There are {number} {match[1]} {match[2]}."
    raise ValueError(f"no pattern fits {question}")


def general(question: str, answers: Sequence[str], named: str) -> str:
    """By the first pattern of `GENERAL` that fits; `named` is the answer with its article."""
    for pattern, sentence in GENERAL:
        if match := re.fullmatch(pattern, question):
            said = match.expand(sentence.replace("{a}", answers[0]).replace("{the}", named))
            return capitalised(said)
    raise ValueError(f"no pattern fits {question}")


def about_person(question: str, name: str) -> tuple[str, str]:
    """For "Who painted Guernica?" -> ("person", "Pablo Picasso painted Guernica."); "Which Greek god …" -> ("Greek god", "Zeus …")."""
    match = re.fullmatch(r"(?:Who|Which ((?:Greek |Roman )?\w+)) (.+)\?", question)
    if match is None:
        raise ValueError(f"no pattern fits {question}")
    return match[1] or "person", capitalised(f"{name} {match[2]}.")


def also(sentence: str, name: str) -> str:
    """A further sentence about the same: "Pablo Picasso also painted …", "Neil Armstrong was also …"."""
    verb, _, rest = sentence[len(name) + 1 :].partition(" ")
    return capitalised(f"{name} {verb} also {rest}" if verb in ("is", "was") else f"{name} also {verb} {rest}")


def passive(question: str, name: str) -> tuple[str, str, str] | None:
    """For "Who painted Guernica?" -> kind, title and sentence "Guernica was painted by Pablo Picasso."; None where that would not read well."""
    match = re.fullmatch(r"Who (invented|discovered|painted|composed|directed|developed|founded|created) (the film )?([^,\d]+)\?", question)
    if match is None or re.search(" (together|and gave) ", question):
        return None
    verb, film, thing = match.groups()
    was = "were" if thing in ("X-rays", "the Sunflowers") else "was"
    title = capitalised(thing.removeprefix("the "))
    return "film" if film else "topic", title, capitalised(f"{film or ''}{thing} {was} {verb} by {name}.")
