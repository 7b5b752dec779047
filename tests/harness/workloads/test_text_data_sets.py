"""WikiText, SQuAD and the tokeniser: real formats are read, written ones hold English, answers stay in their place."""

import json
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.core.errors import DataSetError
from harness.workloads.data import wikitext
from harness.workloads.data.squad import CLS, PAD, SEP, SQUAD, VOCABULARY, Question, encode, tokenise
from harness.workloads.data.wikitext import WIKITEXT, WikiTextSamples, read_sections


def write_tokens(tmp_path, text):
    directory = tmp_path / "wikitext-2"
    directory.mkdir()
    (directory / "wiki.train.tokens").write_text(text, encoding="utf-8")
    return directory


def test_real_tokens_are_numbered_by_frequency_and_lines_end_in_a_token_of_their_own(tmp_path):
    write_tokens(tmp_path, " \n = Title = \n \n" + " the cat the dog the end \n" * 9)
    samples = WikiTextSamples(WIKITEXT.find_real(tmp_path))
    # 6 tokens and a line end in each of 9 lines, after ["<eos>", "=", "Title", "=", "<eos>", "<eos>"]
    assert len(samples) == 1
    names = ["the", "<eos>", "cat", "dog", "end", "=", "Title"]
    read = [names[number] for number in samples[0]]
    assert len(read) == 59
    assert " ".join(read[:13]) == "<eos> = Title = <eos> <eos> the cat the dog the end <eos>"


def test_windows_follow_each_other_with_one_token_in_common(tmp_path):
    write_tokens(tmp_path, " ".join(str(number) for number in range(300)))
    samples = WikiTextSamples(tmp_path / "wikitext-2")
    assert len(samples) == 5
    for index in range(4):
        assert samples[index][-1] == samples[index + 1][0]
    assert len({int(number) for index in range(5) for number in samples[index]}) == 58 * 5 + 1


def test_the_rarest_of_too_many_tokens_are_unknown(tmp_path, monkeypatch):
    monkeypatch.setattr(wikitext, "VOCABULARY", 4)
    write_tokens(tmp_path, " a a a b b c d e f \n" * 10)
    numbers = np.concatenate(list(WikiTextSamples(tmp_path / "wikitext-2")))
    assert set(numbers.tolist()) == {0, 1, 2, 3}
    line = numbers[:10].tolist()
    assert line[:5] == [0, 0, 0, 1, 1]
    assert len({*line[6:9]}) == 1, "d, e and f are all <unk>"


@pytest.mark.parametrize("content", [b"", b"too short", b"\xff\xfe\x00"])
def test_a_file_that_is_too_short_for_a_sample_or_no_text_is_named(tmp_path, content):
    directory = write_tokens(tmp_path, "")
    (directory / "wiki.train.tokens").write_bytes(content)
    with pytest.raises(DataSetError, match=r"wiki\.train\.tokens"):
        WikiTextSamples(directory)


def read_words(prepared):
    return prepared.files[0].read_text(encoding="utf-8").split()


@pytest.mark.parametrize("samples", [1, 2000])
def test_written_text_has_as_many_samples_as_asked_for(prepare_samples, samples):
    prepared = prepare_samples(WIKITEXT, samples)
    assert len(WIKITEXT.open(prepared.directory)) == samples


def test_the_default_text_is_real_english_without_repetition_and_more_says_that_it_repeats(prepare_samples):
    default = prepare_samples(WIKITEXT, WIKITEXT.default_samples)
    assert default.source.startswith("packaged: pydoc_data.topics of Python 3.")
    assert "repeated" not in default.source
    assert prepare_samples(WIKITEXT, 2000).source.endswith("repeated in another order")
    words = read_words(default)
    assert words[: 3 * 900] == read_words(prepare_samples(WIKITEXT, 2000))[: 3 * 900]
    assert {"the", "a", "of", "is", ",", "."} <= {word for word, _ in Counter(words).most_common(12)}
    paragraphs = [paragraph for texts in read_sections().values() for paragraph in texts]
    assert len(paragraphs) > 800
    assert not any(">>>" in paragraph or "::=" in paragraph or "\n" in paragraph for paragraph in paragraphs)


