"""On PYTHONPATH it takes away what only Linux has, as far as Python code sees it: /proc, /sys, functions of `os`.

What needs no board works like this, as on macOS. `sys.platform` stays, because `sysconfig` needs it.
"""

import builtins
import functools
import io
import os

GONE = ("/proc", "/sys")
LINUX_ONLY = (
    "sched_getaffinity", "sched_setaffinity", "sched_getscheduler", "sched_setscheduler", "sched_param",
    "posix_fadvise", "posix_fallocate", "memfd_create", "pidfd_open", "eventfd", "splice", "copy_file_range",
    "getxattr", "setxattr", "listxattr", "setns", "unshare", "getrandom", "O_DIRECT", "O_TMPFILE", "O_PATH",
)  # fmt: skip


def refuse_gone(function):
    @functools.wraps(function)
    def call(path=".", *arguments, **options):
        if isinstance(path, (str, bytes, os.PathLike)):
            folders = os.path.normpath(os.fsdecode(path)).split(os.sep)
            if os.sep.join(folders[:2]) in GONE:
                raise FileNotFoundError(2, "No such file or directory", os.fspath(path))
        return function(path, *arguments, **options)

    return functools.partial(call)  # no method where it is an attribute of a class, as in pathlib of Python 3.8


for name in LINUX_ONLY:
    if hasattr(os, name):
        delattr(os, name)
for name in ("open", "stat", "lstat", "listdir", "scandir", "readlink", "statvfs"):
    setattr(os, name, refuse_gone(getattr(os, name)))
builtins.open = io.open = refuse_gone(io.open)
