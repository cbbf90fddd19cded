from __future__ import annotations

from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, models

from schemas.errors import UsageError
from trainer.model.config import ModelConfig
from trainer.model.pretraining import BertForPretraining
from trainer.prediction import _truncated_lengths, _windows, fill_mask, next_sentence_probability

NUM_POSITIONS = 16


@pytest.fixture(scope="module")
def tokenizer(tiny_tokenizer_path: Path) -> Tokenizer:
    return Tokenizer.from_file(str(tiny_tokenizer_path / "tokenizer.json"))


@pytest.fixture(scope="module")
def model(tokenizer: Tokenizer) -> BertForPretraining:
    """Weights large enough that every neighbour and every position matters."""
    torch.set_num_threads(1)
    config = ModelConfig(
        vocab_size=tokenizer.get_vocab_size(),
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=NUM_POSITIONS,
        initializer_range=0.3,
    )
    return BertForPretraining(config, seed=1)


def always(model: BertForPretraining, tokenizer: Tokenizer, likeliest: list[str]) -> BertForPretraining:
    """A model that gives these tokens, in this order, whatever it reads."""
    rigged = BertForPretraining(model.config)
    with torch.no_grad():
        for parameter in rigged.parameters():
            parameter.zero_()
        for rank, token in enumerate(likeliest):
            rigged.masked_lm_head.bias[tokenizer.token_to_id(token)] = 10.0 - rank
    return rigged


@torch.no_grad()
def probabilities_at(
    model: BertForPretraining, tokenizer: Tokenizer, tokens: str, position: int
) -> torch.Tensor:
    ids = torch.tensor([[tokenizer.token_to_id(token) for token in tokens.split()]])
    hidden = model.eval().encode(ids, torch.zeros_like(ids), torch.ones_like(ids, dtype=torch.bool))
    return model.masked_lm_logits(hidden, torch.tensor([position]))[0].softmax(dim=-1)


def test_candidates_are_those_of_the_model(model: BertForPretraining, tokenizer: Tokenizer) -> None:
    filled = fill_mask(model, tokenizer, "The cat [MASK] on the mat", top_k=4)
    expected = probabilities_at(model, tokenizer, "[CLS] the cat [MASK] on the mat [SEP]", 3)
    [candidates] = filled.gaps
    assert len(candidates) == 4
    assert [c.probability for c in candidates] == sorted((c.probability for c in candidates), reverse=True)
    for candidate in candidates:
        assert tokenizer.token_to_id(candidate.token) == candidate.token_id
        assert candidate.probability == pytest.approx(float(expected[candidate.token_id]), rel=1e-4)
    assert candidates[0].token not in ("[MASK]", "[PAD]", "[CLS]", "[SEP]", "[UNK]")


def test_several_gaps_are_filled_in_one_text(model: BertForPretraining, tokenizer: Tokenizer) -> None:
    rigged = always(model, tokenizer, ["cat", "dog"])
    filled = fill_mask(rigged, tokenizer, "The [MASK] and the [MASK], ran!", top_k=2)
    assert filled.text == "The cat and the cat, ran!"
    assert [[c.word for c in gap] for gap in filled.gaps] == [["cat", "dog"], ["cat", "dog"]]
    both = fill_mask(model, tokenizer, "the [MASK] sat on [MASK]")
    second = probabilities_at(model, tokenizer, "[CLS] the [MASK] sat on [MASK] [SEP]", 5)
    best = both.gaps[1][0]
    assert best.probability == pytest.approx(float(second[best.token_id]), rel=1e-4)


@pytest.mark.parametrize("gap", ["[MASK]", "[mask]", "[ MASK ]", "[Mask]"])
def test_case_and_blanks_of_the_gap_do_not_matter(
    gap: str, model: BertForPretraining, tokenizer: Tokenizer
) -> None:
    assert fill_mask(model, tokenizer, f"the {gap} sat") == fill_mask(model, tokenizer, "the [MASK] sat")


def test_gap_may_touch_words(model: BertForPretraining, tokenizer: Tokenizer) -> None:
    rigged = always(model, tokenizer, ["cat"])
    assert fill_mask(rigged, tokenizer, "([MASK])").text == "(cat)"
    assert fill_mask(rigged, tokenizer, "[MASK]").text == "cat"
    assert fill_mask(rigged, tokenizer, "[MASK][MASK]").text == "catcat"