def write_questions(tmp_path, questions, context="The cat sat on the mat."):
    directory = tmp_path / "squad"
    directory.mkdir()
    content = {"version": "v2.0", "data": [{"title": "Cats", "paragraphs": [{"context": context, "qas": questions}]}]}
    (directory / "train-v2.0.json").write_text(json.dumps(content))
    return directory


ON = {"id": "1", "question": "Where?", "answers": [{"text": "on the mat", "answer_start": 12}], "is_impossible": False}
WHY = {"id": "2", "question": "Why?", "answers": [], "plausible_answers": [{"text": "cat"}], "is_impossible": True}


def test_real_questions_are_read_with_their_first_answer_or_none(tmp_path):
    write_questions(tmp_path, [ON, WHY])
    samples = SQUAD.open(SQUAD.find_real(tmp_path))
    assert len(samples) == 2
    assert samples[0] == Question("Where?", "The cat sat on the mat.", "on the mat", 12)
    assert samples[1] == Question("Why?", "The cat sat on the mat.", "", 0)


@pytest.mark.parametrize(
    "question",
    [{**ON, "answers": [{"text": "on the mat", "answer_start": 13}]}, {**ON, "answers": []}, {"id": "3"}],
    ids=["the answer stands elsewhere", "no answer", "no question"],
)
def test_a_damaged_file_of_questions_is_named(tmp_path, question):
    directory = write_questions(tmp_path, [question])
    with pytest.raises(DataSetError, match=r"train-v2\.0\.json"):
        SQUAD.open(directory)


def test_written_questions_are_about_real_english_and_a_third_has_no_answer(prepare_samples):
    prepared = prepare_samples(SQUAD, 700)
    samples = SQUAD.open(prepared.directory)  # refuses answers that do not stand where they say
    assert len(samples) == 700
    assert 0.25 < np.mean([not samples[index].answer for index in range(700)]) < 0.42
    few = SQUAD.open(prepare_samples(SQUAD, 30).directory)
    assert [few[index] for index in range(30)] == [samples[index] for index in range(30)]


words = st.text(st.characters(min_codepoint=33, max_codepoint=0x250), min_size=1, max_size=20)
texts = st.lists(words, min_size=1, max_size=60).map(" ".join)


@given(texts)
def test_tokens_cover_every_character_but_spaces_once_and_in_order(text):
    tokens = tokenise(text)
    covered = [position for token in tokens for position in range(token.start, token.end)]
    assert covered == [position for position, character in enumerate(text) if not character.isspace()]
    assert all(999 <= token.number < VOCABULARY for token in tokens)


@given(texts, texts, st.data(), st.integers(16, 160))
def test_the_labels_mark_the_answer_in_what_is_left_of_the_paragraph(question, context, data, length):
    start = data.draw(st.integers(0, len(context) - 1))
    answer = context[start : start + data.draw(st.integers(1, 30))]
    encoding = encode(question, context, answer, start, length)
    assert {len(encoding[name]) for name in ("input_ids", "token_type_ids", "attention_mask")} == {length}
    if not answer.strip():
        assert encoding["start_positions"] == encoding["end_positions"] == 0
        return
    first, last = encoding["start_positions"], encoding["end_positions"]
    assert 0 < first <= last < length
    assert set(encoding["token_type_ids"][first : last + 1]) == {1}
    assert set(encoding["attention_mask"][first : last + 1]) == {1}
    touched = [token for token in tokenise(context) if token.start < start + len(answer) and token.end > start]
    marked = encoding["input_ids"][first : last + 1]
    room = length - encoding["input_ids"].index(SEP) - 2
    assert marked == [token.number for token in touched[:room]], "all of it, or as much as there is room for"


def test_words_are_numbered_whatever_their_case_and_an_encoding_has_the_form_that_bert_reads():
    first, second, other = tokenise("Cat cat dog")
    assert first.number == second.number != other.number
    encoding = encode("Where is it?", "On the mat.", "the mat", 3, 16)
    ids = encoding["input_ids"]
    assert (ids[0], ids[5], ids[10]) == (CLS, SEP, SEP)
    assert ids[11:] == [PAD] * 5
    assert encoding["token_type_ids"] == [0] * 6 + [1] * 5 + [0] * 5
    assert encoding["attention_mask"] == [1] * 11 + [0] * 5
    assert (encoding["start_positions"], encoding["end_positions"]) == (7, 8)
    assert encode("Where is it?", "On the mat.", "", 0, 16)["end_positions"] == 0
