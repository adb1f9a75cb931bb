"""Arrays in columns: how wide chunks are, precision, and maps of files."""

from types import SimpleNamespace

import numpy as np
import pytest

from brainweave import Subject
from brainweave._core import arrays


@pytest.mark.parametrize(
    ("n", "wanted"),  # 16 MiB; 32 n^2 bytes where that is more; 64 MiB at most
    [(1, 2**21), (100, 20971), (700, 2995), (1000, 4000), (2000, 4194), (50_000, 256)],
)
def test_chunks_are_wider_for_more_samples(n, wanted):
    assert arrays.chunk_width(n) == wanted
    x = np.broadcast_to(np.float32(1), (n, 2 * wanted + 1))
    starts = [(c.start, c.stop, part.shape) for c, part in arrays.column_chunks(x)]
    ends = [(0, wanted), (wanted, 2 * wanted), (2 * wanted, 2 * wanted + 1)]
    assert starts == [(a, b, (n, b - a)) for a, b in ends]


def test_floats_of_up_to_32_bits_are_worked_with_in_single_precision():
    for name, wanted in (
        ("float16", "float32"), ("float32", "float32"), ("float64", "float64"),
        ("int16", "float64"), ("bool", "float64"),
    ):  # fmt: skip
        x = np.ones((2, 2), name)
        assert arrays.working_dtype(x) == wanted
        assert arrays.ops_for(x).array(x).dtype == wanted
        assert arrays.as_kind_of(x, np.arange(3)).dtype == wanted


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("transient", [True, False])
def test_differences_that_pass_reuse_their_memory(rng, order, transient):
    ops = arrays.ops_for(np.ones((1, 1)))
    first = np.asarray(rng.normal(size=(6, 5)), order=order)
    mean = first.mean(axis=0)
    kept = first.copy()
    if not transient:  # unless it is said
        kept_apart = [ops.subtract(first, mean) for _ in range(2)]
        assert not np.shares_memory(*kept_apart)
    found = ops.subtract(first, mean, transient=transient)
    np.testing.assert_array_equal(found, kept - mean)
    np.testing.assert_array_equal(first, kept)
    assert found.flags["F_CONTIGUOUS"] == (order == "F")
    smaller = ops.subtract(2 * first[:, :3], mean[:3], transient=transient)
    np.testing.assert_array_equal(smaller, 2 * kept[:, :3] - mean[:3])
    assert np.shares_memory(found, smaller) == transient
    larger = ops.subtract(np.ones((6, 9)), np.zeros(9), transient=transient)
    assert larger.shape == (6, 9)
    assert ops.inner(first, 2 * first) == pytest.approx(2 * (kept**2).sum())


def test_maps_that_can_be_written_to_are_sent_as_copies(tmp_path):
    np.save(tmp_path / "x.npy", np.arange(12.0).reshape(3, 4))
    maps = {m: np.load(tmp_path / "x.npy", mmap_mode=m) for m in ("r", "r+", "c")}
    for mode, mapped in maps.items():
        view = mapped[1:, ::2].T
        assert arrays.backing_map(view).mode == mode
        sent = arrays.as_sendable(view)
        assert (sent is view) == (mode == "r")
        np.testing.assert_array_equal(sent, view)
    plain = np.ones(3)
    assert arrays.as_sendable(plain) is plain
    assert arrays.backing_map(plain) is arrays.backing_map(None) is None
    changed = maps["c"]
    changed[0, 0] = -7
    arrays.release_pages(changed)  # pages that exist nowhere else stay
    assert changed[0, 0] == -7
    arrays.release_pages(maps["r"])
    np.testing.assert_array_equal(maps["r"][1], [4, 5, 6, 7])


def test_samples_of_a_subject_are_unread_where_chunks_can_be_read():
    x = np.ones((4, 3))

    class Source:
        shape, dtype = (4, 3), np.dtype(float)

        def read(self):
            return x

    assert arrays.samples_of(x) is x
    assert arrays.samples_of(Subject("a", x)) is Subject("a", x).samples
    lazy = arrays.samples_of(Subject("a", Source()))
    np.testing.assert_array_equal(lazy, x)
    assert not arrays.is_torch(x)
    assert not arrays.on_gpu(x)


class Tensor:
    """What is used of a tensor of torch."""

    __module__ = "torch._tensor"

    def __init__(self, values, dtype="torch.float32", device="cpu"):
        self.values, self.dtype = np.asarray(values), dtype
        self.device = SimpleNamespace(type=device)

    def detach(self):
        return Tensor(self.values, "detached")

    def cpu(self):
        assert self.dtype == "detached"  # or its gradient would be taken along
        return self

    def numpy(self):
        return self.values


def test_tensors_are_known_by_the_module_of_their_type():
    tensor = Tensor([1.0, 2.0])
    assert arrays.is_torch(tensor)
    assert not arrays.on_gpu(tensor)
    assert arrays.on_gpu(Tensor([1.0], device="cuda"))
    assert not arrays.on_gpu(SimpleNamespace(device=SimpleNamespace(type="cuda")))
    for module in ("torchvision.tv", "x.torch", "_torch"):
        other = type("Tensor", (), {"__module__": module})()
        assert not arrays.is_torch(other)
    np.testing.assert_array_equal(arrays.to_numpy(tensor), [1, 2])
    for name, wanted in (
        ("torch.float16", "float32"), ("torch.bfloat16", "float32"),
        ("torch.float32", "float32"), ("torch.float64", "float64"),
        ("torch.int32", "float64"),
    ):  # fmt: skip
        assert arrays.working_dtype(Tensor([1.0], name)) == wanted