def test_pieces_are_joined_to_the_word_before(model: BertForPretraining, tokenizer: Tokenizer) -> None:
    rigged = always(model, tokenizer, ["##ing", "work"])
    filled = fill_mask(rigged, tokenizer, "They walk [MASK] fast", top_k=2)
    assert filled.text == "They walking fast"
    assert [(c.token, c.word) for c in filled.gaps[0]] == [("##ing", "walking"), ("work", "work")]
    assert fill_mask(rigged, tokenizer, "[MASK] fast", top_k=1).text == "ing fast"


def test_special_and_reserved_entries_are_never_offered(
    model: BertForPretraining, tokenizer: Tokenizer
) -> None:
    rigged = always(model, tokenizer, ["[MASK]", "[UNK]", "[unused1]", "[PAD]", "[SEP]", "[CLS]", "cat"])
    [candidates] = fill_mask(rigged, tokenizer, "the [MASK] sat", top_k=1).gaps
    assert candidates[0].token == "cat"
    # Its probability is of the whole vocabulary, not of what is left.
    assert candidates[0].probability < 0.01


def test_other_bracketed_names_are_text(model: BertForPretraining, tokenizer: Tokenizer) -> None:
    filled = fill_mask(model, tokenizer, "[SEP] [MASK]", top_k=1)
    spelled = tokenizer_tokens_of_text(tokenizer, "[SEP]")
    assert (spelled[0], spelled[-1]) == ("[", "]")
    expected = probabilities_at(
        model, tokenizer, " ".join(["[CLS]", *spelled, "[MASK]", "[SEP]"]), len(spelled) + 1
    )
    best = filled.gaps[0][0]
    assert best.probability == pytest.approx(float(expected[best.token_id]), rel=1e-4)


def tokenizer_tokens_of_text(tokenizer: Tokenizer, text: str) -> list[str]:
    plain = Tokenizer.from_str(tokenizer.to_str())
    plain.encode_special_tokens = True
    return plain.encode(text, add_special_tokens=False).tokens


def test_text_without_gap_is_refused(model: BertForPretraining, tokenizer: Tokenizer) -> None:
    with pytest.raises(UsageError, match=r"No \[MASK\] in 'the cat sat'"):
        fill_mask(model, tokenizer, "the cat sat")


def test_settings_of_the_tokenizer_change_nothing_and_stay(
    model: BertForPretraining, tokenizer: Tokenizer, tiny_tokenizer: Tokenizer
) -> None:
    """Those of fine-tuned models cut and pad."""
    tiny_tokenizer.enable_truncation(4)
    tiny_tokenizer.enable_padding(length=9)
    text = "the cat sat [MASK] on the old mat"
    assert fill_mask(model, tiny_tokenizer, text) == fill_mask(model, tokenizer, text)
    assert tiny_tokenizer.truncation["max_length"] == 4
    assert tiny_tokenizer.padding["length"] == 9
    assert tiny_tokenizer.encode_special_tokens is False


@pytest.mark.parametrize("training", [True, False])
def test_prediction_is_without_dropout_and_leaves_the_mode(
    training: bool, model: BertForPretraining, tokenizer: Tokenizer
) -> None:
    model.train(training)
    assert fill_mask(model, tokenizer, "the [MASK]") == fill_mask(model, tokenizer, "the [MASK]")
    assert model.training is training


def test_tokenizer_without_special_tokens_is_refused(model: BertForPretraining) -> None:
    with pytest.raises(UsageError, match=r"The tokenizer has no \[CLS\]"):
        fill_mask(model, Tokenizer(models.WordPiece({"[UNK]": 0}, unk_token="[UNK]")), "[MASK]")


def test_long_text_is_read_around_the_gap(model: BertForPretraining, tokenizer: Tokenizer) -> None:
    before, after = "one two three four five " * 8, " five four three two one" * 8
    filled = fill_mask(model, tokenizer, f"{before}[MASK]{after}")
    window = "[CLS] four five one two three four five [MASK] five four three two one five [SEP]"
    assert len(window.split()) == NUM_POSITIONS
    expected = probabilities_at(model, tokenizer, window, 8)
    best = filled.gaps[0][0]
    assert best.probability == pytest.approx(float(expected[best.token_id]), rel=1e-4)
    assert filled.text == f"{before}{best.word}{after}"


def test_gaps_further_apart_than_the_model_reads_are_all_filled(
    model: BertForPretraining, tokenizer: Tokenizer
) -> None:
    filled = fill_mask(always(model, tokenizer, ["cat"]), tokenizer, "[MASK] " + "the mat " * 30 + "[MASK]")
    assert len(filled.gaps) == 2
    assert filled.text == "cat " + "the mat " * 30 + "cat"


