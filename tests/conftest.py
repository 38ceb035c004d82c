"""Settings of the whole suite: hypothesis without time limits, and the same examples on every run of CI."""

import os

from hypothesis import HealthCheck, settings

settings.register_profile(
    "minigrad",
    max_examples=int(os.environ.get("MINIGRAD_EXAMPLES", "25")),
    deadline=None,
    derandomize=bool(os.environ.get("CI")),
    database=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("minigrad")
