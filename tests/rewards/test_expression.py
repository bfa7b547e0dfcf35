"""Sums and products as text: what is read, how it is written down, and what is refused where."""

from pathlib import Path

import pytest

from element_rl.rewards import check_intrinsic, check_name, is_own_reward
from element_rl.rewards.expression import (
    MOST_REWARDS,
    names_in,
    options_of_each,
    parsed,
)

# text → how it is written down, and as part of a folder's name
READ = {
    "element": ("element", "element"),
    " element-paper ": ("element-paper", "element_paper"),
    "element+0.5*rnd": ("element + 0.5*rnd", "element+0.5rnd"),
    "element\n + .5 * rnd": ("element + 0.5*rnd", "element+0.5rnd"),
    "rnd*2*0.25*ngu": ("0.5*rnd*ngu", "0.5rnd_x_ngu"),
    "ngu * rnd": ("ngu*rnd", "ngu_x_rnd"),
    "element-0.5*rnd": ("element - 0.5*rnd", "element-0.5rnd"),
    "element + -0.5*rnd": ("element - 0.5*rnd", "element-0.5rnd"),
    "element - -rnd": ("element + rnd", "element+rnd"),
    "-rnd + element-paper": ("-rnd + element-paper", "-rnd+element_paper"),
    "1e-3*rnd + 2E1*icm": ("0.001*rnd + 20*icm", "0.001rnd+20icm"),
    "rnd + 0*icm": ("rnd + 0*icm", "rnd+0icm"),
    "rnd + rnd": ("rnd + rnd", "rnd+rnd_2"),
    "1*rnd": ("rnd", "rnd"),
    "2*rnd": ("2*rnd", "2rnd"),
    "element + my-code/own.py:make": ("element + my-code/own.py:make", "element+own"),
    "0.5*own.py:make*rnd": ("0.5*own.py:make*rnd", "0.5own_x_rnd"),
    "rnd - 'my code/a+b.py:make'": ("rnd - 'my code/a+b.py:make'", "rnd-a_b"),
    "my code/own.py:make": ("my code/own.py:make", "own"),
    "element + episodic.py:make": ("element + episodic.py:make", "element+episodic_2"),
    "новость + rnd": ("новость + rnd", "новость+rnd"),  # no name of a reward, which others say
}
# text → where something else was expected, and what
REFUSED = {
    "": (1, "a reward or a weight was expected, got the end"),
    "  ": (3, "a reward or a weight was expected, got the end"),
    "+": (2, "a reward or a weight"),
    "rnd +": (6, "a reward or a weight was expected, got the end"),
    "rnd*": (5, "a reward or a weight"),
    "*rnd": (1, "a reward or a weight"),
    "2**rnd": (3, "a reward or a weight was expected, got '*rnd'"),
    "rnd +++ icm": (7, "a reward or a weight"),
    "nan*rnd": (1, "a finite weight"),
    "rnd + inf*icm": (7, "a finite weight"),
    "1e400*rnd": (1, "a finite weight"),
    "1e29*1e29*rnd": (1, "a finite weight"),
    "0.5": (4, "* and a reward after a weight"),
    "rnd + 0.5 icm": (11, "* and a reward after a weight was expected, got 'icm'"),
    "rnd icm": (5, "+, -, * or the end was expected, got 'icm'"),
    "rnd / 2": (5, "+, -, * or the end"),
    "0.3*(element + rnd)": (5, "parentheses are not read"),
    "((((rnd))))": (1, "parentheses are not read"),
    "1.2.3*rnd": (1, "a reward or a weight"),
    "1e3rnd": (1, "a reward or a weight"),
    "٣*rnd": (1, "a reward or a weight"),
    "rnd + '": (7, "a reward or a weight"),
    "rnd + 'icm'": (7, "FILE.py:FUNCTION in quotation marks"),
    "rnd; rm -rf": (4, "+, -, * or the end"),
    "rnd\0": (4, "+, -, * or the end"),
    "x" * 100_000 + "!": (100_001, "+, -, * or the end"),
}


