"""A command line as the tests of what it composes want it."""

from ssrl.app import checked, understand


def prepare(argv):
    """Its last sweep or run in Hydra's spelling, checked, with the recipe that it implies."""
    return checked(understand(argv))[-1]
