"""nvpmodel's conf files: what one holds, read leniently, written strictly.

    < PARAM TYPE=CLOCK NAME=GPU >            something that can be set: its arguments and the kernel files behind them
    MAX_FREQ /sys/devices/.../max_freq
    < POWER_MODEL ID=2 NAME=MODE_30W >       a mode: its settings, made in the order of the lines
    GPU MAX_FREQ 612000000
    < PM_CONFIG DEFAULT=2 >                  the mode of a board that was never set to one

`nvpmodel_modes` knows what the settings mean.
"""

from __future__ import annotations

import collections
import functools
import itertools
import re
from pathlib import Path
from typing import Any, Iterator, List, NamedTuple, Optional, Sequence, Tuple

from harness.core.errors import InvalidValueError, UnknownNameError
from harness.core.terminal import available_hint

CLOCK = "CLOCK"  # the type of PARAM whose values are whole numbers; -1 is no limit
HWMON = "HWMON"  # the type of PARAM whose lines have a third word: the file below the directory
Attributes = Tuple[Tuple[str, str], ...]  # KEY=VALUE in a section's head, but for those that every such section has


class Argument(NamedTuple):
    """One thing of a PARAM that can be set, and the kernel file behind it (`node`: below `path`, for HWMON)."""

    name: str
    path: str
    node: str = ""


class Setting(NamedTuple):
    param: str
    argument: str
    value: str


class Param(NamedTuple):
    type: str  # FILE (values are text), CLOCK (whole numbers), HWMON, or an unrecognised one
    name: str
    arguments: Tuple[Argument, ...] = ()
    attributes: Attributes = ()


class PowerModel(NamedTuple):
    id: int
    name: str
    settings: Tuple[Setting, ...] = ()  # in the order in which they are made
    attributes: Attributes = ()

    def value(self, param: str, argument: str) -> Optional[str]:
        """What the mode sets an argument to in the end; None if it leaves it alone."""
        values = [setting.value for setting in self.settings if setting[:2] == (param, argument)]
        return values[-1] if values else None


class OtherSection(NamedTuple):
    """A section of a kind that nvpmodel has beside the three (FAN_CONFIG, ...), kept as it is."""

    kind: str
    attributes: Attributes = ()
    lines: Tuple[Tuple[str, ...], ...] = ()


class Conf(NamedTuple):
    params: Tuple[Param, ...] = ()
    models: Tuple[PowerModel, ...] = ()
    default: Optional[int] = None  # where the mandatory PM_CONFIG is missing
    default_attributes: Attributes = ()
    others: Tuple[OtherSection, ...] = ()
    # the cores of the machine, of which a conf may declare more; None off-board
    cores: Optional[Tuple[int, ...]] = None

    def param(self, name: str) -> Optional[Param]:
        return next((param for param in self.params if param.name == name), None)

    def model(self, name: str) -> PowerModel:
        named = [model for model in self.models if model.name == name]
        if not named:
            hint = available_hint(name, [model.name for model in self.models])
            raise UnknownNameError(f"there is no power mode {name!r} in this conf", hint)
        if len(named) > 1:
            what = f"power mode {name!r} is defined {len(named)} times in this conf"
            raise InvalidValueError(what, "give each a name of its own")
        return named[0]

    def declares(self, setting: Setting) -> bool:
        param = self.param(setting.param)
        return param is not None and any(argument.name == setting.argument for argument in param.arguments)

    def flaws(self) -> Iterator[str]:
        unique: List[Tuple[str, Sequence[object]]] = [
            ("PARAM", [param.name for param in self.params]),
            ("power mode", [model.name for model in self.models]),
            ("power mode ID", [model.id for model in self.models]),
        ]
        for param in self.params:
            unique.append((f"argument of {param.name}", [argument.name for argument in param.arguments]))
        for what, names in unique:
            for name, times in collections.Counter(names).items():
                if times > 1:
                    yield f"{what} {name} is defined more than once"
        if self.default is None:
            yield "the mandatory < PM_CONFIG DEFAULT=n > is missing"
        elif all(model.id != self.default for model in self.models):
            yield f"the default mode {self.default} is none of the modes"


class Note(NamedTuple):
    """Something in a file that nvpmodel may take otherwise than was understood here; line 0 is the whole file."""

    line: int
    text: str


class Parsed(NamedTuple):
    conf: Conf
    notes: Tuple[Note, ...]


