"""Bounds of calls: order, deadlines, retries, pace, places."""

import random
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from ssrl.calls import caller as module
from ssrl.calls.caller import Caller, CallFailed, Limits, Pace
from ssrl.errors import UserError
from ssrl.types import SearchStatus

ROOT = Path(__file__).parents[2]


def caller(**limits):
    return Caller(Limits(**{"timeout_s": 5.0, "backoff_s": 0.001, **limits}))


class Clock:
    """Time that passes only where somebody sleeps, so that waits can be compared exactly. For one call at a time."""

    def __init__(self):
        self.now = 1000.0

    def monotonic(self):
        return self.now

    def sleep(self, seconds):
        assert seconds >= 0
        self.now += seconds


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(module, "time", clock)
    return clock


class Flaky:
    """Fails with each of `failures` in turn, then answers "done"; remembers when it was asked and what time it was given."""

    def __init__(self, *failures):
        self.failures = list(failures)
        self.asked_at = []
        self.left = []

    def __call__(self, left_s):
        self.asked_at.append(module.time.monotonic())
        self.left.append(left_s)
        if len(self.asked_at) <= len(self.failures):
            raise self.failures[len(self.asked_at) - 1]
        return "done"


def passing(text="busy", **more):
    return CallFailed(text, retryable=True, **more)


def test_outcomes_come_in_the_order_of_the_calls_whoever_is_first():
    def sleeper(index):
        def attempt(left_s):
            time.sleep(0.02 * (4 - index))
            return index

        return attempt

    outcomes = caller().run([sleeper(index) for index in range(5)])
    assert [outcome.value for outcome in outcomes] == [0, 1, 2, 3, 4]
    assert all(outcome.status is SearchStatus.OK and outcome.error == "" for outcome in outcomes)
    assert outcomes[0].latency_s >= 0.08 > outcomes[4].latency_s


def test_no_calls_are_no_outcomes():
    assert caller().run([]) == []


def test_a_failure_that_may_pass_is_tried_again_until_it_has_passed():
    attempt = Flaky(passing(), passing(), passing())
    [outcome] = caller(retries=3).run([attempt])
    assert outcome.value == "done" and outcome.status is SearchStatus.OK
    assert len(attempt.asked_at) == 4


def test_after_the_last_retry_the_failure_is_the_outcome():
    attempt = Flaky(*[passing("answered 503")] * 9)
    [outcome] = caller(retries=2).run([attempt])
    assert (outcome.value, outcome.status, outcome.error) == (None, SearchStatus.ERROR, "answered 503 (attempt 3 of 3)")
    assert len(attempt.asked_at) == 3


def test_a_failure_that_will_not_pass_is_not_tried_again_and_spoils_no_other_call():
    refused = Flaky(CallFailed("answered 401"))
    outcomes = caller().run([refused, Flaky()])
    assert (outcomes[0].status, outcomes[0].error) == (SearchStatus.ERROR, "answered 401")
    assert outcomes[1].value == "done"
    assert len(refused.asked_at) == 1


def test_the_status_of_a_failure_is_kept():
    [outcome] = caller(retries=0).run([Flaky(passing("too slow", status=SearchStatus.TIMEOUT))])
    assert outcome.status is SearchStatus.TIMEOUT


def waits(attempt):
    return [later - earlier for earlier, later in zip(attempt.asked_at, attempt.asked_at[1:], strict=False)]


def test_the_wait_doubles_with_each_retry_and_jitters_by_half(clock):
    attempt = Flaky(passing(), passing(), passing())
    caller(retries=3, backoff_s=0.04).run([attempt])
    for wait, nominal in zip(waits(attempt), (0.04, 0.08, 0.16), strict=True):
        assert 0.5 * nominal <= wait <= 1.5 * nominal


def test_calls_that_fail_together_do_not_come_back_together(clock):
    attempts = [Flaky(passing()) for _ in range(8)]
    caller(backoff_s=0.05, concurrency=1).run(attempts)
    assert len({round(wait, 6) for attempt in attempts for wait in waits(attempt)}) == 8


def test_retries_draw_nothing_from_the_global_random_stream():
    random.seed(7)
    expected = random.random()
    random.seed(7)
    caller().run([Flaky(passing())])
    assert random.random() == expected


def test_a_server_that_says_how_long_to_wait_is_not_asked_before(clock):
    attempt = Flaky(passing(retry_after_s=3))
    [outcome] = caller(backoff_s=0.001).run([attempt])
    assert outcome.value == "done"
    assert 3 <= waits(attempt)[0] <= 3.001


def test_a_wait_beyond_the_deadline_ends_the_call_at_once_and_says_why(clock):
    attempt = Flaky(passing("answered 429", retry_after_s=60))
    [outcome] = caller(timeout_s=30).run([attempt])
    assert clock.now == 1000.0
    assert outcome.status is SearchStatus.ERROR
    assert outcome.error == "answered 429 (it asks to wait 60 s, attempt 1, 30.0 s left of calls.timeout_s=30)"


def test_the_deadline_is_one_for_all_attempts_and_the_waits_between_them(clock):
    def slow(left_s):
        lefts.append(left_s)
        clock.sleep(2)
        raise passing("answered 503")

    lefts = []
    [outcome] = caller(timeout_s=10, retries=98, backoff_s=0).run([slow])
    assert lefts == [10, 8, 6, 4, 2]  # the sixth would have no time left
    assert outcome.latency_s == 10
    assert outcome.error == "answered 503 (attempt 5, 0.0 s left of calls.timeout_s=10)"


