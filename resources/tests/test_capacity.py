"""Messages for requests that no host could ever fit, at the right field."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from resources.amounts.capacity import Capacity, shortfalls
from resources.amounts.units import GIB

CPU_HOST = Capacity(cpu=16, memory=64 * GIB)
GPU_HOST = Capacity(cpu=4, memory=8 * GIB, gpu_count=2, gpu_capacity=2000)
HOSTS = (CPU_HOST, GPU_HOST)


@pytest.mark.parametrize(("cpu", "memory", "fgpu"), [(16, 64 * GIB, 0), (4, 8 * GIB, 4000), (1, GIB, 3010), (0, 0, 0)])
def test_a_request_that_fits_a_host_is_accepted(cpu: int, memory: int, fgpu: int) -> None:
    assert shortfalls(HOSTS, cpu=cpu, memory=memory, fgpu=fgpu) == {}


def test_each_field_above_the_largest_host_is_named() -> None:
    assert shortfalls(HOSTS, cpu=17, memory=65 * GIB, fgpu=4010) == {
        "cpu": "The largest host of this group has 16 CPU cores.",
        "memory": "The largest host of this group has 64 GiB of memory.",
        "fgpu": "The largest host of this group has 4 fGPU.",
    }


def test_a_group_without_gpus_says_so() -> None:
    assert shortfalls((CPU_HOST,), cpu=1, memory=GIB, fgpu=10) == {"fgpu": "No host of this group has a GPU."}


def test_the_scarcest_amount_across_hosts_is_named() -> None:
    hosts = (CPU_HOST, CPU_HOST, GPU_HOST)
    assert shortfalls(hosts, cpu=8, memory=GIB, fgpu=1000) == {
        "fgpu": "Hosts of this group with 8 CPU cores and 1 GiB of memory have no GPU."
    }
    assert shortfalls((CPU_HOST, GPU_HOST, GPU_HOST), cpu=8, memory=GIB, fgpu=1000) == {
        "cpu": "Hosts of this group with 1 GiB of memory and 1 fGPU have at most 4 CPU cores."
    }


def test_amounts_on_separate_hosts_are_refused_together() -> None:
    large_memory = Capacity(cpu=2, memory=128 * GIB)
    assert shortfalls((CPU_HOST, GPU_HOST, large_memory), cpu=16, memory=128 * GIB, fgpu=1000) == {
        "fgpu": "No host of this group has 16 CPU cores, 128 GiB of memory and 1 fGPU together."
    }


def test_without_known_hosts_nothing_is_refused() -> None:
    assert shortfalls((), cpu=1000, memory=GIB, fgpu=1000) == {}


@given(
    st.lists(
        st.builds(
            Capacity,
            cpu=st.integers(1, 4),
            memory=st.integers(1, 4),
            gpu_count=st.integers(0, 2),
            gpu_capacity=st.just(1000),
        ),
        min_size=1,
        max_size=4,
    ),
    st.integers(0, 5),
    st.integers(0, 5),
    st.integers(0, 10).map(lambda part: part * 250),
)
def test_a_request_is_refused_iff_no_host_fits(hosts: list[Capacity], cpu: int, memory: int, fgpu: int) -> None:
    possible = any(host.cpu >= cpu and host.memory >= memory and host.fgpu >= fgpu for host in hosts)
    assert (not shortfalls(hosts, cpu=cpu, memory=memory, fgpu=fgpu)) == possible
