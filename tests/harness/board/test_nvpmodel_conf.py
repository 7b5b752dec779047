"""Conf files of nvpmodel: any that a board carries is read, what is written reads back the same, faults are named."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.board.nvpmodel_conf import (
    Argument,
    Conf,
    OtherSection,
    Param,
    PowerModel,
    Setting,
    parse,
    read_conf,
    write,
)
from harness.core.errors import InvalidValueError, UnknownNameError
from tests.harness.board.nvpmodel_samples import SAMPLES
from tests.messages import says

PRINTABLE = "".join(chr(code) for code in range(33, 127) if chr(code) not in "<=>")

words = st.text(PRINTABLE, min_size=1, max_size=12).filter(lambda word: word[0] != "#")
numbers = st.integers(-1, 2**63 - 1).map(str)
keys = st.text("ABCXYZ019_", min_size=1, max_size=6)
attributes = st.lists(st.tuples(keys, words), max_size=2).map(tuple)


@st.composite
def params(draw, name):
    """A PARAM of any type; only HWMON has a third word in its lines."""
    kind = draw(st.sampled_from(["FILE", "CLOCK", "HWMON"]) | words)
    nodes = st.just("") | words if kind == "HWMON" else st.just("")
    names = draw(st.lists(words, max_size=3, unique=True))
    arguments = tuple(Argument(argument, draw(words), draw(nodes)) for argument in names)
    return Param(kind, name, arguments, draw(attributes))


@st.composite
def confs(draw):
    """A conf that can be written: names and IDs once, settings of declared arguments, the default one of the modes."""
    found = [draw(params(name)) for name in draw(st.lists(words, max_size=3, unique=True))]
    declared = [
        st.builds(Setting, st.just(param.name), st.just(argument.name), numbers if param.type == "CLOCK" else words)
        for param in found
        for argument in param.arguments
    ]
    lines = st.lists(st.one_of(declared), max_size=4).map(tuple) if declared else st.just(())
    ids = draw(st.lists(st.integers(0, 9999), min_size=1, max_size=3, unique=True))
    names = draw(st.lists(words, min_size=len(ids), max_size=len(ids), unique=True))
    models = tuple(PowerModel(*pair, draw(lines), draw(attributes)) for pair in zip(ids, names))
    rows = st.lists(st.lists(words, min_size=1, max_size=3).map(tuple), max_size=2).map(tuple)
    kinds = keys.filter(lambda kind: kind not in ("PARAM", "POWER_MODEL", "PM_CONFIG"))
    others = draw(st.lists(st.builds(OtherSection, kinds, attributes, rows), max_size=2))
    return Conf(tuple(found), models, draw(st.sampled_from(ids)), draw(attributes), tuple(others))


@given(confs())
def test_what_is_written_reads_back_the_same(conf):
    parsed = parse(write(conf, "made by a test\n# < POWER_MODEL ID=x >"))
    assert parsed.conf == conf


@settings(max_examples=min(40, settings().max_examples))
@given(confs(), st.data())
def test_blanks_comments_and_line_ends_do_not_matter(conf, data):
    blanks = st.sampled_from([" ", "  ", "\t", " \t "])
    lines = []
    for line in write(conf).splitlines():
        if line.startswith("<"):
            line = line.replace("< ", data.draw(st.sampled_from(["<", "<  "])), 1)
            line = line[:-2] + data.draw(st.sampled_from([">", "  >"]))
        line = data.draw(st.sampled_from(["", " ", "\t"])) + line.replace(" ", data.draw(blanks))
        lines += [*data.draw(st.lists(st.sampled_from(["", "# x", "  #< PARAM", "\t"]), max_size=1)), line]
        lines[-1] += data.draw(st.sampled_from(["", " ", " # remark", "\t#"]))
    end = data.draw(st.sampled_from(["\n", "\r\n", "\r"]))
    assert parse(data.draw(st.sampled_from(["", "\ufeff"])) + end.join(lines)).conf == conf


def test_what_is_written_has_the_blanks_that_nvpmodel_wants():
    lines = ["<param TYPE = CLOCK NAME= EMC>", "MAX_FREQ\t/cap", "<POWER_MODEL NAME=A ID=4>", "EMC   MAX_FREQ 0"]
    text = "\n".join([*lines, "<PM_CONFIG DEFAULT=4>"])
    assert write(parse(text).conf, "for a run") == (
        "# for a run\n\n< PARAM TYPE=CLOCK NAME=EMC >\nMAX_FREQ /cap\n\n"
        "< POWER_MODEL ID=4 NAME=A >\nEMC MAX_FREQ 0\n\n< PM_CONFIG DEFAULT=4 >\n"
    )


def test_types_sections_and_attributes_that_are_not_known_are_kept_and_said():
    text = """\
