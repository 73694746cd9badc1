"""What is mistyped is named, with the word that was probably meant."""

import pytest

from nescio.cli import main

GIVEN = ["--model", "a:b", "--data", "c", "--out", "d.csv"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["scroe"], "nescio: there is no command 'scroe'; did you mean score? See nescio --help"),
        (["audti", "--model", "x"], "nescio: there is no command 'audti'; did you mean audit? See nescio --help"),
        (["xyzzy"], "nescio: there is no command 'xyzzy'; see nescio --help"),
        (["score", "--modle", "x"], "nescio score: there is no option --modle; did you mean --model? See nescio score"),
        (["score", *GIVEN, "--metod=gen"], "nescio score: there is no option --metod; did you mean --method? See"),
        (["score", *GIVEN, "--xyzzy"], "nescio score: unrecognized arguments: --xyzzy; see nescio score --help"),
        (["score", "--model", "a:b"], "nescio score: the following arguments are required: --data, --out; see nescio"),
        (["explain", *GIVEN, "--of", "epistemc"], "did you mean epistemic? See nescio explain --help"),
        (
            ["score", *GIVEN, "--method", "exgrad", "entropy"],
            "nescio score: unrecognized arguments: entropy; --method takes one value and is repeated: "
            "--method exgrad --method entropy; see nescio score --help",
        ),
        (["score", *GIVEN, "two words"], "nescio score: unrecognized arguments: two words; see nescio score --help"),
        (["score", *GIVEN, "more"], "nescio score: unrecognized arguments: more; see nescio score --help"),
        (["app", "--prot", "1"], "nescio app: there is no option --prot; did you mean --port? See nescio app --help"),
    ],
)
def test_a_close_word_is_offered(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as info:
        main(arguments)
    assert info.value.code == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1


def test_the_beginning_of_an_option_is_no_mistake(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["score", "--mod", "x"])  # argparse takes what is clear
    error = capsys.readouterr().err
    assert "the following arguments are required" in error
    assert "did you mean" not in error
