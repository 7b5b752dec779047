"""`concurrent`: plan the fastest training while inference requests are served in time."""

from __future__ import annotations

import argparse
import signal
import sys

from harness.cli.options import comma_separated, output_file, whole_numbers, write_json
from harness.core.cases import INFERENCE, WAYS
from harness.core.errors import CannotRunError
from harness.core.terminal import Progress
from predictors.choose.request import Job, Search
from predictors.cli.options import add_search_arguments, fields_in, numbers
from predictors.plans.choice import SEARCHES
from predictors.plans.concurrent import MEASURED, PERCENTILES, concurrent


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = "exit code: 0 a plan keeps the limits; 2 none does, and the nearest one is shown"
    add = parser.add_argument
    add("--device", required=True, help="`host`, a board, `sim:orin-agx`")
    add("--training", required=True, metavar="W", help="workload to train; your own as module:NAME")
    add("--inference", required=True, metavar="W", help="workload that serves requests; your own as module:NAME")
    add("--arrival-rate", type=float, required=True, metavar="N", help="requests per second")
    add(
        "--latency-limit",
        dest="latency_ms",
        type=float,
        required=True,
        metavar="MS",
        help="for --percentile of the requests",
    )
    add("--percentile", type=int, choices=PERCENTILES, default=PERCENTILES[0], help="in %% (default: %(default)s)")
    add("--power-budget", dest="power_w", type=float, metavar="W", help="maximum mean power")
    add("--batch-size", default="16", metavar="LIST", help="of the training; several to choose from (default: 16)")
    add("--inference-batches", default="1,4,16", metavar="LIST", help="to choose from (default: 1,4,16)")
    add("--workers", type=int, help="num_workers of the training (default: as in the papers: 4, or 0 for YOLO)")
    add(
        "--switching-ms", metavar="MS",
        help=f"allow a mode for each kind of work, at this cost of a mode change, or `{MEASURED}` to measure it here",
    )  # fmt: skip
    add(
        "--ways", type=comma_separated, default=",".join(WAYS), metavar="LIST",
        help="how both may run: %(default)s (default: all that this device supports)",
    )  # fmt: skip
    add("--strategy", choices=SEARCHES, default=SEARCHES[0], help="search strategy (default: %(default)s)")
    add(
        "--duration", dest="check_s", type=float, default=30.0, metavar="S",
        help="of the run that checks a plan (default: 30)",
    )  # fmt: skip
    add_search_arguments(parser, profiles=30)
    add("--resume", action="store_true", help="take profiles of the same conditions from --results")
    add("--json", type=output_file, metavar="OUT", help="write goal, choice and outcome")


def run(arguments: argparse.Namespace) -> int:
    switching_ms = arguments.switching_ms
    if switching_ms not in (None, MEASURED):
        switching_ms = numbers("--switching-ms", switching_ms, "20", may_be_0=True)[0]
    batch_sizes = whole_numbers("--batch-size", arguments.batch_size, "4,16,64")
    inference_batches = whole_numbers("--inference-batches", arguments.inference_batches, "1,4,16")
    training = fields_in(Job, arguments, workload=arguments.training, batch_size=batch_sizes)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)  # a closed pipe must not end this before the device is restored
    plans = concurrent(
        arguments.device,
        training=training,
        inference=Job(arguments.inference, inference_batches, task=INFERENCE),
        arrival_rate=arguments.arrival_rate,
        latency_ms=arguments.latency_ms,
        power_w=arguments.power_w,
        switching_ms=switching_ms,
        ways=arguments.ways,
        search=fields_in(Search, arguments),
        progress=Progress(sys.stderr),
    )
    print(plans)
    if arguments.json:
        write_json(arguments.json, plans.plain())
    if not plans.keeps_limits:
        raise CannotRunError("no plan keeps the limits", "see the nearest one above, or relax the limits")
    return 0