def test_a_real_deadline_ends_real_waits():
    [outcome] = caller(timeout_s=0.2, retries=10**6, backoff_s=0.01).run([Flaky(*[passing()] * 10**4)])
    assert "left of calls.timeout_s=0.2" in outcome.error and outcome.latency_s <= 5


def test_never_more_calls_at_one_time_than_allowed_over_all_threads():
    now, most, lock = 0, 0, threading.Lock()

    def attempt(left_s):
        nonlocal now, most
        with lock:
            now += 1
            most = max(most, now)
        time.sleep(0.02)
        with lock:
            now -= 1

    shared = caller(concurrency=3)
    threads = [threading.Thread(target=shared.run, args=([attempt] * 6,)) for _ in range(2)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert most == 3


def test_the_rate_holds_over_all_threads_and_counts_retries():
    attempts = [Flaky(), Flaky(passing()), Flaky(), Flaky()]  # 5 attempts
    shared = caller(rate=20, concurrency=4)
    threads = [threading.Thread(target=shared.run, args=(attempts[half : half + 2],)) for half in (0, 2)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    times = sorted(at for attempt in attempts for at in attempt.asked_at)
    assert len(times) == 5
    assert times[4] - times[0] >= 4 / 20 - 0.02


def test_turns_are_evenly_spaced_and_an_idle_time_saves_none_up(clock):
    pace = Pace(rate=4)
    turns = []
    for _ in range(3):
        pace.wait()
        turns.append(clock.now)
    clock.sleep(10)
    for _ in range(2):
        pace.wait()
        turns.append(clock.now)
    assert turns == [1000, 1000.25, 1000.5, 1010.5, 1010.75]


def test_a_turn_that_would_come_too_late_is_left_to_others(clock):
    pace = Pace(rate=1)
    assert pace.wait() and not pace.wait(until=1000.9)
    assert clock.now == 1000
    assert pace.wait(until=1001.1) and clock.now == 1001


def test_without_a_rate_nobody_waits(clock):
    pace = Pace(rate=0)
    assert all(pace.wait() for _ in range(100)) and clock.now == 1000


def test_waiting_for_the_first_turn_is_no_part_of_the_deadline(clock):
    outcomes = caller(rate=0.1, timeout_s=5, concurrency=1).run([Flaky() for _ in range(4)])  # the last turn comes after 30 s
    assert clock.now == 1030
    assert [(outcome.value, outcome.latency_s) for outcome in outcomes] == [("done", 0)] * 4


def test_a_retry_whose_turn_comes_after_the_deadline_is_given_up(clock):
    [outcome] = caller(rate=0.1, timeout_s=5, backoff_s=0).run([Flaky(passing("busy"))])
    assert outcome.error == "busy (attempt 1, 5.0 s left of calls.timeout_s=5)"
    assert clock.now == 1000


def test_a_defect_of_the_program_is_raised_and_not_taken_for_a_failed_call():
    def attempt(left_s):
        raise KeyError("contents")

    with pytest.raises(KeyError):
        caller().run([attempt, Flaky()])


def test_after_a_defect_the_calls_that_have_not_begun_are_dropped_and_the_caller_still_works():
    begun = []

    def attempt(left_s):
        begun.append(left_s)
        time.sleep(0.05)
        raise KeyError

    shared = caller(concurrency=1)
    with pytest.raises(KeyError):
        shared.run([attempt] * 50)
    assert shared.run([Flaky()])[0].value == "done"
    assert len(begun) < 50


def test_no_thread_is_left_after_a_batch():
    shared = caller(concurrency=8)
    shared.run([Flaky() for _ in range(40)])
    end = time.monotonic() + 10
    while any(thread.name == "ssrl-call" for thread in threading.enumerate()) and time.monotonic() < end:
        time.sleep(0.01)
    assert not any(thread.name == "ssrl-call" for thread in threading.enumerate())


def test_ctrl_c_does_not_wait_for_a_slow_call():
    code = (
        "import os, signal, threading, time\n"
        "from ssrl.calls.caller import Caller, Limits\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # a shell's background jobs are started with it ignored
        "threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()\n"
        "Caller(Limits(timeout_s=90)).run([lambda left: time.sleep(90)] * 40)\n"
    )
    start = time.monotonic()
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=80, cwd=ROOT)
    assert done.stderr.strip().endswith("KeyboardInterrupt") and time.monotonic() - start < 60


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"timeout_s": 0}, "calls.timeout_s=0 must be above 0; type calls.timeout_s=30"),
        ({"timeout_s": float("nan")}, "calls.timeout_s=nan must be above 0"),
        ({"retries": -1}, "calls.retries=-1 must be at least 0; type calls.retries=3"),
        ({"concurrency": 0}, "calls.concurrency=0 must be at least 1; type calls.concurrency=16"),
        ({"rate": -2.0}, "calls.rate=-2.0 must be at least 0; type calls.rate=0.0"),
    ],
)
def test_impossible_limits_are_refused(wrong, sentence):
    with pytest.raises(UserError) as error:
        Limits(**wrong)
    assert str(error.value).startswith(sentence)