def read_conf(path: Path) -> Parsed:
    """Read a file; InvalidValueError if it cannot be read or understood; names the line and what was expected."""
    try:
        text = path.read_text(encoding="utf-8", errors="replace")  # comments may be in any encoding, all else is ASCII
    except OSError as error:
        raise InvalidValueError(f"the nvpmodel conf {path} cannot be read: {error.strerror}") from error
    return parse(text, str(path))


@functools.lru_cache(maxsize=16)  # a run asks for the same few files again and again: with each mode, many times
def parse(text: str, source: str = "nvpmodel.conf") -> Parsed:
    """Understand a file's text, as far as that is possible without guessing; messages call it `source`."""
    reader = _Reader(source)
    lines = text.lstrip("\ufeff").replace("\r\n", "\n").replace("\r", "\n").split("\n")
    for number, line in enumerate(lines, start=1):
        content = re.split(r"(?:^|\s)#", line, maxsplit=1)[0].strip()
        if content.startswith("<"):
            reader.head(number, content)
        elif content:
            reader.line(number, content.split())
    return reader.finish()


# what the head of a section says first; n is a whole number
_KEYS = {"PARAM": {"TYPE": "t", "NAME": "s"}, "POWER_MODEL": {"ID": "n", "NAME": "s"}, "PM_CONFIG": {"DEFAULT": "n"}}
_ROWS = {"POWER_MODEL": (3, 3, "PARAM ARGUMENT VALUE"), "PM_CONFIG": (0, 0, "")}  # least and most words, their form
_HEAD = re.compile(r"<\s*(?P<kind>\w+)(?P<attributes>[^<>]*)(?P<close>>?)(?P<rest>.*)")
_ATTRIBUTE = re.compile(r"(\w+)\s*=\s*([^\s=]+)")


class _Section(NamedTuple):
    kind: str
    own: List[Any]  # by `_KEYS`
    attributes: Attributes
    rows: List[Tuple[int, List[str]]]  # the words of each line, and its number


class _Reader:
    def __init__(self, source: str) -> None:
        self._source = source
        self._notes: List[Note] = []
        self._sections: List[_Section] = []

    def head(self, number: int, text: str) -> None:
        match = _HEAD.fullmatch(text)
        if match is None:
            raise self._error(number, text, "< SECTION KEY=VALUE ... >")
        if not match["close"]:
            self._note(number, f"{text!r} has no closing '>'")
        self._unread(number, [*_ATTRIBUTE.sub("", match["attributes"]).split(), *match["rest"].split()])
        attributes = [(key.upper(), value) for key, value in _ATTRIBUTE.findall(match["attributes"])]
        kind, own = match["kind"].upper(), []
        keys = _KEYS.get(kind, {})
        for key, form in keys.items():
            attribute = next((pair for pair in attributes if pair[0] == key), None)
            if attribute is None:
                raise self._error(number, text, f"< {kind} {' '.join(map('='.join, keys.items()))} >")
            attributes.remove(attribute)
            if form == "n" and not re.fullmatch(r"\d{1,9}", attribute[1], re.ASCII):
                raise self._error(number, text, f"a whole number instead of {attribute[1]!r}")
            own.append(int(attribute[1]) if form == "n" else attribute[1])
        if kind == "PARAM" and own[0] not in ("FILE", CLOCK, HWMON):
            self._note(number, f"PARAM type {own[0]} is not recognised; kept as it is")
        elif kind == "PM_CONFIG" and any(section.kind == kind for section in self._sections):
            self._note(number, "this PM_CONFIG replaces an earlier one")
        elif kind not in (*_KEYS, "FAN_CONFIG"):  # L4T r32
            self._note(number, f"section {kind} is not recognised; kept as it is")
        self._sections.append(_Section(kind, own, tuple(attributes), []))

    def line(self, number: int, words: List[str]) -> None:
        if not self._sections:
            raise self._error(number, " ".join(words), "a section, < PARAM ... > or < POWER_MODEL ... >, before it")
        section = self._sections[-1]
        least, most, form = _ROWS.get(section.kind, (0, len(words), ""))
        if section.kind == "PARAM":
            least, most, form = 2, 3 if section.own[0] == HWMON else 2, "ARGUMENT PATH"
        if len(words) < least:
            raise self._error(number, " ".join(words), form)
        self._unread(number, words[most:])
        section.rows.append((number, words[:most]))

    def finish(self) -> Parsed:
        params, models, others, settings = [], [], [], []
        default: Optional[int] = None
        default_attributes: Attributes = ()
        for kind, own, attributes, rows in self._sections:
            if kind == "PARAM":
                param_type, name = own
                params.append(Param(param_type, name, tuple(Argument(*words) for _, words in rows), attributes))
            elif kind == "POWER_MODEL":
                settings += [(number, Setting(*words)) for number, words in rows]
                mode_id, name = own
                models.append(PowerModel(mode_id, name, tuple(Setting(*words) for _, words in rows), attributes))
            elif kind == "PM_CONFIG":
                [default], default_attributes = own, attributes
            else:
                others.append(OtherSection(kind, attributes, tuple(tuple(words) for _, words in rows)))
        if not models:
            what = f"{self._source} has no < POWER_MODEL ID=n NAME=s > section"
            raise InvalidValueError(what, "is it a conf file of nvpmodel?")
        conf = Conf(tuple(params), tuple(models), default, default_attributes, tuple(others))
        undeclared = set()
        for number, setting in settings:
            param = conf.param(setting.param)
            if param and param.type == CLOCK and not re.fullmatch(r"-?\d{1,20}", setting.value, re.ASCII):
                raise self._error(number, " ".join(setting), "a whole number, as for every CLOCK")
            if not conf.declares(setting) and setting[:2] not in undeclared:
                undeclared.add(setting[:2])
                self._note(number, f"no PARAM section declares {setting.param} {setting.argument}")
        self._notes += [Note(0, flaw) for flaw in conf.flaws()]
        return Parsed(conf, tuple(sorted(self._notes, key=lambda note: note.line)))

    def _unread(self, number: int, words: List[str]) -> None:
        if words:
            self._note(number, f"{' '.join(words)!r} is not read")

    def _note(self, number: int, text: str) -> None:
        self._notes.append(Note(number, text))

    def _error(self, number: int, text: str, expected: str) -> InvalidValueError:
        return InvalidValueError(f"{self._source}, line {number}: {text!r} is not understood", f"expected: {expected}")


