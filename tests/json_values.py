"""Strategies for JSON values, with difficult ones, and a strict comparison."""

from typing import Any

from hypothesis import strategies as st

texts = st.text(st.characters())
json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(min_value=10**30, max_value=10**400)
    | st.floats(allow_nan=False, allow_infinity=False)
    | texts,
    lambda inner: st.lists(inner) | st.dictionaries(texts, inner),
    max_leaves=20,
)


def same(one: Any, other: Any) -> bool:
    """Return whether two values are equal and have equal types: 1, 1.0 and true differ."""
    if type(one) is not type(other):
        return False
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    return bool(one == other)
