"""From a launch file and what is given for its placeholders to a command line and an environment. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath

from benchlab.errors import UsageError
from benchlab.launch.launch_file import PLACEHOLDER, LaunchFile


@dataclass(frozen=True, slots=True)
class Command:
    """argv, the environment variables that the launch file states, and the values that were put in."""

    argv: tuple[str, ...]
    env: Mapping[str, str]
    values: Mapping[str, str]


def default_served_name(model: str) -> str:
    """The name a model is served under when none is given: a file's without its ending, else the model's own."""
    if model.endswith(".gguf") or model.startswith((".", "/", "~")):
        return PurePath(model).name.removesuffix(".gguf")
    return model


def _filled(word: str, values: Mapping[str, str], where: str, hints: Mapping[str, str]) -> str:
    missing = [name for name in PLACEHOLDER.findall(word) if name not in values]
    if missing:
        name = missing[0]
        hint = hints.get(name, f"give {name}, or name it under [defaults] of a launch file")
        raise UsageError(f"no {name.replace('_', ' ')} is given", where=where, hint=hint)
    return PLACEHOLDER.sub(lambda found: values[found.group(1)], word)


_HINTS = {"model": "give -m/--model, or model = ... under [defaults] of a launch file"}


def build_command(file: LaunchFile, given: Mapping[str, str | int | None], args: Sequence[str] = ()) -> Command:
    """Fill the file's templates. given outranks the file's `[defaults]`; None means not given.

    `{args}` becomes the optional arguments (`[start.when]`) whose value is given, then the caller's own. An
    environment entry whose value is not given is left out. Raises UsageError for a value that argv needs.
    """
    values = dict(file.values)
    values.update({key: str(value) for key, value in given.items() if value is not None})
    stated = set(values)
    if "served_name" not in values and "model" in values:
        values["served_name"] = default_served_name(values["model"])
    where = f"{file.path}: [start] argv"
    optional = [
        _filled(word, values, where, _HINTS) for name, words in file.when.items() if name in stated for word in words
    ]
    argv: list[str] = []
    for word in file.argv:
        if word == "{args}":
            argv += [*optional, *args]
        else:
            argv.append(_filled(word, values, where, _HINTS))
    if "{args}" not in file.argv:
        argv += [*optional, *args]
    env = {
        key: _filled(text, values, where, {})
        for key, text in file.env.items()
        if all(name in values for name in PLACEHOLDER.findall(text))
    }
    return Command(tuple(argv), env, values)


def fill(words: Sequence[str], values: Mapping[str, str], where: str) -> list[str]:
    """Fill a list of words (a version command). Raises UsageError for a value that is not given."""
    return [_filled(word, values, where, _HINTS) for word in words]