def write(conf: Conf, comment: str = "") -> str:
    """The file's text; InvalidValueError if it would not be read back to the same, or nvpmodel would refuse it."""
    sections: List[OtherSection] = []
    for param in conf.params:
        head = (("TYPE", param.type), ("NAME", param.name), *param.attributes)
        sections.append(OtherSection("PARAM", head, tuple(tuple(filter(None, words)) for words in param.arguments)))
    for model in conf.models:
        head = (("ID", str(model.id)), ("NAME", model.name), *model.attributes)
        sections.append(OtherSection("POWER_MODEL", head, model.settings))
    sections.append(OtherSection("PM_CONFIG", (("DEFAULT", str(conf.default)), *conf.default_attributes)))
    texts = ["\n".join(f"# {line}".rstrip() for line in comment.splitlines())] if comment else []
    for kind, attributes, lines in [*sections, *conf.others]:
        for word in itertools.chain((value for _, value in attributes), *lines):
            if not _WORD.fullmatch(word):
                form = "one word of printable ASCII without < = > and without # at its start"
                raise _unwritable(f"{word!r} is not {form}")
        for key in [kind, *(key for key, _ in attributes)]:
            if not _KEY.fullmatch(key):
                raise _unwritable(f"{key!r} is no key: expected capital letters, digits and underscores")
        first_line = " ".join(["<", kind, *(f"{key}={value}" for key, value in attributes), ">"])
        texts.append("\n".join([first_line, *map(" ".join, lines)]))
    text = "\n\n".join(texts) + "\n"
    for flaw in conf.flaws():
        raise _unwritable(flaw)
    for model in conf.models:
        for setting in model.settings:
            if not conf.declares(setting):
                raise _unwritable(f"power mode {model.name} sets {' '.join(setting[:2])}, which no PARAM declares")
    try:
        again = parse(text, "it").conf
    except InvalidValueError as error:
        raise _unwritable(str(error)) from error
    if again._replace(cores=conf.cores) != conf:
        raise _unwritable("it would not be read back the same")
    return text


_KEY = re.compile(r"[A-Z0-9_]+")
_WORD = re.compile(r"[!\"$-;?-~][!-;?-~]*")  # printable, no blank, none of <=>, and no comment begins with it


def _unwritable(problem: str) -> InvalidValueError:
    return InvalidValueError(f"this nvpmodel conf cannot be written: {problem}")
