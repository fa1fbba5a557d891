"""Short writing of tensor names: what is compressed comes back, in its order."""

from hypothesis import given
from hypothesis import strategies as st

from framework.planning.patterns import compress, expand

LAYERS = [(f"blocks.{i}.{name}", shape) for i in range(12) for name, shape in (("a.weight", "4,4"), ("a.bias", "4"))]


def test_layers_alike_become_one_line() -> None:
    lines = [("head.weight", "4,4"), *LAYERS, ("tail.weight", "4")]
    short = compress(lines)
    assert short == [
        ("head.weight", "4,4"),
        ("blocks.{0..11}.a.weight", "4,4"),
        ("blocks.{0..11}.a.bias", "4"),
        ("tail.weight", "4"),
    ]
    assert list(expand(short)) == lines


def test_a_layer_that_differs_breaks_the_run() -> None:
    lines = [("b.0.w", "1"), ("b.1.w", "1"), ("b.2.w", "2"), ("b.3.w", "2")]
    assert compress(lines) == [("b.{0..1}.w", "1"), ("b.{2..3}.w", "2")]
    assert list(expand(compress(lines))) == lines


def test_runs_inside_runs_keep_the_order() -> None:
    lines = [(f"up.{i}.res.{j}.{name}", "8") for i in range(3) for j in range(2) for name in ("w", "b")]
    assert compress(lines) == [("up.{0..2}.res.{0..1}.w", "8"), ("up.{0..2}.res.{0..1}.b", "8")]
    assert list(expand(compress(lines))) == lines


NAMES = st.lists(st.lists(st.sampled_from(["a", "b", "0", "1", "2", "10"]), min_size=1, max_size=4), max_size=12)


@given(NAMES)
def test_whatever_is_compressed_comes_back(parts: list[list[str]]) -> None:
    lines = [(".".join(part), str(len(part))) for part in parts]
    lines = sorted(set(lines))
    assert list(expand(compress(lines))) == lines
