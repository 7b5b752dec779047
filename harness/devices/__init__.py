"""Devices: what training runs on, or a stand-in for it, each behind the protocol of `protocol.py`."""
