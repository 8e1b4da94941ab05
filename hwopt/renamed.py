"""Deprecated public names: the old ones work until version 0.4 and give a `DeprecationWarning`, once each.

`results/renames/rename.py` writes the two tables. A module with an old name ends in `__getattr__ = renamed.getter(__name__)`.
`Finder` finds modules that moved. Neither imports anything before an old name is used.
"""

import importlib.util
import sys
import warnings
from collections.abc import Callable
from importlib import import_module
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

NAMES: dict[str, str] = {
    "hwopt.catalog.Quantity": "hwopt.catalog.StatedQuantity",
    "hwopt.catalog.config_families.Experts": "hwopt.catalog.config_families.ExpertKeys",
    "hwopt.catalog.config_families.Family": "hwopt.catalog.config_families.ConfigFamily",
    "hwopt.catalog.schema.Quantity": "hwopt.catalog.schema.StatedQuantity",
    "hwopt.design.design.completed": "hwopt.design.design.with_derived_parts",
    "hwopt.design.exact.DrawnChip": "hwopt.design.exact.CustomChipSummary",
    "hwopt.design.exact.Exact": "hwopt.design.exact.ExactValues",
    "hwopt.design.lattices.without_lattice": "hwopt.design.lattices.reason_without_lattice",
    "hwopt.design.portfolio.Listing": "hwopt.design.portfolio.PortfolioMembers",
    "hwopt.design.portfolio.jointly": "hwopt.design.portfolio.with_joint_budgets",
    "hwopt.design.portfolio.listed": "hwopt.design.portfolio.portfolio_of",
    "hwopt.design.problem.Form": "hwopt.design.problem.ProblemForm",
    "hwopt.design.problem.Values": "hwopt.design.problem.LogValues",
    "hwopt.design.problem.place": "hwopt.design.problem.design_at",
    "hwopt.design.problem.put": "hwopt.design.problem.set_variables",
    "hwopt.design.variables.Place": "hwopt.design.variables.VariableLens",
    "hwopt.model.bill.Line": "hwopt.model.facility.bill.BillLine",
    "hwopt.model.fleet_pipeline.Place": "hwopt.model.fleet.pipeline.PipelinePosition",
    "hwopt.model.fleet_pipeline.Stages": "hwopt.model.fleet.pipeline.PipelineStages",
    "hwopt.model.fleet_pipeline.places": "hwopt.model.fleet.pipeline.pipeline_positions",
    "hwopt.model.layer.Exposed": "hwopt.model.layers.layer_time.ExposedTime",
    "hwopt.model.manufacture.Bill": "hwopt.model.chip.manufacture.ChipBill",
    "hwopt.model.manufacture.Carbon": "hwopt.model.chip.manufacture.EmbodiedCarbon",
    "hwopt.model.pace.Pace": "hwopt.model.chip.sustained_clock.ClockModel",
    "hwopt.model.pace.at_work": "hwopt.model.chip.sustained_clock.clock_under_load",
    "hwopt.model.ramp.Run": "hwopt.model.training.batch_ramp.RampRun",
    "hwopt.model.ramp.Stages": "hwopt.model.training.batch_ramp.RampStages",
    "hwopt.model.silicon.Margins": "hwopt.model.chip.silicon.ChipMargins",
    "hwopt.workload.blueprint.Stated": "hwopt.workload.blueprint.StatedClaim",
}
"""Old dotted path of a class, function or constant -> new path."""

