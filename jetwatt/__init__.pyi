from typing import Dict

from harness.acceptance.runner import accept as accept
from harness.board.nvpmodel_making import nvpmodel_conf as nvpmodel_conf
from harness.board.nvpmodel_making import nvpmodel_modes as nvpmodel_modes
from harness.board.saved_state import restore as restore
from harness.board.source import file_source as file_source
from harness.core.boards import load_board as load_board
from harness.core.corpus import check_corpus as check_corpus
from harness.core.corpus import read_corpus as read_corpus
from harness.core.corpus import write_corpus as write_corpus
from harness.core.device_types import DeviceType as DeviceType
from harness.core.errors import HarnessError as HarnessError
from harness.core.errors import SourceUnavailableError as SourceUnavailableError
from harness.core.measured_tables import load_table as load_table
from harness.core.power_modes import PowerMode as PowerMode
from harness.core.power_modes import PowerModeSpace as PowerModeSpace
from harness.devices.host import HostDevice as HostDevice
from harness.judge.baseline import record_baseline as record_baseline
from harness.judge.bisection import bisect_versions as bisect_versions
from harness.judge.claims import claim as claim
from harness.measure.doctor import doctor as doctor
from harness.openmetrics import openmetrics as openmetrics
from harness.simulation.corpus import simulate_corpus as simulate_corpus
from harness.store.archive import archive_results as archive_results
from harness.store.maintenance import merge_results as merge_results
from harness.store.maintenance import prune_results as prune_results
from harness.store.results import ResultsStore as ResultsStore
from harness.table_import import import_table as import_table
from harness.workloads.workload import Workload as Workload
from jetwatt.judging import check_baseline as check_baseline
from jetwatt.judging import compare as compare
from jetwatt.judging import history as history
from jetwatt.reporting import report as report
from jetwatt.results import open_results as open_results
from predictors.choose.budget import Budget as Budget
from predictors.choose.fitting import fit as fit
from predictors.choose.fitting import load as load
from predictors.choose.job import Job as Job
from predictors.choose.recommend import recommend as recommend
from predictors.choose.search import Search as Search
from predictors.choose.tuning import tuning as tuning
from predictors.contest.evaluate import evaluate as evaluate
from predictors.contest.prior import evaluate_prior as evaluate_prior
from predictors.contest.prior import learn_prior as learn_prior
from predictors.contest.published import published as published
from predictors.contest.scenario import scenario as scenario
from predictors.contest.scenario import scenarios as scenarios
from predictors.contest.strategies import evaluate_strategies as evaluate_strategies
from predictors.goals import Goal as Goal
from predictors.goals import power_budget as power_budget
from predictors.models.registry import make_predictor as make_predictor
from predictors.models.registry import predictor_class as predictor_class
from predictors.plans.concurrent import concurrent as concurrent
from predictors.strategies.advise import advise as advise

_MODULES: Dict[str, str]
__version__: str
