"""What each token says: text is looked at through this table, and tokens are never made from it again."""

from __future__ import annotations

from collections.abc import Sequence

from tokenizers import decoders
from tokenizers.pre_tokenizers import ByteLevel
from transformers import PreTrainedTokenizerBase


class TokenText:
    """The bytes of each token of a sequence, special tokens as nothing.

    With a byte-level tokenizer (Llama 3, Qwen, SmolLM) a token's bytes are exact wherever it stands. With any other, a token's
    text is what the decoding grows by when it is added; bytes of a character split over tokens go to the token that completes it.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        self.tokenizer = tokenizer
        self._special = {i for i, token in tokenizer.added_tokens_decoder.items() if token.special}
        backend = getattr(tokenizer, "backend_tokenizer", None)
        self._bytes = _byte_of_character() if backend is not None and _is_byte_level(backend.decoder) else None
        self._added = {i: token.content.encode() for i, token in tokenizer.added_tokens_decoder.items() if not token.special}

    def pieces(self, ids: Sequence[int]) -> list[bytes]:
        """[T] the bytes of each token; joined they are the text in UTF-8. Ids that only pad the embedding say nothing."""
        if self._bytes is None:
            return self._by_growth(ids)
        tokens = self.tokenizer.convert_ids_to_tokens(list(ids))
        return [
            b"" if i in self._special else self._added.get(i) or bytes(self._bytes[character] for character in token or "")
            for i, token in zip(ids, tokens, strict=True)
        ]

    def extend(self, pieces: list[bytes], ids: Sequence[int]) -> None:
        """Bring the pieces of the first tokens of `ids` up to all of them; only the new ones are read where a token's bytes are its own."""
        if self._bytes is None:
            pieces[:] = self._by_growth(ids)
        else:
            pieces += self.pieces(ids[len(pieces) :])

    def _by_growth(self, ids: Sequence[int]) -> list[bytes]:
        pieces, start, settled = [], 0, ""
        for end in range(1, len(ids) + 1):
            text = self.tokenizer.decode(ids[start:end], skip_special_tokens=True)
            if text.endswith("\ufffd"):  # a character that later tokens complete
                pieces.append(b"")
                continue
            pieces.append(text[len(settled) :].encode())
            if end - start > 16:  # decode a short window again, so that long sequences stay linear; it begins with a whole character
                start = next((s for s in range(end - 4, start, -1) if pieces[s - 1]), start)
                settled = self.tokenizer.decode(ids[start:end], skip_special_tokens=True)
            else:
                settled = text
        return pieces


def text_of(pieces: Sequence[bytes]) -> str:
    return b"".join(pieces).decode("utf-8", errors="replace")


def _is_byte_level(decoder: object) -> bool:
    return isinstance(decoder, decoders.ByteLevel) or "ByteLevel" in str(decoder)


def _byte_of_character() -> dict[str, int]:
    """The byte behind each character of the byte-level alphabet: printable bytes stand for themselves, the others follow from 256 on."""
    printable = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    others = [byte for byte in range(256) if byte not in printable]
    table = {chr(byte): byte for byte in printable} | {chr(256 + i): byte for i, byte in enumerate(others)}
    assert set(table) == set(ByteLevel.alphabet())
    return table
