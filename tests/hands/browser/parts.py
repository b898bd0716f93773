"""Whether this machine has what a browser hand needs."""

import pytest

from hands.builtin import browser
from hands.isolation import probe

_LACKS = probe.problem() or browser.unready()
needs_browser = pytest.mark.skipif(bool(_LACKS), reason=_LACKS)