@pytest.mark.parametrize("text", READ)
def test_what_is_read(text: str) -> None:
    expression = parsed(text)
    assert (expression.text, expression.folder_label) == READ[text]
    assert parsed(expression.text) == expression
    assert "/" not in expression.folder_label


@pytest.mark.parametrize("text", REFUSED)
def test_what_is_refused(text: str) -> None:
    place, expected = REFUSED[text]
    with pytest.raises(ValueError, match="cannot be read: at character") as told:
        parsed(text)
    sentence = str(told.value)
    assert f"at character {place} " in sentence
    assert expected in sentence
    assert len(sentence) < 250
    assert "\n" not in sentence


def test_weights_and_members() -> None:
    expression = parsed("element + 0.5*rnd*icm - 2*rnd")
    assert expression.names == ("element", "rnd", "icm", "rnd")
    assert [(p.weight, p.members, p.label) for p in expression.products] == [
        (1.0, (0,), "element"),
        (0.5, (1, 2), "rnd_times_icm"),
        (-2.0, (3,), "rnd_2"),
    ]
    assert expression.name is None
    assert parsed("rnd").name == parsed("1*rnd").name == "rnd"
    assert parsed("-rnd").name is None


def test_too_many_and_nothing_paid() -> None:
    assert len(names_in(" + ".join(["rnd"] * MOST_REWARDS))) == MOST_REWARDS
    with pytest.raises(ValueError, match="has 5000 rewards, and 8 are the most"):
        parsed("+".join(["rnd"] * 5_000))
    with pytest.raises(ValueError, match="pays nothing: all its weights are 0"):
        parsed("0*rnd + 0.0*element")


def test_a_file_alone_is_the_file_whatever_its_path(tmp_path: Path) -> None:
    """As before there were sums; in a sum such a path is quoted."""
    path = tmp_path / "a + b*c (1).py"
    path.write_text("")
    text = f"{path}:make"
    assert parsed(text).name == text
    assert is_own_reward(text)
    assert names_in(f"rnd + '{text}'") == ("rnd", text)
    assert parsed("gone (1)/own.py:make").name == "gone (1)/own.py:make"
    assert not is_own_reward("element + own.py:make")


def test_options_name_their_reward() -> None:
    expression = parsed("element-paper + 0.5*rnd*icm - rnd")
    options = {"rnd.learning_rate": 1, "rnd_2": {"learning_rate": 2}, "element-paper.a": 3}
    each, scaled = options_of_each(expression, options | {"icm.recent_scale": False})
    assert each == [{"a": 3}, {"learning_rate": 1}, {}, {"learning_rate": 2}]
    assert scaled == [None, False, None]
    assert options_of_each(expression, {"recent_scale": True})[1] == [True] * 3
    assert options_of_each(parsed("2*rnd"), {"learning_rate": 1})[0] == [{"learning_rate": 1}]
    with pytest.raises(ValueError, match=r"does not say whose it is: .* such as element_paper\.b"):
        options_of_each(expression, {"b": 1})
    with pytest.raises(ValueError, match=r"e3b\.b is of no reward in .*which has element_paper"):
        options_of_each(expression, {"e3b.b": 1})
    with pytest.raises(ValueError, match="recent_scale is true or false, got 'no'"):
        options_of_each(expression, {"rnd.recent_scale": "no"})


def test_names_that_are_none() -> None:
    check_name("element + 0.5*extrinsic")
    check_intrinsic("element + 0.5*extrinsic")
    with pytest.raises(ValueError, match=r"no reward called 'foo' in 'rnd \+ foo'; choose one of"):
        check_name("rnd + foo")
    with pytest.raises(ValueError, match=r"'element-rnd'.*A minus sign .* has spaces"):
        check_name("element-rnd")
    with pytest.raises(ValueError, match="random is no reward"):
        check_name("rnd + random")
    for text in ("2*extrinsic", "random", "extrinsic"):
        with pytest.raises(ValueError, match="is no intrinsic reward"):
            check_intrinsic(text)
