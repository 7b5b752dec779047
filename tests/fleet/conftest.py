"""The tests with real daemons take minutes: they run where `make fleet-test` asks for them."""

import os

collect_ignore = (
    []
    if os.environ.get("JETWATT_FLEET_TESTS")
    else [
        "test_faults.py",
        "test_fault_table.py",
        "test_second_user.py",
    ]
)
