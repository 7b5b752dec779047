"""What DVFS changes while a device trains (004 sec. 5.5)."""

from __future__ import annotations

from harness.core.cases import DVFS, STATIC
from harness.judge.findings import Finding
from harness.judge.takeaway import ALMOST, CIFAR, LENET, MOBILENET, ORIN, XAVIER, Takeaways, Views
from harness.judge.view import View

TAKEAWAYS = Takeaways("dvfs")

FREE = ({"clocks": STATIC}, {"clocks": DVFS})


@TAKEAWAYS.of("004 5.5.1", "F1006", "F1010", boards=(XAVIER,))
def dvfs_hardly_changes_time(view: View, views: Views) -> Finding:
    """With DVFS on, no epoch takes more or less time by 3 % or more (004: within 2 %; its figures make it 2.6 %)."""
    return Finding(view.compare("time", *FREE), "time with DVFS / static clocks", above=ALMOST, below=2.0 - ALMOST)


@TAKEAWAYS.of("004 5.5.1", "F1009", "F1010", boards=(XAVIER,))
def dvfs_hardly_changes_energy(view: View, views: Views) -> Finding:
    """With DVFS on, no epoch takes more or less energy by 6 % or more.

    004 has 3 % at most; a single run tells energy no better than to 3 %.
    """
    return Finding(view.compare("energy", *FREE), "energy with DVFS / static clocks", above=0.94, below=1.06)


@TAKEAWAYS.of("004 5.5.2", "F1014", "F1016", boards=(XAVIER,))
def dvfs_lowers_the_gpu_clock_under_a_small_network(view: View, views: Views) -> Finding:
    """With DVFS on LeNet uses at least 1.7 times as much of the GPU: its clock is lower.

    004 has 14 to 34 % where it was 7 %: twice at least, with 15 %.
    """
    cells = view.compare("gpu_load", *FREE, workload=LENET)
    return Finding(cells, "use of the GPU with DVFS / static clocks", above=1.7)


@TAKEAWAYS.of("004 5.5.2", "F1017", boards=(XAVIER,))
def dvfs_leaves_the_gpu_clock_under_large_networks(view: View, views: Views) -> Finding:
    """With DVFS on ResNet on CIFAR and MobileNet use as much of the GPU as without, within 15 % (004: about 100 %)."""
    cells = view.compare("gpu_load", *FREE, workload=(CIFAR, MOBILENET))
    return Finding(cells, "use of the GPU with DVFS / static clocks", above=0.85, below=1.15)


@TAKEAWAYS.of("002 II.1", "F598", boards=(XAVIER, ORIN))
def static_clocks_are_no_slower(view: View, views: Views) -> Finding:
    """Without DVFS training is at least as fast: with it on, no epoch is shorter by 2.5 % or more.

    That is what two single runs differ.
    """
    return Finding(view.compare("time", *FREE), "time with DVFS / static clocks", above=0.975)
