"""Sentences and tokens of languages and scripts, worked out by hand.

What BERT's normaliser does decides the tokens. It drops control and format characters (the zero-width joiner
of emoji among them) and stands every ideograph alone. Uncased, it also decomposes the text and drops all
non-spacing marks (Unicode category Mn): accents, and with them the vowel points of Arabic and Hebrew, the
virama of Devanagari, the upper vowels and tone marks of Thai, and the voicing marks of kana.
"""

import unicodedata
from typing import NamedTuple

import pyarrow as pa
import pytest

from pipelines.segmentation import segment_documents
from pipelines.tokenization import SentenceTokenizer
from pipelines.tokenizer_files import SPECIAL_TOKENS, bert_tokenizer


def segment(text, language):
    return segment_documents(pa.array([text], pa.large_string()), "sentencex", language).to_pylist()[0]


class Case(NamedTuple):
    language: str
    text: str
    sentences: list[str]
    tokens: list[str]
    """Of each sentence, one string with blanks between tokens."""
    decoys: str = ""
    """Tokens of the vocabulary that a wrong reading would find."""
    cased: bool = False


CASES = {
    "chinese": Case(
        "zh",
        "我去了北京。你呢？她说：“我累了。”走吧！",
        ["我去了北京。", "你呢？", "她说：“我累了。”", "走吧！"],
        ["我 去 了 北 京 。", "你 呢 ？", "她 说 ： “ 我 累 了 。 ”", "走 [UNK] ！"],
        decoys="北京 我去了北京 ##京 ##了",
    ),
    "chinese beside latin letters and digits": Case(
        "zh",
        "他在2024年买了iPhone手机。很好。",
        ["他在2024年买了iPhone手机。", "很好。"],
        ["他 在 2024 年 买 了 iphone 手 机 。", "很 好 。"],
        decoys="2024年 iPhone 手机 ##手",
    ),
    "ideographs beyond the first plane": Case(
        "zh", "𠮷野家。", ["𠮷野家。"], ["𠮷 野 家 。"], decoys="𠮷野 ##野"
    ),
    "japanese, uncased: voicing marks go": Case(
        "ja",
        "猫がパンを食べた。本当ですか？はい！",
        ["猫がパンを食べた。", "本当ですか？", "はい！"],
        ["猫 か ##ハ ##ンを 食 へ ##た 。", "本 当 てすか ？", "はい ！"],
        decoys="が ##パ パン べ べた ですか 食べた 本当",
    ),
    "japanese, cased: kana stay as they are": Case(
        "ja",
        "猫がパンを食べた。本当ですか？",
        ["猫がパンを食べた。", "本当ですか？"],
        ["猫 が ##パ ##ンを 食 べ ##た 。", "本 当 ですか ？"],
        decoys="か ##ハ へ てすか 食べた 本当",
        cased=True,
    ),
    "thai, uncased: upper vowels and tones go": Case(
        "th",
        "แมวที่บ้าน นอนหลับ",
        ["แมวที่บ้าน นอนหลับ"],
        # ที่ loses U+0E35 and U+0E48, บ้าน loses U+0E49, หลับ loses U+0E31.
        ["แมว ##ท ##บาน นอน ##หลบ"],
        decoys="##ที่ ##บ้าน ##หลับ ที่ บ้าน หลับ",
    ),
    "thai, cased": Case(
        "th",
        "แมวที่บ้าน นอนหลับ",
        ["แมวที่บ้าน นอนหลับ"],
        ["แมว ##ที่ ##บ้าน นอน ##หลับ"],
        decoys="##ท ##บาน ##หลบ",
        cased=True,
    ),
    "thai lines": Case("th", "แมว\n\nนอน", ["แมว", "นอน"], ["แมว", "นอน"]),
    "arabic: right to left, its comma and question mark": Case(
        "ar",
        "ذهبت إلى السوق. هل أنت بخير؟ اشتريت خبزًا، ولبنًا.",
        ["ذهبت إلى السوق.", "هل أنت بخير؟", "اشتريت خبزًا، ولبنًا."],
        # Hamza over and under alef (U+0654, U+0655) and fathatan (U+064B) are marks of category Mn.
        ["ذهبت الى ال ##سوق .", "هل انت بخير ؟", "اشتريت خبزا ، و ##لبنا ."],
        decoys="إلى أنت خبزًا خبزا، ##لبنًا السوق.",
    ),
    "arabic, cased: vowel points stay": Case(
        "ar", "خبزًا، أنت.", ["خبزًا، أنت."], ["خبزًا ، أنت ."], decoys="خبزا انت", cased=True
    ),
    "urdu": Case(
        "ur",
        "میں گھر گیا۔ کیا آپ ٹھیک ہیں؟",
        ["میں گھر گیا۔", "کیا آپ ٹھیک ہیں؟"],
        # Madda over alef (U+0653) goes.
        ["میں گھر گیا ۔", "کیا اپ ٹھیک ہیں ؟"],
        decoys="آپ گیا۔",
    ),
    "hebrew: points go, the maqaf and gershayim are punctuation": Case(
        "he",
        'שָׁלוֹם לכם. בית־ספר? ד"ר כהן הגיע.',
        ["שָׁלוֹם לכם.", "בית־ספר?", 'ד"ר כהן הגיע.'],
        ["שלום ל ##כם .", "בית ־ ספר ?", 'ד " ר כהן הגיע .'],
        decoys='שָׁלוֹם בית־ספר ד"ר',
    ),
    "right-to-left marks are format characters": Case(
        "he", "\u200fשלום\u200f, abc\u200e.", ["\u200fשלום\u200f, abc\u200e."], ["שלום , abc ."]
    ),
    "devanagari, uncased: the virama and upper vowels go": Case(
        "hi",
        "मैं हिन्दी पढ़ता हूँ। तुम कैसे हो? ठीक है॥",
        ["मैं हिन्दी पढ़ता हूँ।", "तुम कैसे हो?", "ठीक है॥"],
        # Kept are the vowel signs of category Mc, which take room of their own: ा ि ी ो.
        ["म हिनदी पढ ##ता ह ।", "तम कस हो ?", "ठीक ह ॥"],
        decoys="मैं हिन्दी हूँ। तुम कैसे है है॥ पढ़",
    ),
    "devanagari, cased": Case(
        "hi",
        "मैं हिन्दी पढ़ता हूँ। ठीक है॥",
        ["मैं हिन्दी पढ़ता हूँ।", "ठीक है॥"],
        ["मैं हिन्दी पढ ##़ता हूँ ।", "ठीक है ॥"],
        decoys="म हिनदी ह",
        cased=True,
    ),
    "german: an ordinal ends no sentence": Case(
        "de",
        "Am 3. Mai kam er z.B. über Köln. Schön!",
        ["Am 3. Mai kam er z.B. über Köln.", "Schön!"],
        ["am 3 . mai kam er z . b . uber koln .", "schon !"],
        decoys="über köln schön Köln",
    ),
    "french": Case(
        "fr",
        "L’été à Orléans, c’est beau. Où ?",
        ["L’été à Orléans, c’est beau.", "Où ?"],
        ["l ’ ete a orleans , c ’ est beau .", "ou ?"],
        decoys="été où à l’été",
    ),
    "vietnamese: two marks on a letter": Case(
        "vi", "Tiếng Việt rất hay. Phở!", ["Tiếng Việt rất hay.", "Phở!"], ["tieng viet rat hay .", "pho !"]
    ),
    "turkish capital i with a dot": Case("tr", "İstanbul.", ["İstanbul."], ["istanbul ."]),
    "korean, uncased: syllables come apart into letters": Case(
        "ko",
        "날씨가 좋네요! 네.",
        ["날씨가 좋네요!", "네."],
        [
            f"{unicodedata.normalize('NFD', '날씨')} ##{unicodedata.normalize('NFD', '가')} "
            f"{unicodedata.normalize('NFD', '좋네요')} !",
            f"{unicodedata.normalize('NFD', '네')} .",
        ],
        decoys="날씨 ##가 좋네요 네",
    ),
    "korean, cased": Case("ko", "날씨가 좋네요!", ["날씨가 좋네요!"], ["날씨 ##가 좋네요 !"], cased=True),
    "emoji: the joiner goes, the parts stay one word": Case(
        "en",
        "We are 👨\u200d👩\u200d👧. She is from 🇫🇷🇯🇵. Great 👍🏽!",
        ["We are 👨\u200d👩\u200d👧.", "She is from 🇫🇷🇯🇵.", "Great 👍🏽!"],
        ["we are 👨 ##👩 ##👧 .", "she is from 🇫 ##🇷 ##🇯 ##🇵 .", "great 👍 ##🏽 !"],
        decoys="👩 👧 🇷 🇯 🏽 👨\u200d👩\u200d👧",
    ),
    "emoji, uncased: the variation selector goes": Case(
        "en", "I ❤\ufe0f it.", ["I ❤\ufe0f it."], ["i ❤ it ."]
    ),
    "emoji, cased: the variation selector stays": Case(
        "en", "I ❤\ufe0f it.", ["I ❤\ufe0f it."], ["I ❤ ##\ufe0f it ."], cased=True
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_sentences_and_tokens(case):
    expected = [tokens.split(" ") for tokens in case.tokens]
    known = [token for tokens in expected for token in tokens]
    vocabulary = dict.fromkeys([*SPECIAL_TOKENS, *known, *case.decoys.split()])
    tokenizer = bert_tokenizer(
        {token: index for index, token in enumerate(vocabulary)}, lowercase=not case.cased
    )
    assert segment(case.text, case.language) == case.sentences
    sentences = segment_documents(pa.array([case.text], pa.large_string()), "sentencex", case.language)
    tokenized = SentenceTokenizer(tokenizer).tokenize(sentences)
    found = [tokenizer.id_to_token(token_id) for token_id in tokenized.token_ids.to_pylist()[0]]
    assert found == known
    assert tokenized.sentence_lengths.to_pylist() == [[len(tokens) for tokens in expected]]


@pytest.mark.parametrize(
    ("lowercase", "strip_accents", "composed", "decomposed"),
    [
        pytest.param(True, None, ["cafe"], ["cafe"], id="uncased: both are one word"),
        pytest.param(True, False, ["café"], ["cafe", "##\u0301"], id="accents kept: they differ"),
        pytest.param(False, None, ["café"], ["cafe", "##\u0301"], id="cased: they differ"),
        pytest.param(False, True, ["cafe"], ["cafe"], id="cased, accents stripped"),
    ],
)
def test_composed_and_decomposed_accents(lowercase, strip_accents, composed, decomposed):
    vocabulary = [*SPECIAL_TOKENS, "cafe", "café", "##\u0301"]
    tokenizer = bert_tokenizer(
        {token: index for index, token in enumerate(vocabulary)},
        lowercase=lowercase,
        strip_accents=strip_accents,
    )
    text = "café"
    forms = [unicodedata.normalize("NFC", text), unicodedata.normalize("NFD", text)]
    assert [len(form) for form in forms] == [4, 5]
    tokenized = SentenceTokenizer(tokenizer).tokenize(
        pa.array([[form] for form in forms], pa.list_(pa.string()))
    )
    found = [[tokenizer.id_to_token(i) for i in ids] for ids in tokenized.token_ids.to_pylist()]
    assert found == [composed, decomposed]


@pytest.mark.parametrize("form", ["NFC", "NFD"])
@pytest.mark.parametrize("name", ["french", "vietnamese: two marks on a letter", "devanagari, cased"])
def test_sentences_end_alike_in_both_forms(name, form):
    case = CASES[name]
    found = segment(unicodedata.normalize(form, case.text), case.language)
    assert found == [unicodedata.normalize(form, sentence) for sentence in case.sentences]


def test_the_language_decides_where_sentences_end():
    text = "Er kam am 3. Mai an."
    assert segment(text, "de") == [text]
    assert segment(text, "en") == ["Er kam am 3.", "Mai an."]
