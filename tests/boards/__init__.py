"""Jetson boards off-board: trees of their kernel files, an emulator that behaves like their kernel, and their tools.

    tree = build_board(tmp_path / "root", "orin-agx", "r36.4")     the files, as after booting into the default mode
    kernel = Kernel(tree.root)                                     writes by the kernel's rules, readings by a load
    with Emulator(tree.root) as emulator: ...                      the same for whoever writes to the files directly

The tools in the tree (`usr/sbin/nvpmodel`, `usr/bin/jetson_clocks`, `systemctl`) act on it likewise.
"""
