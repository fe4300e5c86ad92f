"""Full-sim declines everything."""

from ssrl.engines.fullsim import FullSim
from ssrl.types import Question, SearchCall


def test_it_declines_every_call_and_says_so_beforehand():
    call = SearchCall(query="q", question=Question(id="1", text="t", answers=("a",)), group="g", sample=0, index=0, turn=0, step=0, seed=1)
    engine = FullSim()
    assert engine.search([call, call]) == [None, None]
    assert engine.search([]) == []
    assert not engine.answers and engine.entropy is None and engine.max_turns == 0 and engine.ping() == 0.0
