"""The language codes that text may be labelled with.

In: what a person types (`en`, `EN`, `pt-BR`, `zh_Hant`). Out: the code of the language alone, in lower case.
Deterministic.

The sentence segmenter takes any string, and applies its English rules to one that it does not know: a
misspelt code would go unnoticed. So codes are checked here: those of ISO 639-1, and the longer ones of
languages with a Wikipedia, which is what the segmenter was made for. It knows no region or script, or treats
it as the language alone, so these are dropped.
"""

from __future__ import annotations

_TWO_LETTERS = (
    "aa ab ae af ak am an ar as av ay az ba be bg bh bi bm bn bo br bs ca ce ch co cr cs cu cv cy da de "
    "dv dz ee el en eo es et eu fa ff fi fj fo fr fy ga gd gl gn gu gv ha he hi ho hr ht hu hy hz ia id "
    "ie ig ii ik io is it iu ja jv ka kg ki kj kk kl km kn ko kr ks ku kv kw ky la lb lg li ln lo lt lu "
    "lv mg mh mi mk ml mn mo mr ms mt my na nb nd ne ng nl nn no nr nv ny oc oj om or os pa pi pl ps pt "
    "qu rm rn ro ru rw sa sc sd se sg sh si sk sl sm sn so sq sr ss st su sv sw ta te tg th ti tk tl tn "
    "to tr ts tt tw ty ug uk ur uz ve vi vo wa wo xh yi yo za zh zu"
)
_THREE_LETTERS = (
    "abs ace ady aeb aln als alt ami ang anp arc arn arq ary arz ast atj avk awa azb ban bar bbc bcc bcl "
    "bdr bew bgn bho bjn blk bpy bqi btm bug bxr cbk cdo ceb cho chr chy ckb crh csb dag dga din diq dsb "
    "dtp dty egl eml ext fat fil fit fon frc frp frr fur gag gan gcr glk gom gor got gpe gsw guc gur guw "
    "hak haw hif hrx hsb hyw iba ibb igl ilo inh jam jbo jut kaa kab kbd kbp kcg kea kge khw kiu kjh kjp "
    "knc koi krc krl ksh kum kus lad lbe lez lfn lij liv lki lld lmo lrc ltg luz lzh lzz mad mai mdf mhr "
    "min mnc mni mnw mos mrj mus mwl myv mzn nah nan nap nds new nia nov nqo nrm nso nup olo pag pam pap "
    "pcd pcm pdc pdt pfl pih pms pnb pnt pwn qug rcf rgn rki rmy rsk rue rup ruq sah sat scn sco sdc sdh "
    "ses sgs shi shn shy skr sli smn srn stq sty syl szl szy tay tcy tdd tet tig tly tok tpi trv tum tyv "
    "udm vec vep vls vmf vot vro war wuu xal xmf yue zea zgh"
)
LANGUAGES = frozenset((_TWO_LETTERS + " " + _THREE_LETTERS).split())


def normalise_language(code: str) -> str:
    """The code of a language without script or region, in lower case.

    Raises:
        ValueError: it is not in `LANGUAGES`.
    """
    language = code.replace("_", "-").partition("-")[0].lower()
    if language not in LANGUAGES:
        raise ValueError(
            "unknown language; expected an ISO 639 code such as en, de, zh or ar. For a language without "
            "one here, take that of a language that ends its sentences alike"
        )
    return language
