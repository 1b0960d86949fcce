"""What viewers are told, case by case. The rule above all: silence is never called live."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topicbinding.gateway.states import Facts, State, tell

LIVE = Facts(exists=True, shown=3, wanted=3, silent_seconds=0.4)


@pytest.mark.parametrize(
    ("facts", "state", "reason"),
    [
        (LIVE, State.LIVE, ""),
        (Facts(True, 3, 3, 10.0), State.STALE, "silent"),
        (Facts(True, 3, 3, None), State.STALE, "silent"),
        (Facts(True, 3, 3, 2.0, trouble="refused"), State.STALE, "refused"),
        (Facts(True, 3, 3, 0.3, trouble="refused"), State.LIVE, ""),
        (Facts(True, 3, 4, 0.1), State.SWAPPING, "generation 4"),
        (Facts(True, 3, 4, 0.1, trouble="cannot be reached"), State.SWAPPING, "cannot be reached"),
        (Facts(True, None, None, None, building="reading (40 %)"), State.SWAPPING, "40 %"),
        (Facts(True, None, 1, None), State.SWAPPING, "opening generation 1"),
        (Facts(True, None, None, None, failure="no such topic"), State.FAILED, "no such topic"),
        (Facts(True, 3, 3, 0.1, failure="out of memory"), State.FAILED, "out of memory"),
        (Facts(False, 3, None, 0.1), State.FAILED, "does not exist"),
        (Facts(True, 3, None, 9.0), State.STALE, "silent"),
    ],
)
def test_cases(facts: Facts, state: State, reason: str) -> None:
    told = tell(facts, stale_seconds=3.5)
    assert told.state is state
    assert reason in told.reason


@given(
    st.builds(
        Facts,
        exists=st.booleans(),
        shown=st.one_of(st.none(), st.integers(1, 3)),
        wanted=st.one_of(st.none(), st.integers(1, 3)),
        silent_seconds=st.one_of(st.none(), st.floats(0, 100)),
        trouble=st.sampled_from(["", "trouble"]),
        failure=st.sampled_from(["", "failure"]),
        building=st.just(""),
    )
)
def test_live_means_heard_a_moment_ago_and_on_the_right_generation(facts: Facts) -> None:
    told = tell(facts, stale_seconds=3.5)
    if told.state is State.LIVE:
        assert facts.exists
        assert facts.shown is not None
        assert facts.wanted in (None, facts.shown)
        assert facts.silent_seconds is not None
        assert facts.silent_seconds <= 3.5
        assert not facts.failure
    else:
        assert told.reason, "whatever is not live says why"
