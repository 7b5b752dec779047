"""The call of `import jetwatt` behind each command, for the commands' reference pages."""

from __future__ import annotations

from typing import Dict

from tools.docs.markdown import UndocumentedError, code

CALLS: Dict[str, Dict[str, str]] = {
    "advise": {"": "jetwatt.advise(epochs, epoch_minutes)"},
    "baseline check": {"": "jetwatt.check_baseline(results, baseline)"},
    "baseline record": {"": "jetwatt.record_baseline(results, baseline)"},
    "bisect-versions": {"": "jetwatt.bisect_versions(good, bad, among=[...])"},
    "check": {"": "jetwatt.check_requirements(results, requirements)"},
    "compare": {"": "jetwatt.compare(before, after)"},
    "concurrent": {
        "": "jetwatt.concurrent(device, training=..., inference=..., arrival_rate=..., latency_ms=..., "
        "search=jetwatt.Search(...))"
    },
    "corpus simulate": {"": "jetwatt.simulate_corpus(board, workload, modes, out=...)"},
    "doctor": {"": "jetwatt.doctor(device)", "--accept": "jetwatt.accept(device)"},
    "evaluate": {"": "jetwatt.evaluate(corpus, target=..., learning=jetwatt.Learning(...), runs=jetwatt.Runs(...))"},
    "export": {
        "": "jetwatt.open_results(file).profiles()",
        "--minibatches": "jetwatt.open_results(file).minibatches()",
        "--telemetry": "jetwatt.open_results(file).telemetry()",
        "--openmetrics": "jetwatt.openmetrics(results, device)",
    },
    "fit": {"": "jetwatt.fit(corpus, workload=...).save(path)"},
    "history": {"": "jetwatt.history(files)"},
    "import": {"": "jetwatt.write_corpus(path, jetwatt.read_corpus(file))"},
    "modes": {"": "jetwatt.load_board(board).power_modes(text)"},
    "nvpmodel-conf": {"": "jetwatt.nvpmodel_conf(board, power_mode)", "--parse": "jetwatt.nvpmodel_modes(file)"},
    "predict": {"": "jetwatt.load(model).predict(board)"},
    "prior evaluate": {"": "jetwatt.evaluate_prior(corpora, leave_out=..., runs=jetwatt.Runs(...))"},
    "prior learn": {"": "jetwatt.learn_prior(corpora, out=...)"},
    "published": {"": "jetwatt.published(fact=[...], runs=jetwatt.Runs(...))"},
    "recommend": {
        "": "jetwatt.recommend(device, workload=jetwatt.Job(...), power_w=..., budget=jetwatt.Budget(...), "
        "search=jetwatt.Search(...))",
        "--write-conf": "jetwatt.recommend(device, workload=..., power_w=..., writes_conf=True).write_conf(path)",
    },
    "report": {"": "jetwatt.report(results, out=...)"},
    "restore": {"": "jetwatt.restore(device)"},
    "results archive": {"": "jetwatt.archive_results(nights, older_than=60)"},
    "results info": {"": "jetwatt.open_results(file).profiles()"},
    "results merge": {"": "jetwatt.merge_results(files, out=...)"},
    "results prune": {"": "jetwatt.prune_results(file, keep_raw=30)"},
    "run": {"": "jetwatt.run_command(jetwatt.Command(argv, ...), device=...)"},
    "scenario": {"": "jetwatt.scenario(name, runs=jetwatt.Runs(...))", "without a name": "jetwatt.scenarios()"},
    "strategies evaluate": {
        "": "jetwatt.evaluate_strategies(corpus, strategies=..., budgets=jetwatt.BudgetSweep(...))"
    },
}
"""The calls of each command or action; the call behind an option, or another case, is named by it."""

WITHOUT_CALL = {"fleet": "it needs a lab", "simulation": "it needs a clone"}
"""Commands that have no call, and why."""


def call_of(action: str) -> str:
    """The sentence with the calls of a command, such as `fit` or `results merge`.

    Raises:
        UndocumentedError: it has neither a call nor a reason why there is none.
    """
    reason = WITHOUT_CALL.get(action.partition(" ")[0])
    if reason:
        return f"There is no call for it in Python: {reason}."
    if action not in CALLS:
        raise UndocumentedError(f"`{action}` has no call in tools/docs/calls.py, and no reason why there is none")
    calls = []
    for case, call in CALLS[action].items():
        name = code(case) if case.startswith("--") else case
        calls.append(f"{name}: {code(call)}" if name else code(call))
    return f"In Python: {'; '.join(calls)}."
