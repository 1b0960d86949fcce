"""Coverage-guided fuzzing of the message rules: `python -m tests.support.control_atheris -runs=9999`.

Only the rules are instrumented: it is their branches that inputs are sought for.
"""

from __future__ import annotations

import sys

import atheris

with atheris.instrument_imports(include=["topicbinding.control.message", "topicbinding.bridge.fold"]):
    from tests.support.control_fuzz import one_input

if __name__ == "__main__":
    atheris.Setup(sys.argv, one_input)
    atheris.Fuzz()
