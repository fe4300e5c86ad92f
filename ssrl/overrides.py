"""What a person typed, made into what Hydra accepts, and the recipe that follows from it.

Four spellings are made to work: a `+` before a group or key that is there anyway, a free text without quotes, a path that Hydra's grammar
cannot read, and a set of questions of one's own (`data.train.mine.path=…`), for which Hydra wants the entry to exist first.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Mapping, Sequence

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException

from ssrl.errors import UserError
from ssrl.schema import generic, keys

OVERRIDE = re.compile(r"(?P<plus>\+{0,2})(?P<key>[^+~=\s][^=]*)=(?P<value>.*)", re.DOTALL)
FREE_TEXT = ("question",)  # always taken literally: commas and apostrophes mean nothing to Hydra here
PUBLISHED = "ssrl"
PUBLISHED_WITH = {"fullreal": "search_r1", "semireal": "zerosearch"}
QUICKSTARTS = {"none": "quickstart_none", "fullsim": "quickstart"}  # the form of the default recipe for an engine
SEARCHING = "quickstart_search"  # its form for an engine that answers searches


def rewrite(words: Sequence[str], groups: Collection[str]) -> list[str]:
    """Overrides in Hydra's spelling.

    Args:
        words: as typed, one override each.
        groups: the groups of the defaults list, which need no `+`.
    """
    parser = OverridesParser.create()
    done: list[str] = []
    for word in words:
        match = OVERRIDE.fullmatch(word)
        if match is None:
            done.append(word)
            continue
        key, value = match["key"], match["value"]
        known = generic(key)
        if known and "*" in known and _entry(key, known) not in done:
            done.append(_entry(key, known))
        if value.startswith("{"):
            word = f"++{key}={value}"  # merged into what is there, new entries included
        elif known or key in groups:
            word = f"{key}={value}"
        done.append(_quoted(word, key, value, parser) if _is_text(known) else word)
    return done


def _entry(key: str, known: str) -> str:
    """The override that makes sure that a dictionary has the entry which a key goes through; it changes nothing where it has."""
    depth = known.split(".").index("*")
    parts = key.split(".")
    return f"++{'.'.join(parts[:depth])}={{{parts[depth]}: {{}}}}"


def _is_text(known: str | None) -> bool:
    return known in keys() and not keys()[known].options and keys()[known].type in (str, str | None)


def _quoted(word: str, key: str, value: str, parser: OverridesParser) -> str:
    if re.fullmatch(r"""(['"]).*\1|null|""", value, re.DOTALL):
        return word
    if key not in FREE_TEXT:
        try:
            parser.parse_override(word)
            return word
        except HydraException:
            pass
    escaped = re.sub(r"(\\*)'", r"\1\1\\'", value)
    escaped = re.sub(r"(\\+)$", r"\1\1", escaped)
    return f"{word.removesuffix(value)}'{escaped}'"


def values_of(words: Sequence[str], name: str) -> list[str]:
    """The values that a key or group was given, those of a sweep one by one."""
    matches = (OVERRIDE.fullmatch(word) for word in words)
    return [part for match in matches if match and match["key"] == name for part in match["value"].split(",")]


def key_of(word: str) -> str:
    """The key or group that an override is about; empty where it gives no value."""
    match = OVERRIDE.fullmatch(word)
    return match["key"] if match else ""


def without(words: Sequence[str], names: Collection[str]) -> list[str]:
    """The overrides that are not about one of these keys or groups."""
    return [word for word in words if key_of(word) not in names]


def command(words: Sequence[str]) -> str:
    """What to type to run these overrides."""
    return shlex.join(["python", "-m", "ssrl", *words])


def recipe(words: Sequence[str], defaults: Mapping[str, str]) -> tuple[list[str], str]:
    """Overrides that choose a recipe where the default one would be inherited in silence, and why; both empty where it fits.

    The default experiment is made for the default model and data, and for a policy that writes the information itself. Who chooses
    another model or other training data, and names no experiment, gets the published recipe on them; who chooses another engine gets
    the default recipe's form for it. Everything else stays what the defaults list says. A checkpoint brings its own, and so does a table.

    Args:
        words: overrides in Hydra's spelling.
        defaults: choice of each group of the defaults list.

    Raises:
        UserError: engines are swept over that have no recipe in common.
    """
    typed = {match["key"]: match["value"] for match in map(OVERRIDE.fullmatch, words) if match}
    if typed.keys() & {"experiment", "ckpt", "table"} or "~experiment" in words:
        return [], ""
    task, engines = values_of(words, "task") or ["train"], values_of(words, "engine")
    for key, value in typed.items():
        if _chooses_another(key, value, defaults) and ("train" in task or key.startswith("model")):
            published = PUBLISHED_WITH.get(engines[0], PUBLISHED) if len(engines) == 1 else PUBLISHED
            kept = [f"{group}={defaults[group]}" for group in ("model", "data") if typed.get(group, "{").startswith("{")]
            return [f"experiment={published}", *kept], (
                f"the recipe is the published one (experiment={published}), because experiment={defaults['experiment']} is not made for "
                f"{key}={value}; name an experiment to choose"
            )
    if "none" in engines and len(set(engines)) > 1:
        raise UserError(
            f"engine={','.join(engines)} cannot share a recipe: engine=none needs a prompt without searches and the others one with them; "
            "sweep it apart, or name an experiment and prompts"
        )
    fitting = {QUICKSTARTS.get(engine, SEARCHING) for engine in engines} - {defaults["experiment"]}
    if not fitting or task == ["serve"]:
        return [], ""
    chosen = SEARCHING if SEARCHING in fitting else fitting.pop()
    return [f"experiment={chosen}"], f"the recipe is experiment={chosen}, made for engine={','.join(engines)}; name an experiment to choose"


def _chooses_another(key: str, value: str, defaults: Mapping[str, str]) -> bool:
    """Whether an override puts another model or other training data in place of the default ones."""
    if value.startswith("{"):
        return key.split(".")[0] in ("model", "data") and "path" in value
    if key in ("model", "data"):
        return any(choice != defaults[key] for choice in value.split(","))
    return key == "model.path" or generic(key) == "data.train.*.path"