MODULES: dict[str, str] = {
    "hwopt.arguments": "hwopt.validation",
    "hwopt.cli.check": "hwopt.cli.commands.check",
    "hwopt.cli.compare": "hwopt.cli.commands.compare",
    "hwopt.cli.completion": "hwopt.cli.commands.completion",
    "hwopt.cli.deploy": "hwopt.cli.commands.deploy",
    "hwopt.cli.docs": "hwopt.cli.commands.docs",
    "hwopt.cli.estimate": "hwopt.cli.commands.estimate",
    "hwopt.cli.fabrics": "hwopt.cli.commands.fabrics",
    "hwopt.cli.fleet": "hwopt.cli.commands.fleet",
    "hwopt.cli.invest": "hwopt.cli.commands.invest",
    "hwopt.cli.kinds": "hwopt.cli.value_types",
    "hwopt.cli.measured": "hwopt.cli.commands.measured",
    "hwopt.cli.optimize": "hwopt.cli.commands.optimize",
    "hwopt.cli.plan": "hwopt.cli.commands.plan",
    "hwopt.cli.plan_asked": "hwopt.cli.plan_args",
    "hwopt.cli.scale": "hwopt.cli.commands.scale",
    "hwopt.cli.schema": "hwopt.cli.commands.schema",
    "hwopt.cli.sensitivity": "hwopt.cli.commands.sensitivity",
    "hwopt.cli.sources": "hwopt.cli.commands.sources",
    "hwopt.cli.splits": "hwopt.cli.split_ranking",
    "hwopt.cli.sweep": "hwopt.cli.commands.sweep",
    "hwopt.cli.walls": "hwopt.cli.commands.walls",
    "hwopt.cli.work": "hwopt.cli.request",
    "hwopt.convex": "hwopt.solver.gp",
    "hwopt.convex.answers": "hwopt.solver.interior_point.result",
    "hwopt.convex.feasibility": "hwopt.solver.interior_point.elastic",
    "hwopt.convex.frames": "hwopt.solver.interior_point.sparsity",
    "hwopt.convex.interior_point": "hwopt.solver.interior_point.batch",
    "hwopt.convex.levels": "hwopt.solver.gp.monotone_cuts",
    "hwopt.convex.newton": "hwopt.solver.interior_point.newton",
    "hwopt.convex.on_device": "hwopt.solver.interior_point.device_loop",
    "hwopt.convex.programme": "hwopt.solver.gp.program",
    "hwopt.convex.recording": "hwopt.solver.gp.replay",
    "hwopt.convex.sparse_cholesky": "hwopt.solver.interior_point.factorization",
    "hwopt.convex.supports": "hwopt.solver.gp.outer_linearization",
    "hwopt.convex.tangents": "hwopt.solver.gp.condensation",
    "hwopt.evidence": "hwopt.calibration",
    "hwopt.evidence.calibration": "hwopt.calibration.fit",
    "hwopt.evidence.calibration.calibrate": "hwopt.calibration.fit.calibrate",
    "hwopt.evidence.calibration.checks": "hwopt.calibration.fit.checks",
    "hwopt.evidence.calibration.files": "hwopt.calibration.fit.files",
    "hwopt.evidence.calibration.fit": "hwopt.calibration.fit.posterior",
    "hwopt.evidence.calibration.learned": "hwopt.calibration.fit.posterior_summary",
    "hwopt.evidence.calibration.next_measurement": "hwopt.calibration.fit.next_measurement",
    "hwopt.evidence.calibration.observations": "hwopt.calibration.fit.observations",
    "hwopt.evidence.calibration.options": "hwopt.calibration.fit.options",
    "hwopt.evidence.calibration.own_runs": "hwopt.calibration.fit.transfer",
    "hwopt.evidence.calibration.screen": "hwopt.calibration.fit.screen",
    "hwopt.evidence.collected_text": "hwopt.calibration.measured.collected_text",
    "hwopt.evidence.collected_words": "hwopt.calibration.measured.text_rules",
    "hwopt.evidence.columns": "hwopt.calibration.measured.columns",
    "hwopt.evidence.negation": "hwopt.calibration.measured.negation",
    "hwopt.evidence.protocol": "hwopt.calibration.holdout",
    "hwopt.evidence.rows": "hwopt.calibration.measured.rows",
    "hwopt.evidence.stacks": "hwopt.calibration.measured.stacks",
    "hwopt.evidence.table": "hwopt.calibration.measured.table",
    "hwopt.evidence.validation.degrees": "hwopt.calibration.validation.plan_priors",
    "hwopt.evidence.validation.mixture": "hwopt.calibration.validation.imputation",
    "hwopt.evidence.validation.openings": "hwopt.calibration.validation.missing_settings",
    "hwopt.evidence.validation.reasons": "hwopt.calibration.validation.skip",
    "hwopt.evidence.validation.routing": "hwopt.calibration.validation.expert_imbalance",
    "hwopt.folders": "hwopt.cache_folders",
    "hwopt.integers.completion": "hwopt.integers.sampling",
    "hwopt.integers.relaxation": "hwopt.solver.gp.integer_relaxation",
    "hwopt.jaxprs": "hwopt.trace",
    "hwopt.jaxprs.cheaper": "hwopt.trace.simplify",
    "hwopt.jaxprs.compiler": "hwopt.trace.compiler_options",
    "hwopt.jaxprs.dies_made": "hwopt.trace.yield_primitive",
    "hwopt.jaxprs.in_numpy": "hwopt.trace.numpy_executor",
    "hwopt.jaxprs.kept": "hwopt.trace.cache",
    "hwopt.jaxprs.known_numbers": "hwopt.trace.constant_folding",
    "hwopt.jaxprs.loops": "hwopt.trace.fusion_barriers",
    "hwopt.jaxprs.monotone": "hwopt.trace.monotone_primitives",
    "hwopt.jaxprs.origins": "hwopt.trace.source_info",
    "hwopt.jaxprs.sound": "hwopt.trace.jax_selftest",
    "hwopt.jaxprs.straight_line": "hwopt.trace.scalar_program",
    "hwopt.jaxprs.written_out": "hwopt.trace.primitive_compat",
    "hwopt.leftovers": "hwopt.cleanup",
    "hwopt.model.bill": "hwopt.model.facility.bill",
    "hwopt.model.chip_project": "hwopt.model.chip.chip_project",
    "hwopt.model.collectives": "hwopt.model.network.collectives",
    "hwopt.model.cost": "hwopt.model.facility.cost",
    "hwopt.model.deployment": "hwopt.model.facility.deployment",
    "hwopt.model.export": "hwopt.model.chip.export_limits",
    "hwopt.model.fabric": "hwopt.model.network.switch_counts",
    "hwopt.model.fleet": "hwopt.model.fleet.data_parallel",
    "hwopt.model.fleet_pipeline": "hwopt.model.fleet.pipeline",
    "hwopt.model.footprint": "hwopt.model.training.footprint",
    "hwopt.model.layer": "hwopt.model.layers.layer_time",
    "hwopt.model.learning": "hwopt.model.training.learning",
    "hwopt.model.manufacture": "hwopt.model.chip.manufacture",
    "hwopt.model.maximum": "hwopt.model.numerics.maximum",
    "hwopt.model.pace": "hwopt.model.chip.sustained_clock",
    "hwopt.model.parameters": "hwopt.model.layers.parameters",
    "hwopt.model.power": "hwopt.model.facility.power",
    "hwopt.model.preemption": "hwopt.model.facility.preemption",
    "hwopt.model.rack": "hwopt.model.facility.rack",
    "hwopt.model.ramp": "hwopt.model.training.batch_ramp",
    "hwopt.model.reliability": "hwopt.model.facility.reliability",
    "hwopt.model.roofline": "hwopt.model.chip.roofline",
    "hwopt.model.root": "hwopt.model.numerics.root_finding",
    "hwopt.model.route": "hwopt.model.network.route",
    "hwopt.model.schedule": "hwopt.model.training.schedule",
    "hwopt.model.silicon": "hwopt.model.chip.silicon",
    "hwopt.model.sites": "hwopt.model.network.sites",
    "hwopt.model.thermal": "hwopt.model.chip.thermal",
    "hwopt.model.training": "hwopt.model.training.run",
    "hwopt.model.transfer": "hwopt.model.training.transfer_learning",
    "hwopt.model.work": "hwopt.model.layers.work",
    "hwopt.optim": "hwopt.solver",
    "hwopt.optim.augmented_lagrangian": "hwopt.solver.local.augmented_lagrangian",
    "hwopt.optim.bounding": "hwopt.solver.search.bounding",
    "hwopt.optim.branch_and_bound": "hwopt.solver.search.branch_and_bound",
    "hwopt.optim.branching": "hwopt.solver.search.search_tree",
    "hwopt.optim.canonicalize": "hwopt.solver.search.canonicalize",
    "hwopt.optim.certified": "hwopt.solver.search.solve_global",
    "hwopt.optim.choices": "hwopt.solver.search.categorical",
    "hwopt.optim.deadline": "hwopt.solver.deadline",
    "hwopt.optim.evolution": "hwopt.solver.search.heuristics.evolutionary",
    "hwopt.optim.exact_points": "hwopt.solver.search.heuristics.feasibility_repair",
    "hwopt.optim.held": "hwopt.solver.search.fixed_integers",
    "hwopt.optim.joint_budgets": "hwopt.solver.portfolio.budget_allocation",
    "hwopt.optim.judges": "hwopt.solver.search.heuristics.fitness",
    "hwopt.optim.parts_search": "hwopt.solver.portfolio.master",
    "hwopt.optim.plan_pairs": "hwopt.planning.prefill_decode_pairs",
    "hwopt.optim.plan_search": "hwopt.planning.plan_search",
    "hwopt.optim.plan_table": "hwopt.planning.plan_table",
    "hwopt.optim.portfolio": "hwopt.solver.portfolio.solve",
    "hwopt.optim.portfolio_answer": "hwopt.solver.portfolio.solution",
    "hwopt.optim.programmes": "hwopt.solver.search.node_relaxations",
    "hwopt.optim.promise": "hwopt.solver.chance_constraints",
    "hwopt.optim.quick_jit": "hwopt.solver.jit_options",
    "hwopt.optim.relaxed": "hwopt.solver.local.multistart",
    "hwopt.optim.rounding": "hwopt.solver.search.heuristics.rounding",
    "hwopt.optim.serving_plans": "hwopt.planning.serving_plans",
    "hwopt.optim.shared_parts": "hwopt.solver.portfolio.subproblem",
    "hwopt.optim.training_plans": "hwopt.planning.training_plans",
    "hwopt.own_sources": "hwopt.source_digest",
    "hwopt.plot": "hwopt.output.figures",
    "hwopt.plot.contents": "hwopt.output.figures.sweep_contents",
    "hwopt.plot.placing": "hwopt.output.figures.label_placement",
    "hwopt.plot.walls": "hwopt.output.figures.binding_budgets",
    "hwopt.processes": "hwopt.workers",
    "hwopt.report": "hwopt.output",
    "hwopt.report.backup": "hwopt.output.text.backup_workers",
    "hwopt.report.bill": "hwopt.output.text.bill",
    "hwopt.report.blueprint": "hwopt.output.answers.claim_check",
    "hwopt.report.budget_prices": "hwopt.output.text.shadow_prices",
    "hwopt.report.choices_words": "hwopt.output.text.choices",
    "hwopt.report.comparison": "hwopt.output.answers.comparison",
    "hwopt.report.customary": "hwopt.output.text.customary_units",
    "hwopt.report.day": "hwopt.output.text.daily_load",
    "hwopt.report.deploy": "hwopt.output.answers.deploy",
    "hwopt.report.documents": "hwopt.output.answers.documents",
    "hwopt.report.fabrics": "hwopt.output.answers.fabrics",
    "hwopt.report.fleet": "hwopt.output.answers.fleet",
    "hwopt.report.frontier": "hwopt.output.answers.frontier",
    "hwopt.report.invest": "hwopt.output.answers.marginal_value",
    "hwopt.report.launch": "hwopt.output.export",
    "hwopt.report.launch.dynamo": "hwopt.output.export.dynamo",
    "hwopt.report.launch.engine": "hwopt.output.export.engine",
    "hwopt.report.launch.groups": "hwopt.output.export.groups",
    "hwopt.report.launch.nemo": "hwopt.output.export.nemo",
    "hwopt.report.launch.settings": "hwopt.output.export.settings",
    "hwopt.report.launch.sglang": "hwopt.output.export.sglang",
    "hwopt.report.launch.tensorrt_llm": "hwopt.output.export.tensorrt_llm",
    "hwopt.report.launch.torchtitan": "hwopt.output.export.torchtitan",
    "hwopt.report.launch.trainer": "hwopt.output.export.trainer",
    "hwopt.report.launch.trainers": "hwopt.output.export.trainers",
    "hwopt.report.launch.vllm": "hwopt.output.export.vllm",
    "hwopt.report.layout": "hwopt.output.text.layout",
    "hwopt.report.listings": "hwopt.output.text.catalog_cards",
    "hwopt.report.machine": "hwopt.output.text.cluster",
    "hwopt.report.megatron": "hwopt.output.export.megatron",
    "hwopt.report.page": "hwopt.output.html",
    "hwopt.report.page.axis": "hwopt.output.html.axis",
    "hwopt.report.page.files": "hwopt.output.html.files",
    "hwopt.report.page.front": "hwopt.output.answers.sweep_front",
    "hwopt.report.page.markup": "hwopt.output.html.markup",
    "hwopt.report.page.optima": "hwopt.output.answers.frontier",
    "hwopt.report.page.optimum": "hwopt.output.answers.optimum",
    "hwopt.report.page.pieces": "hwopt.output.html.components",
    "hwopt.report.page.points": "hwopt.output.html.points",
    "hwopt.report.page.sheet": "hwopt.output.html.page",
    "hwopt.report.page.swings": "hwopt.output.html.tornado",
    "hwopt.report.page.variants": "hwopt.output.answers.sweep",
    "hwopt.report.parts": "hwopt.output.text.parts",
    "hwopt.report.parts_words": "hwopt.output.text.integrality_gap",
    "hwopt.report.plan_words": "hwopt.output.text.plans",
    "hwopt.report.plans": "hwopt.output.answers.plans",
    "hwopt.report.portfolio": "hwopt.output.answers.portfolio",
    "hwopt.report.promise_words": "hwopt.output.text.chance_constraints",
    "hwopt.report.ramp_words": "hwopt.output.text.batch_ramp",
    "hwopt.report.regret_words": "hwopt.output.text.regret",
    "hwopt.report.scaling": "hwopt.output.answers.scaling",
    "hwopt.report.scaling_words": "hwopt.output.text.scaling",
    "hwopt.report.schema.kinds": "hwopt.output.schema.elements",
    "hwopt.report.screens": "hwopt.output.answers.optimum",
    "hwopt.report.sensitivity": "hwopt.output.answers.sensitivity",
    "hwopt.report.service": "hwopt.output.text.service",
    "hwopt.report.splits": "hwopt.output.answers.disaggregation",
    "hwopt.report.spot": "hwopt.output.text.preemption",
    "hwopt.report.sweep": "hwopt.output.answers.sweep",
    "hwopt.report.sweep_document": "hwopt.output.answers.sweep_document",
    "hwopt.report.token_prices": "hwopt.output.text.token_prices",
    "hwopt.report.transfer": "hwopt.output.text.transfer_learning",
    "hwopt.report.variants": "hwopt.output.answers.sweep_table",
    "hwopt.report.walls": "hwopt.output.answers.binding_budgets",
    "hwopt.report.worth": "hwopt.output.text.improvement",
    "hwopt.study": "hwopt.analysis",
    "hwopt.study.backup": "hwopt.analysis.backup_workers",
    "hwopt.study.blueprint": "hwopt.analysis.claim_check",
    "hwopt.study.blueprint.arithmetic": "hwopt.analysis.claim_check.arithmetic_checks",
    "hwopt.study.blueprint.check": "hwopt.analysis.claim_check.check",
    "hwopt.study.blueprint.lines": "hwopt.analysis.claim_check.check_line",
    "hwopt.study.blueprint.machine": "hwopt.analysis.claim_check.machine",
    "hwopt.study.blueprint.modelled": "hwopt.analysis.claim_check.model_checks",
    "hwopt.study.blueprint.planning": "hwopt.analysis.claim_check.planning",
    "hwopt.study.blueprint.statement": "hwopt.analysis.claim_check.statement",
    "hwopt.study.confidence": "hwopt.analysis.chance_constraints",
    "hwopt.study.confidence.answer": "hwopt.analysis.chance_constraints.answer",
    "hwopt.study.confidence.causes": "hwopt.analysis.chance_constraints.uncertainty_factors",
    "hwopt.study.confidence.choosing": "hwopt.analysis.chance_constraints.choices",
    "hwopt.study.confidence.draws": "hwopt.analysis.chance_constraints.sampling",
    "hwopt.study.confidence.knowing": "hwopt.analysis.chance_constraints.value_of_information",
    "hwopt.study.confidence.search": "hwopt.analysis.chance_constraints.search",
    "hwopt.study.confidence.tightening": "hwopt.analysis.chance_constraints.tightening",
    "hwopt.study.day": "hwopt.analysis.daily_load",
    "hwopt.study.fleet": "hwopt.analysis.fleet.data_parallel",
    "hwopt.study.fleet_pipeline": "hwopt.analysis.fleet.pipeline",
    "hwopt.study.invest": "hwopt.analysis.marginal_value",
    "hwopt.study.parts": "hwopt.analysis.integrality_gap",
    "hwopt.study.sensitivity.inputs": "hwopt.design.template_inputs",
    "hwopt.study.sensitivity.study": "hwopt.analysis.sensitivity.optimum",
    "hwopt.study.sensitivity.worth": "hwopt.analysis.sensitivity.improvement",
    "hwopt.study.sweep": "hwopt.sweeps",
    "hwopt.study.sweep.attributes": "hwopt.sweeps.attributes",
    "hwopt.study.sweep.coordinates": "hwopt.sweeps.coordinates",
    "hwopt.study.sweep.damage": "hwopt.sweeps.integrity",
    "hwopt.study.sweep.evaluator": "hwopt.sweeps.evaluator",
    "hwopt.study.sweep.focused": "hwopt.sweeps.stratified",
    "hwopt.study.sweep.levels": "hwopt.sweeps.strata",
    "hwopt.study.sweep.pilot": "hwopt.sweeps.pilot",
    "hwopt.study.sweep.places": "hwopt.sweeps.storage",
    "hwopt.study.sweep.processes": "hwopt.sweeps.store_lock",
    "hwopt.study.sweep.program": "hwopt.sweeps.program",
    "hwopt.study.sweep.reductions": "hwopt.sweeps.reductions",
    "hwopt.study.sweep.remembered": "hwopt.sweeps.program_cache",
    "hwopt.study.sweep.run": "hwopt.sweeps.run",
    "hwopt.study.sweep.samplers": "hwopt.sweeps.samplers",
    "hwopt.study.sweep.space": "hwopt.sweeps.space",
    "hwopt.study.sweep.specification": "hwopt.sweeps.specification",
    "hwopt.study.sweep.start": "hwopt.sweeps.warm_start",
    "hwopt.study.sweep.store": "hwopt.sweeps.store",
    "hwopt.study.sweep.study": "hwopt.sweeps.entry",
    "hwopt.study.sweep.summary": "hwopt.sweeps.summary",
    "hwopt.study.sweep.user_points": "hwopt.sweeps.user_points",
    "hwopt.study.walls": "hwopt.analysis.binding_budgets",
}
"""Old dotted path of a module or package -> new path."""