< PARAM TYPE=VOLTAGE NAME=CORE RAIL=1 >
LEVEL /sys/level
< POWER_MODEL ID=0 NAME=A COLOUR=red >
CORE LEVEL 7
< PM_CONFIG DEFAULT=0 FALLBACK=0 >
< CHARGE_CONFIG LIMIT=80 >
some words of it
"""
    parsed = parse(text)
    assert parsed.conf == Conf(
        (Param("VOLTAGE", "CORE", (Argument("LEVEL", "/sys/level"),), (("RAIL", "1"),)),),
        (PowerModel(0, "A", (Setting("CORE", "LEVEL", "7"),), (("COLOUR", "red"),)),),
        0,
        (("FALLBACK", "0"),),
        (OtherSection("CHARGE_CONFIG", (("LIMIT", "80"),), (("some", "words", "of", "it"),)),),
    )
    (line_of_type, of_type), (line_of_section, of_section) = parsed.notes
    assert (line_of_type, line_of_section) == (1, 6)
    assert says(of_type, "PARAM", "VOLTAGE", "kept")
    assert says(of_section, "section CHARGE_CONFIG", "kept")
    assert parse(write(parsed.conf)).conf == parsed.conf


MODEL = "< POWER_MODEL ID=0 NAME=A >"
END = "< PM_CONFIG DEFAULT=0 >"


@pytest.mark.parametrize(
    ("lines", "number", "note"),
    [
        (["< PARAM TYPE=FILE NAME=P >", "ARG /a b c", MODEL, END], 2, "'b c' is not read"),
        (["< PARAM TYPE=FILE NAME=P >", "ARG /a", MODEL, "P ARG 1 extra", END], 4, "'extra' is not read"),
        ([f"{MODEL} trailing", END], 1, "'trailing' is not read"),
        (["< POWER_MODEL ID=0 NAME=A and more >", END], 1, "'and more' is not read"),
        (["< POWER_MODEL ID=0 NAME=A", END], 1, "'< POWER_MODEL ID=0 NAME=A' has no closing '>'"),
        ([MODEL, "GPU MAX_FREQ 1", "GPU MAX_FREQ 2", END], 2, "no PARAM section declares GPU MAX_FREQ"),
        ([MODEL, END, "left over"], 3, "'left over' is not read"),
        ([MODEL, END, END], 3, "this PM_CONFIG replaces an earlier one"),
        ([MODEL], 0, "the mandatory < PM_CONFIG DEFAULT=n > is missing"),
        ([MODEL, "< PM_CONFIG DEFAULT=3 >"], 0, "the default mode 3 is none of the modes"),
        ([MODEL, "< POWER_MODEL ID=0 NAME=B >", END], 0, "power mode ID 0 is defined more than once"),
        ([MODEL, "< POWER_MODEL ID=1 NAME=A >", END], 0, "power mode A is defined more than once"),
    ],
)
def test_what_is_not_as_expected_is_said_with_its_line(lines, number, note):
    assert parse("\n".join(lines)).notes == ((number, note),)


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["CORE_0 /sys"], r"f\.conf, line 1: 'CORE_0 /sys' is not understood; expected: a section"),
        (["", "< PARAM NAME=P >"], r"line 2: '< PARAM NAME=P >' is not understood; expected: < PARAM TYPE=t NAME=s >"),
        (["< POWER_MODEL NAME=A >"], r"line 1: .*expected: < POWER_MODEL ID=n NAME=s >"),
        (["< POWER_MODEL ID=-1 NAME=A >"], r"line 1: .*expected: a whole number instead of '-1'"),
        (["< POWER_MODEL ID=9999999999 NAME=A >"], r"line 1: .*expected: a whole number instead of '9999999999'"),
        ([MODEL, "< PM_CONFIG DEFAULT=A >"], r"line 2: .*expected: a whole number instead of 'A'"),
        ([MODEL, "< PM_CONFIG >"], r"line 2: .*expected: < PM_CONFIG DEFAULT=n >"),
        (["< PARAM TYPE=FILE NAME=P >", "ALONE"], r"line 2: 'ALONE' is not understood; expected: ARGUMENT PATH"),
        (
            ["< PARAM TYPE=CLOCK NAME=GPU >", "MAX_FREQ /a", MODEL, "GPU MAX_FREQ fast"],
            r"line 4: 'GPU MAX_FREQ fast' is not understood; expected: a whole number, as for every CLOCK",
        ),
        # Files of L4T before r28 name paths instead of parameters.
        ([MODEL, "/sys/x 1"], r"line 2: '/sys/x 1' is not understood; expected: PARAM ARGUMENT VALUE"),
        (["< /POWER_MODEL >"], r"line 1: .*expected: < SECTION KEY=VALUE \.\.\. >"),
        ([], r"f\.conf has no < POWER_MODEL ID=n NAME=s > section; is it a conf file of nvpmodel\?"),
    ],
)
def test_what_has_no_meaning_is_an_error_that_names_the_line_and_what_was_expected(lines, message):
    with pytest.raises(InvalidValueError, match=message):
        parse("\n".join(lines), "f.conf")


pieces = st.sampled_from(
    ["<", ">", "PARAM", "POWER_MODEL", "PM_CONFIG", "ID=0", "NAME=A", "TYPE=", "=", "#", "1", "\0"]
)


@given(st.text() | st.lists(st.lists(pieces).map(" ".join)).map("\n".join))
def test_any_text_is_read_or_refused(text):
    try:
        conf = parse(text).conf
    except InvalidValueError:
        return
    assert conf.models


def test_a_file_is_read_whatever_the_encoding_of_its_comments(tmp_path):
    file = tmp_path / "nvpmodel.conf"
    file.write_bytes(b"# caf\xe9\n< POWER_MODEL ID=0 NAME=A >\n< PM_CONFIG DEFAULT=0 >\n")
    assert read_conf(file).conf.model("A").id == 0


def test_a_file_that_cannot_be_read_is_named(tmp_path):
    with pytest.raises(InvalidValueError, match=r"none\.conf .*No such file"):
        read_conf(tmp_path / "none.conf")


def test_an_unknown_mode_is_refused_with_those_that_there_are():
    conf = parse(SAMPLES["nano"][0]).conf
    with pytest.raises(UnknownNameError, match=r"'10W' .*available: MAXN, 5W"):
        conf.model("10W")


A = PowerModel(0, "A")
P = Param("FILE", "P", (Argument("ARG", "/a"),))


@pytest.mark.parametrize(
    ("conf", "problem"),
    [
        (Conf(models=(), default=0), "the default mode 0 is none of the modes"),
        (Conf(models=(A,)), "PM_CONFIG DEFAULT=n > is missing"),
        (Conf(models=(A, PowerModel(0, "B")), default=0), "power mode ID 0 is defined more than once"),
        (Conf(models=(A, PowerModel(1, "A")), default=0), "power mode A is defined more than once"),
        (Conf((P, P), (A,), 0), "PARAM P is defined more than once"),
        (
            Conf((Param("FILE", "P", (Argument("X", "/a"), Argument("X", "/b"))),), (A,), 0),
            "argument of P X is defined",
        ),
        (Conf((P,), (PowerModel(0, "A", (Setting("P", "OTHER", "1"),)),), 0), "sets P OTHER, which no PARAM declares"),
        (
            Conf((Param("CLOCK", "P", P.arguments),), (PowerModel(0, "A", (Setting("P", "ARG", "x"),)),), 0),
            "'P ARG x' is not understood; expected: a whole number, as for every CLOCK",
        ),
        (Conf((), (PowerModel(-1, "A"),), -1), "a whole number instead of '-1'"),
        (Conf((), (PowerModel(0, "two words"),), 0), "'two words' is not one word"),
        (Conf((), (PowerModel(0, "#A"),), 0), "'#A' is not one word"),
        (Conf((), (PowerModel(0, "café"),), 0), "'café' is not one word"),
        (Conf((), (A,), 0, (("fallback", "1"),)), "'fallback' is no key"),
        (Conf((Param("FILE", "P", (Argument("X", "/a", "node"),)),), (A,), 0), "it would not be read back the same"),
        (Conf((), (A,), 0, (), (OtherSection("PARAM"),)), "'< PARAM >' is not understood"),
        (Conf((), (A,), 0, (), (OtherSection("FAN", (), ((),)),)), "it would not be read back the same"),
    ],
)
def test_what_would_not_read_back_the_same_is_not_written(conf, problem):
    with pytest.raises(InvalidValueError, match="this nvpmodel conf cannot be written") as refused:
        write(conf)
    assert problem in str(refused.value)
