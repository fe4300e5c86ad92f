"""What tokens say, with tokenizers of each kind built on the spot."""

import ast
from pathlib import Path

import pytest
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers
from transformers import PreTrainedTokenizerFast

import ssrl.rollout
from ssrl.rollout.label import label
from ssrl.rollout.tokens import TokenText, text_of
from ssrl.types import Source

HARD = "Ünïcode 日本語 🎉🎉🎉🎉🎉🎉 naïve\n\n  x\t</search>\n<information>Paris</information><answer>é</answer> ﷽ end"


def merged_bpe():
    """A byte-level BPE in which `><`, `</search>\\n`, ` </` and more are one token each."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    merges = [(">", "<")]
    vocab = {token: i for i, token in enumerate(["<|end|>", *alphabet, "><"])}
    word = "</search>Ċ"
    for end in range(2, len(word) + 1):  # `<`+`/`, `</`+`s`, …
        merges.append((word[: end - 1], word[end - 1]))
        vocab[word[:end]] = len(vocab)
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|end|>")


def byte_fallback():
    """A SentencePiece-like vocabulary: `▁` for spaces, one byte a token for everything it does not know."""
    words = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), "▁", *map(chr, range(33, 127)), "▁Paris", "th", "▁th"]
    tokenizer = Tokenizer(models.BPE(vocab={w: i for i, w in enumerate(words)}, merges=[("t", "h"), ("▁", "th")], unk_token="<unk>", byte_fallback=True))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="</s>", bos_token="<s>", unk_token="<unk>")


def metaspace():
    words = ["<unk>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), "▁", *map(chr, range(33, 127)), "\n", "\t"]
    tokenizer = Tokenizer(models.BPE(vocab={w: i for i, w in enumerate(words)}, merges=[], unk_token="<unk>", byte_fallback=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Metaspace()])
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="</s>", unk_token="<unk>")


def wordpiece():
    words = ["[UNK]", "[SEP]", "<", ">", "/", "search", "information", "Paris", "##ian", "is", "."]
    tokenizer = Tokenizer(models.WordPiece(vocab={w: i for i, w in enumerate(words)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="[SEP]", unk_token="[UNK]")


def ids_of(tokenizer, text):
    return tokenizer(text, add_special_tokens=False).input_ids


def test_bytes_of_a_byte_level_token_are_exact_even_inside_a_character(tiny):
    ids = ids_of(tiny.tokenizer, HARD)
    pieces = TokenText(tiny.tokenizer).pieces(ids)
    assert pieces == [bytes([byte]) for byte in HARD.encode()]
    assert text_of(pieces) == HARD


def test_merged_tokens_say_all_that_they_hold():
    tokenizer = merged_bpe()
    ids = ids_of(tokenizer, "<search>x</search>\n<information>y</information><answer>")
    pieces = TokenText(tokenizer).pieces(ids)
    assert b"</search>\n" in pieces and b"><" in pieces
    assert b"".join(pieces) == b"<search>x</search>\n<information>y</information><answer>"


def test_a_merged_token_at_the_border_of_information_is_not_trained():
    tokenizer = merged_bpe()
    pieces = TokenText(tokenizer).pieces(ids_of(tokenizer, "<think>a</think><information>y</information><answer>b</answer>"))
    _, trained = label(pieces, [Source.POLICY] * len(pieces), "tokens")
    kept = [piece for piece, t in zip(pieces, trained, strict=True) if t]
    assert b"".join(kept) == b"<think>a</thinkanswer>b</answer>"  # both `><` overlap the block


def test_behind_a_search_whose_last_token_holds_a_line_end_too_the_mask_begins_at_the_next_token():
    tokenizer = merged_bpe()
    pieces = TokenText(tokenizer).pieces(ids_of(tokenizer, "<search>q</search>\n<information>y"))
    _, trained = label(pieces, [Source.POLICY] * len(pieces), "tokens")
    assert b"".join(piece for piece, t in zip(pieces, trained, strict=True) if t) == b"<search>q</search>\n"


@pytest.mark.parametrize("make", [merged_bpe, byte_fallback, metaspace, wordpiece])
def test_pieces_joined_are_the_decoded_text(make):
    tokenizer = make()
    text = "<search> Parisian is . < / information > " * 5 if make is wordpiece else HARD * 3
    ids = ids_of(tokenizer, text)
    pieces = TokenText(tokenizer).pieces(ids)
    assert len(pieces) == len(ids) > 40
    assert text_of(pieces) == tokenizer.decode(ids, skip_special_tokens=True)


@pytest.mark.parametrize("make", [byte_fallback, metaspace])
def test_every_beginning_of_a_sequence_has_the_same_pieces(make):
    tokenizer = make()
    ids = ids_of(tokenizer, "a🎉日 the Paris</search>\n" * 3)
    whole = TokenText(tokenizer).pieces(ids)
    assert all(TokenText(tokenizer).pieces(ids[:end]) == whole[:end] for end in range(len(ids)))


def test_a_character_split_over_tokens_belongs_to_the_token_that_completes_it():
    tokenizer = byte_fallback()
    ids = ids_of(tokenizer, "a🎉b")
    pieces = TokenText(tokenizer).pieces(ids)
    assert pieces[-5:] == [b"", b"", b"", "🎉".encode(), b"b"]


@pytest.mark.parametrize("make", [merged_bpe, byte_fallback])
def test_special_tokens_say_nothing(make):
    tokenizer = make()
    end = tokenizer.eos_token_id
    ids = ids_of(tokenizer, "</sea")
    pieces = TokenText(tokenizer).pieces([*ids, end, *ids, end])
    assert pieces[len(ids)] == pieces[-1] == b""
    assert tokenizer.eos_token not in text_of(pieces)


def test_added_tokens_that_are_not_special_say_their_text():
    tokenizer = merged_bpe()
    tokenizer.add_tokens([AddedToken("<think>", normalized=False), AddedToken("日本", normalized=False)])
    ids = ids_of(tokenizer, "<think>日本x")
    assert TokenText(tokenizer).pieces(ids) == [b"<think>", "日本".encode(), b"x"]


@pytest.mark.parametrize("make", [merged_bpe, byte_fallback])
def test_an_id_that_only_pads_the_embedding_says_nothing(make):
    tokenizer = make()
    ids = ids_of(tokenizer, "ab")
    pieces = TokenText(tokenizer).pieces([*ids, len(tokenizer) + 7, *ids_of(tokenizer, "c")[-1:]])
    assert text_of(pieces).strip() == "abc"


def test_only_render_makes_tokens_from_text():
    """No call of a tokenizer, of `encode` with a tokenizer's arguments, or of its relatives outside render.py; str.encode() is not one."""
    makers = {"encode_plus", "batch_encode_plus", "tokenize", "convert_tokens_to_ids", "apply_chat_template", "encode_batch"}
    folder = Path(ssrl.rollout.__file__).parent
    found = set()
    for path in folder.glob("*.py"):
        for call in (node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)):
            name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
            owner = ast.unparse(call.func.value) if isinstance(call.func, ast.Attribute) else ""
            codec = name == "encode" and "token" not in owner.replace("token.content", "") and all(
                isinstance(argument, ast.Constant) for argument in call.args
            )  # fmt: skip
            if name in makers or "tokenizer" in name or (name == "encode" and not codec):
                found.add((path.name, ast.unparse(call)))
    assert {name for name, _ in found} == {"render.py"}, found