UNTIL = "0.4"
"""Version that removes the old names."""

_WARNED: set[str] = set()


def value(module: str, name: str) -> Any:
    """Return the object that an old name of a module refers to. A module's `__getattr__` calls it.

    **Raises:** `AttributeError` if the module never had the name.
    """
    old = f"{module}.{name}"
    if old in NAMES:
        new_module, _, new_name = NAMES[old].rpartition(".")
        _warn(old, NAMES[old], 4)
        return getattr(import_module(new_module), new_name)
    raise AttributeError(f"module '{module}' has no attribute '{name}'")


def getter(module: str) -> Callable[[str], Any]:
    """Return a `__getattr__` for a module that resolves its old names."""
    return lambda name: value(module, name)


class Finder:
    """Import finder for modules under their old names, consulted after all other finders of `sys.meta_path`."""

    @staticmethod
    def find_spec(name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """Return the specification of a moved module, or of a package that contained one; None for other names."""
        new = _moved_to(name)
        if (new and _is_there(new)) or any(old.startswith(f"{name}.") for old in MODULES):
            return ModuleSpec(name, Finder, is_package=True)  # pyright: ignore[reportArgumentType]
        return None

    @staticmethod
    def create_module(spec: ModuleSpec) -> ModuleType:
        """Return a proxy for the new module."""
        return _Moved(spec.name)

    @staticmethod
    def exec_module(module: ModuleType) -> None:
        """Warn about the old name. The new module is imported when an attribute is read."""
        if new := _moved_to(module.__name__):
            _warn(module.__name__, new, 3)


class _Moved(ModuleType):
    """Proxy of a module under its old name; its attributes are those of the new module."""

    def __getattr__(self, name: str) -> Any:
        old, new = self.__name__, _moved_to(self.__name__)
        if f"{old}.{name}" in NAMES:
            return value(old, name)
        if new is None or (name.startswith("__") and name != "__all__"):
            raise AttributeError(f"module '{old}' has no attribute '{name}'")
        return getattr(import_module(new), name)


def _moved_to(name: str) -> str | None:
    """Return the new path of a module that moved, alone or with its package; None for other modules."""
    parts = name.split(".")
    for i in range(len(parts), 0, -1):
        if new := MODULES.get(".".join(parts[:i])):
            return ".".join([new, *parts[i:]])
    return None


def _is_there(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # its parent is not a package
        return False


def _warn(old: str, new: str, level: int) -> None:
    if old not in _WARNED:
        _WARNED.add(old)
        warnings.warn(f"{old} is now {new}; the old name works until {UNTIL}", DeprecationWarning, stacklevel=level)


if MODULES:
    sys.meta_path.append(Finder)  # pyright: ignore[reportArgumentType]
