"""Runs functions as tests: one line for each, and how many passed."""

import sys
import traceback


def run(title, tests):
    """Runs `tests` in order; returns how many failed."""
    passed = failed = 0
    for test in tests:
        name = test.__name__.replace("_", " ")
        try:
            test()
        except Exception as error:  # A test may fail in any way.
            failed += 1
            print(f"FAILED {title}: {name}: {type(error).__name__}: {error}", flush=True)
            traceback.print_exc(file=sys.stderr)
        else:
            passed += 1
            print(f"ok     {title}: {name}", flush=True)
    print(f"{title}: {passed} passed, {failed} failed", flush=True)
    return failed


def raises(kind, call):
    """What `call` raises, which has to be a `kind`."""
    try:
        call()
    except kind as error:
        return error
    raise AssertionError(f"{kind.__name__} was not raised")
