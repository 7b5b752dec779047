from harness.acceptance.runner import accept as accept
from harness.core.boards import load_board as load_board
from harness.core.corpus import check_corpus as check_corpus
from harness.core.corpus import read_corpus as read_corpus
from harness.core.corpus import write_corpus as write_corpus
from harness.core.device_types import DeviceType as DeviceType
from harness.core.errors import HarnessError as HarnessError
from harness.core.power_modes import PowerMode as PowerMode
from harness.core.power_modes import PowerModeSpace as PowerModeSpace
from harness.measure.doctor import doctor as doctor
from harness.store.results import ResultsStore as ResultsStore
from harness.workloads.workload import Workload as Workload
from jetwatt.fitting import fit as fit
from jetwatt.fitting import load as load
from jetwatt.judging import compare as compare
from jetwatt.judging import history as history
from jetwatt.reporting import report as report
from jetwatt.results import open_results as open_results
from predictors.models.base import make_predictor as make_predictor
from predictors.models.base import predictor_class as predictor_class
from predictors.search.concurrent import concurrent as concurrent
from predictors.search.evaluate import evaluate as evaluate
from predictors.search.recommend import recommend as recommend
from predictors.search.tuning import tuning as tuning
from predictors.strategies.goals import Goal as Goal
from predictors.strategies.goals import power_budget as power_budget

__version__: str
