"""What was done to nodes is done again to others; what a recording takes for granted it asks of them."""

import numpy as np
import pytest

from hwopt.solver.gp.replay import Replay
from hwopt.solver.gp.tape import NotRecordable, Tape, TapeArray, as_nodes, guessed, is_number, somewhere


def recorded(function, *columns):
    tape = Tape(len(columns[0]))
    with np.errstate(all="ignore"):
        return Replay(tape, [function(*(tape.input(each) for each in columns))])


OPERATIONS = {
    "arithmetic": lambda a, b: (a + 2.0) * b - a / b + -a,
    "powers": lambda a, b: (
        a**2 + b**0.5 + a**-1.0 + b**1.7 + 2.0**a + a**1.0 + a ** np.array([1.3]) + a ** np.array([2.0]) + a**b
    ),
    "functions": lambda a, b: (
        np.exp(-a) + np.log(b) + np.sqrt(a) + np.abs(a - b) + np.maximum(a, b) * np.minimum(a, 3.0)
    ),
    "choices": lambda a, b: np.where(a > b, a, np.where((a < 1.0) | ~(b >= 2.0) & (a != b), b, 7.0)),
    "truths": lambda a, b: (a > b).astype(float) * 3.0 + as_nodes(np.isfinite(a / b)),
    "not finite": lambda a, b: np.nan_to_num(np.log(a - b), nan=5.0, posinf=9.0),
    "constant choices": lambda a, b: np.where(np.array([True]), a, b) + np.where(np.array([False]), a, b),
    "clipped": lambda a, b: np.clip(a, 0.5, b) + np.round(b),
}


@pytest.mark.parametrize("name", OPERATIONS)
def test_it_does_to_others_what_was_done(name):
    rng = np.random.default_rng(0)
    function = OPERATIONS[name]
    recording = recorded(function, *rng.uniform(0.1, 4.0, (2, 5)))
    others = rng.uniform(0.1, 4.0, (2, 300))
    with np.errstate(all="ignore"):
        wanted = function(*others)
    values, holds = recording.run(others)
    assert holds.all()
    np.testing.assert_allclose(values[0], wanted, rtol=1e-14, atol=0)


def test_what_held_everywhere_is_asked_of_others():
    def function(a):
        assert (a > 1.0).all() and not (a > 10.0).any()
        return a + 1.0

    recording = recorded(function, np.array([2.0, 3.0]))
    values, holds = recording.run(np.array([[2.5, 0.5, 11.0, np.nan]]))
    assert holds.tolist() == [True, False, False, False]
    assert values[0, 0] == 3.5


def test_what_did_not_hold_everywhere_is_not_asked():
    def function(a):
        assert not (a > 2.5).all() and (a > 2.5).any()
        return a

    assert recorded(function, np.array([2.0, 3.0])).run(np.array([[0.0, 9.0]]))[1].all()


def test_a_form_that_allows_for_more_asks_nothing():
    def function(a):
        assert somewhere(a > 5.0)  # at others
        return a

    assert not somewhere(np.zeros(2)) and somewhere(np.ones(1))
    assert recorded(function, np.array([2.0, 3.0])).run(np.array([[0.0, 9.0]]))[1].all()


def test_equal_work_is_written_down_once():
    tape = Tape(2)
    a = tape.input(np.array([1.0, 2.0]))
    assert (a * 2.0).number == (a * 2.0).number != (a * 3.0).number
    assert (a * 2.0).tobytes() == (a * 2.0).tobytes() != (a * 3.0).tobytes()


@pytest.mark.parametrize(
    "done",
    [
        lambda a: np.asarray(a),
        lambda a: bool(a > 1.0),
        lambda a: np.sort(a),
        lambda a: np.add.reduce(a),
        lambda a: a + np.array([1.0, 2.0]),
        lambda a: ~a,
        lambda a: a.astype(int),
        lambda a: np.where(np.array([True, False]), a, 0.0),
    ],
)
def test_what_cannot_be_done_again_is_refused(done):
    """Else it would go into the recording as a constant: a number of these nodes, taken for one of all."""
    with pytest.raises(NotRecordable):
        done(Tape(2).input(np.array([1.0, 2.0])))


def test_guesses_see_the_numbers():
    a = Tape(2).input(np.array([1.0, 2.0]))
    assert guessed(a + 1.0).tolist() == [2.0, 3.0] and guessed(3.0) == 3.0
    assert is_number(a) and is_number(np.zeros(1)) and not is_number("a")
    assert isinstance(as_nodes(a > 1.0), TapeArray) and len(a) == 2 and a.shape == (2,) and a.ndim == 1