def test_shorter_training_length_bounds_the_window(model: BertForPretraining, tokenizer: Tokenizer) -> None:
    text = "one two three [MASK] four five six"
    filled = fill_mask(model, tokenizer, text, max_seq_length=5)
    expected = probabilities_at(model, tokenizer, "[CLS] three [MASK] four [SEP]", 2)
    best = filled.gaps[0][0]
    assert best.probability == pytest.approx(float(expected[best.token_id]), rel=1e-4)


@given(length=st.integers(1, 60), limit=st.integers(1, 20), gaps=st.sets(st.integers(0, 59), min_size=1))
def test_windows_hold_every_gap_once_and_fit(length: int, limit: int, gaps: set[int]) -> None:
    inside = sorted(gap for gap in gaps if gap < length)
    windows = _windows(length, inside, limit)
    assert [gap for _, _, group in windows for gap in group] == inside
    for start, end, group in windows:
        assert 0 <= start <= group[0] <= group[-1] < end <= length
        assert end - start == min(limit, length)


@torch.no_grad()
def test_next_sentence_probability_is_that_of_the_head(
    model: BertForPretraining, tokenizer: Tokenizer
) -> None:
    probability = next_sentence_probability(model, tokenizer, "The cat sat on the mat", "It purred softly")
    tokens = "[CLS] the cat sat on the mat [SEP] it purred softly [SEP]"
    ids = torch.tensor([[tokenizer.token_to_id(token) for token in tokens.split()]])
    segments = torch.tensor([[0] * 8 + [1] * 4])
    hidden = model.eval().encode(ids, segments, torch.ones_like(ids, dtype=torch.bool))
    expected = model.next_sentence_logits(hidden)[0].softmax(dim=-1)[0]
    assert probability == pytest.approx(float(expected), rel=1e-5)


def test_long_pair_keeps_what_meets(model: BertForPretraining, tokenizer: Tokenizer) -> None:
    long_a, long_b = "one two three four five " * 9, "six seven eight nine ten " * 9
    plain = tokenizer_tokens_of_text(tokenizer, long_b)
    kept_b = plain[:6]
    cut = next_sentence_probability(model, tokenizer, long_a, long_b)
    short = next_sentence_probability(
        model, tokenizer, "four five one two three four five", join_pieces(kept_b)
    )
    assert cut == pytest.approx(short, rel=1e-5)


def join_pieces(tokens: list[str]) -> str:
    return " ".join(tokens).replace(" ##", "")


@pytest.mark.parametrize(
    ("length_a", "length_b", "room", "expected"),
    [
        (3, 4, 10, (3, 4)),
        (9, 9, 10, (5, 5)),
        (9, 9, 11, (5, 6)),
        (20, 3, 10, (7, 3)),
        (3, 20, 10, (3, 7)),
        (20, 8, 10, (5, 5)),
        (1, 1, 2, (1, 1)),
    ],
)
def test_longer_text_is_cut_first(length_a: int, length_b: int, room: int, expected: tuple[int, int]) -> None:
    assert _truncated_lengths(length_a, length_b, room) == expected


@given(length_a=st.integers(1, 99), length_b=st.integers(1, 99), room=st.integers(2, 120))
def test_cut_texts_fit_and_none_vanishes(length_a: int, length_b: int, room: int) -> None:
    kept_a, kept_b = _truncated_lengths(length_a, length_b, room)
    assert 1 <= kept_a <= length_a
    assert 1 <= kept_b <= length_b
    assert kept_a + kept_b == min(room, length_a + length_b)


@pytest.mark.parametrize(
    ("first", "second", "message"), [("", "it", "first text, '', holds"), ("it", " ", "second")]
)
def test_empty_texts_are_refused(
    first: str, second: str, message: str, model: BertForPretraining, tokenizer: Tokenizer
) -> None:
    with pytest.raises(UsageError, match=message):
        next_sentence_probability(model, tokenizer, first, second)


def test_foreign_tokenizer_is_refused(model: BertForPretraining, tiny_tokenizer: Tokenizer) -> None:
    tiny_tokenizer.add_tokens(["neologism"])
    with pytest.raises(UsageError, match=r"The tokenizer has \d+ entries, the model"):
        fill_mask(model, tiny_tokenizer, "[MASK]")


def test_text_that_is_no_utf8_is_refused(model: BertForPretraining, tokenizer: Tokenizer) -> None:
    # Python carries the byte FF of an argument as the lone surrogate U+DCFF.
    with pytest.raises(UsageError, match=r"'bad \\udcff ' is no valid Unicode"):
        fill_mask(model, tokenizer, "bad \udcff [MASK]")
    with pytest.raises(UsageError, match=r"'\\udcff' is no valid Unicode"):
        next_sentence_probability(model, tokenizer, "good", "\udcff")
