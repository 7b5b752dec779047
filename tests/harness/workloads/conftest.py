"""Data sets written once for all tests of the workloads, and a network that is cut off."""

import socket

import pytest

from harness.workloads.data.data_set import prepare


def ignore(line):
    """Take a line of progress and forget it."""


@pytest.fixture(scope="session")
def storage_dir(tmp_path_factory):
    """One storage for the whole run: what a test asks for again is there already."""
    return tmp_path_factory.mktemp("storage")


@pytest.fixture(scope="session")
def prepare_samples(storage_dir):
    """A function that prepares so many samples of a data set."""

    def prepare_(data_set, samples, seed=0):
        return prepare(data_set, storage_dir, None, samples / data_set.real_samples, seed, ignore)

    return prepare_


@pytest.fixture
def no_network(monkeypatch):
    """Make every attempt to look up a name or to connect fail at once."""

    def refuse(*args, **kwargs):
        raise AssertionError(f"the network was touched: {args!r}")

    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.setattr(socket, "create_connection", refuse)
    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket.socket, "connect_ex", refuse)
