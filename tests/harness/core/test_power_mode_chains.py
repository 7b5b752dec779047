"""Chains of clocks: they hold every point once, fall, are as few as can be, and the cheapest are the cheapest."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.core.mode_orders import Clocks, cheapest_chains, fewest_chains

points = st.lists(st.builds(Clocks, st.integers(1, 4), st.integers(1, 4)), max_size=6, unique=True)
clock_sets = st.lists(st.builds(Clocks, st.integers(1, 40), st.integers(1, 40)), max_size=60, unique=True)


def unlike(one, other):
    """A cost: how many of the two clocks differ, and something that tells the points apart."""
    return sum(a != b for a, b in zip(one, other)) + (one.cpu_khz * 3 + other.gpu_khz * 5) % 4


def splits(items):
    """Every way to split items into sequences, brute force."""
    for order in itertools.permutations(items):
        for cuts in itertools.product((False, True), repeat=max(len(items) - 1, 0)):
            chains = [[order[0]]] if order else []
            for item, cut in zip(order[1:], cuts):
                if cut:
                    chains.append([item])
                else:
                    chains[-1].append(item)
            yield chains


def falls(chain):
    return all(after.may_follow(before) for before, after in zip(chain, chain[1:]))


def total(chains):
    return sum(unlike(one, other) for chain in chains for one, other in zip(chain, chain[1:]))


def cheapest(given_points):
    return cheapest_chains(given_points, unlike)


@pytest.mark.parametrize("split", [fewest_chains, cheapest])
@given(clock_sets)
def test_chains_hold_each_point_once_and_never_rise(split, given_points):
    chains = split(given_points)
    assert sorted(point for chain in chains for point in chain) == sorted(given_points)
    assert all(chain and falls(chain) for chain in chains)


@given(points)
def test_no_split_has_fewer_chains(given_points):
    fewest = min(len(chains) for chains in splits(given_points) if all(map(falls, chains)))
    assert len(fewest_chains(given_points)) == len(cheapest(given_points)) == fewest


@given(clock_sets)
def test_both_ways_find_the_same_number_of_chains(given_points):
    assert len(fewest_chains(given_points)) == len(cheapest(given_points))


@given(points)
def test_no_split_into_the_fewest_chains_is_cheaper(given_points):
    chains = cheapest(given_points)
    allowed = (split for split in splits(given_points) if len(split) == len(chains) and all(map(falls, split)))
    assert total(chains) == min(map(total, allowed))


def test_a_full_grid_takes_as_many_chains_as_its_shorter_side_is_long():
    grid = [Clocks(cpu, gpu) for cpu in range(29) for gpu in range(13)]
    assert len(fewest_chains(grid)) == 13
