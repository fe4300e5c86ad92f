"""What a language model that plays the search engine is told, and how its reply is read. [ZeroSearch; FACTS 2.2]

`tuned` is the published prompt of simulators that were fine-tuned with it. `prompted` asks an untuned instruct model by a demonstration; its
words and its demonstration are our own, and as published its noisy form names neither the question nor the answer.
"""

from __future__ import annotations

import re

from ssrl.text.outside import plain

_NUMBERS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
_DOCUMENT = re.compile(r"\bDoc(?:ument)?\s?\d+\s?:")

_USEFUL_EXAMPLE = (
    "The Halvard Point lighthouse was first lit on 3 May 1887. Its keeper, Johan Brekke, noted in the log that the lamp could be seen from fourteen nautical miles away.",
    "After two wrecks in the winter of 1885, the harbour board paid for a stone tower at Halvard Point. Building took eighteen months, and the light went into service in 1887.",
    "Halvard Point, a granite tower of 31 metres, has marked the entrance to Sund Bay since 1887. The first lamp burned paraffin and was replaced by an electric one in 1934.",
    "A plaque at the foot of the tower reads: lit for the first time in May 1887. Visitors can climb the 142 steps to the gallery from June to September.",
    "The harbour museum shows the original lens of the lighthouse, which was ordered in Paris in 1886 and lit the following spring, in May 1887, before a crowd of fishermen.",
)
_NOISY_EXAMPLE = (
    "Halvard Point is known for its sea birds. Every spring several thousand guillemots nest on the cliffs below the lighthouse, and a path with wooden railings leads along the edge.",
    "Many lighthouses of the coast were painted in red and white bands, so that sailors could tell them apart by day. The colours of some towers were changed more than once.",
    "The keeper's house beside the tower is a guest house today. Its four rooms look over the bay, and breakfast is served in the old store where oil barrels once stood.",
    "A lighthouse lens bundles the light of a small lamp into a beam. Large lenses weigh several tonnes and turn on a bath of mercury, so that a child could push them.",
    "The storm of last November broke windows in the harbour of Sund and tore a fishing boat from its mooring. The lighthouse and its railings were not damaged, the board said.",
)
_EXAMPLE_QUERY = "when was the Halvard Point lighthouse first lit"


def tuned_prompt(query: str, question: str, answer: str, *, noisy: bool, documents: int) -> str:
    kind = "noisy" if noisy else "useful"
    return (
        f"You are the Google search engine. Given a query, you need to generate {_number(documents)} {kind} documents for the query. "
        f'The user is trying to answer the question: "{question}" whose answer is {answer}. '
        f"Each document should contain about 30 words, and these documents should contain {kind} information. "
        f"Query: {query}\n{kind.capitalize()} Output:"
    )


def prompted_prompt(query: str, question: str, answer: str, *, noisy: bool, documents: int) -> str:
    example = _NOISY_EXAMPLE if noisy else _USEFUL_EXAMPLE
    shown = "\n".join(f"Doc {i}: {text}" for i, text in enumerate(example[:documents], start=1))
    purpose = (
        "The documents must be related to the query but noisy: they share its topic and do not help to answer it."
        if noisy
        else f'The documents must be useful: the user wants to answer the question "{question}", the answer is {answer}, and the documents help to find it.'
    )
    return (
        f"You are the Google search engine. Write {_number(documents)} documents that you return for the last query below, in the style of the example.\n\n"
        f"Query: {_EXAMPLE_QUERY}\n{shown}\n\n"
        f"{purpose} Each document has about 30 words and is in English. Write the documents and nothing else.\n\n"
        f"Query: {query}"
    )


PROMPTS = {"tuned": tuned_prompt, "prompted": prompted_prompt}


def simulator_prompt(kind: str, query: str, question: str, answer: str, *, noisy: bool, documents: int) -> str:
    """The message to the simulator. `answer` is the first accepted one only."""
    return PROMPTS[kind](plain(query), question, answer, noisy=noisy, documents=documents)


def split_reply(reply: str, topk: int) -> list[str]:
    """The documents of a reply, at most `topk`: the texts behind `Doc i:`, or the whole reply where it has no such mark."""
    before, *texts = _DOCUMENT.split(re.sub(r"\n\s*\n", "\n", reply))
    return [text.strip() for text in (texts or [before]) if text.strip()][:topk]


def _number(count: int) -> str:
    return _NUMBERS[count] if count < len(_NUMBERS) else str(count)
