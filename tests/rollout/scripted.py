"""A policy that writes what a test says, and an engine that answers with one text."""

from dataclasses import dataclass, field

from ssrl.types import Completion, Document, Finish, SearchResult, SearchStatus

END = 0  # the tiny model's end token, which is its pad token too
BEFORE, AFTER = "\n<information>\n", "\n</information>\n"


@dataclass
class Scripted:
    """Writes the k-th text of a question's script in its k-th generation, byte by byte, then the end token."""

    tokenizer: object
    scripts: dict[str, list[str]]
    requests: list = field(default_factory=list)
    written: dict[str, int] = field(default_factory=dict)

    def generate(self, requests):
        self.requests.append(list(requests))
        return [self._one(request) for request in requests]

    def _one(self, request):
        prompt = self.tokenizer.decode(request.prompt_ids)
        key = next(key for key in self.scripts if f"Q: {key}?" in prompt)
        turn = self.written.get(key, 0)
        self.written[key] = turn + 1
        text, ids, finish = self.scripts[key][turn], [], None
        for token in [*self.tokenizer(text, add_special_tokens=False).input_ids, END]:
            ids.append(token)
            if token == END:
                finish = Finish.EOS
            elif any(stop in self.tokenizer.decode(ids) for stop in request.stop):
                finish = Finish.STOP
            elif len(ids) == request.max_new_tokens:
                finish = Finish.LENGTH
            if finish is not None:
                break
        noted = None if request.entropy is None else tuple(float(i) for i in range(len(ids)))
        return Completion(ids=tuple(ids), logprobs=tuple(-0.01 * (i + 1) for i in range(len(ids))), finish=finish, entropies=noted)

    def publish(self):
        pass


class Library:
    """Answers the first `k` searches of a rollout and declines the others."""

    name, answers, wrapper = "library", True, (BEFORE, AFTER)

    def __init__(
        self, text="Paris is in France.", *, k=99, max_turns=3, entropy=None, status=SearchStatus.OK, may_decline=False, count_invalid=True, retry_message=""
    ):
        self.text, self.k, self.max_turns, self.entropy, self.status = text, k, max_turns, entropy, status
        self.may_decline, self.count_invalid, self.retry_message = may_decline, count_invalid, retry_message
        self.batches = []

    @property
    def calls(self):
        return [call for batch in self.batches for call in batch]

    def search(self, calls):
        self.batches.append(list(calls))
        return [self._one(call) if call.index < self.k else None for call in calls]

    def _one(self, call):
        return SearchResult(status=self.status, documents=(Document(text=self.text.format(query=call.query)),))

    def render(self, result):
        return "\n".join(document.text for document in result.documents)
