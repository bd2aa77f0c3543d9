"""Any load of a workload, for property tests."""

from hypothesis import strategies as st

from schemas.load import Sine, load_of

rates = st.integers(1, 20_000).map(lambda n: n / 4)
seconds = st.integers(1, 40).map(lambda n: n / 4)


def simple_loads():
    """Loads of a single shape."""
    return st.one_of(
        st.builds(load_of, rate_per_second=rates),
        st.builds(
            load_of,
            shape=st.just("ramp"),
            from_rate_per_second=rates,
            rate_per_second=rates,
            for_s=seconds,
        ),
        st.builds(
            load_of,
            shape=st.just("steps"),
            rates_per_second=st.lists(rates, min_size=1, max_size=5).map(tuple),
            step_s=seconds,
        ),
        st.builds(
            load_of,
            shape=st.just("spike"),
            rate_per_second=rates,
            peak_rate_per_second=rates,
            at_s=seconds,
            peak_s=seconds,
        ),
        st.tuples(rates, st.floats(0.01, 1), seconds).map(
            lambda t: Sine(rate_per_second=t[0], amplitude_per_second=t[0] * t[1], period_s=t[2])
        ),
        st.builds(load_of, shape=st.just("fluctuating"), rate_per_second=rates, period_s=seconds),
        st.builds(
            load_of,
            shape=st.just("single_burst"),
            rate_per_second=rates,
            burst_records=st.integers(1, 5_000),
        ),
        st.builds(
            load_of,
            shape=st.just("periodic_burst"),
            rate_per_second=rates,
            burst_records=st.integers(1, 5_000),
            period_s=seconds,
        ),
    )


def _timed(load, for_s):
    return load_of(**load.model_dump() | {"for_s": load.for_s or for_s})


timed_loads = st.builds(_timed, simple_loads(), seconds)


def all_loads():
    """Single shapes, and sequences and sums of them."""
    parts = st.lists(timed_loads, min_size=1, max_size=3).map(tuple)
    return st.one_of(
        simple_loads(),
        st.builds(load_of, shape=st.just("sequence"), parts=parts),
        st.builds(load_of, shape=st.just("sum"), parts=parts),
    )
