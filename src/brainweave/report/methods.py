"""A methods paragraph that can be pasted into a manuscript, with its references.

Names, rules and references are in ``templates/report.toml``.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from brainweave._version import __version__
from brainweave.plotting.results import Scored, is_baseline
from brainweave.plotting.style import percent, span
from brainweave.report.elements import TEXTS
from brainweave.report.inputs import Inputs

HAUFE, NU_SVM, SKLEARN = (
    "Haufe et al., 2014",
    "Schölkopf et al., 2000",
    "Pedregosa et al., 2011",
)


@dataclass
class Methods:
    """The paragraph and the references it cites, in order."""

    sentences: list[str] = field(default_factory=list)
    references: list[str] = field(default_factory=list)

    @property
    def paragraph(self) -> str:
        """All sentences."""
        return " ".join(self.sentences)

    def cite(self, short: str) -> str:
        """List a reference, and return what the text calls it."""
        full = TEXTS["references"][short]
        if full not in self.references:
            self.references.append(full)
        return short

    def name(self, method: str) -> str:
        """Return what a method is called, with its citation."""
        if method not in TEXTS["methods"]:
            return method
        name, short = TEXTS["methods"][method]
        self.cite(short)
        # a bracket takes the citation in, where there is one
        opened, bracket, rest = name.partition(")")
        return f"{opened}; {short}){rest}" if bracket else f"{name} ({short})"


def write_methods(inputs: Inputs, *, shows_maps: bool = False) -> Methods:
    """Describe data, alignment and evaluation as far as they are known."""
    methods = Methods()
    say = methods.sentences.append
    data = _data_phrase(inputs)
    if inputs.model is not None:
        _add_alignment(methods, inputs, data)
    elif data:
        say(f"The data are those of {data}.")
    if inputs.results:
        _add_evaluation(methods, inputs)
    if shows_maps:
        say(
            "Maps show activation patterns, not weights, of the shared features "
            f"({methods.cite(HAUFE)})."
        )
    say(
        f"Analyses were run with brainweave {__version__}, which builds on "
        f"scikit-learn ({methods.cite(SKLEARN)})."
    )
    return methods


def _data_phrase(inputs: Inputs) -> str:
    parts = []
    if inputs.sequences is not None:
        parts.append(span(inputs.sequences.lengths, "samples"))
    if inputs.study is not None:
        parts.append(span([s.n_voxels for s in inputs.study], "voxels"))
    detail = f" ({' and '.join(parts)} each)" if parts else ""
    text = f"{len(inputs.names)} subjects{detail}" if inputs.names else ""
    if inputs.sequences is not None and inputs.sequences.categories:
        n = len(inputs.sequences.categories)
        text += " in one category" if n == 1 else f" in {n} categories"
    return text


def _add_alignment(methods: Methods, inputs: Inputs, data: str) -> None:
    say, model = methods.sentences.append, inputs.model
    who = f"The functional data of {data}" if data else "The functional data"
    if is_baseline(inputs.method):
        say(f"{who} were compared voxel by voxel, without functional alignment.")
        return
    name = methods.name(inputs.method)
    inner = type(getattr(model, "aligner", None)).__name__
    if inner in TEXTS["methods"]:
        name += f", each region by {methods.name(inner)}"
    say(f"{who} were aligned with {name}.")
    params, rules = model.get_params(deep=False), TEXTS["graphs"]
    if inputs.method.startswith("GDM"):
        graph = params.get("graph")
        rule = rules.get(graph if isinstance(graph, str) else "", rules["other"])
        say(
            "It finds, as the global optimum of one eigenvalue problem, a linear map "
            f"per subject into a shared space in which {rule}."
        )
    scaled = TEXTS["standardize"].get(str(params.get("standardize")))
    if scaled:
        say(scaled)
    k = getattr(model, "n_components_", None)
    kept = f"{k} shared features were kept" if k else ""
    kernel = f"{params['kernel']} " if isinstance(params.get("kernel"), str) else ""
    energy = params.get("energy")
    if isinstance(energy, (int, float)) and energy < 1:
        cut = (
            f"Each subject was restricted to the leading components of its {kernel}"
            f"kernel that hold {percent(float(energy))} of the summed singular values"
        )
        if inputs.bases:
            cut += f" ({span([b.n_kept for b in inputs.bases], 'components')})"
        kept = f"{cut}; {kept}" if kept else cut
    elif getattr(model, "shrinkage_", None):
        _add_shrinkage(methods, model, kernel)
    if kept:
        say(f"{kept}.")
    gaining = getattr(model, "n_informative_", None)
    if k and gaining is not None and gaining < k:
        say(
            f"Of these, {gaining} gain from the graph; the others are arbitrary "
            "directions of a degenerate eigenspace."
        )
    check = inputs.check
    if check is not None and check.available:
        many = f"{check.n_permutations} " if check.n_permutations else ""
        say(
            "Half of the aligning samples were held out in turn: subjects agreed there "
            f"in {check.n_holding} of {k} shared features (p < .05 by {many}"
            "permutations of held-out labels, corrected for the number of features)."
        )


def _add_shrinkage(methods: Methods, model: Any, kernel: str) -> None:
    """Say how far the maps were shrunk, and by what that was chosen."""
    rhos = sorted({min(model.shrinkage_), max(model.shrinkage_)})
    reason = TEXTS["shrinkage"].get(model.shrinkage_by_, "")
    methods.sentences.append(
        f"The map of each subject was shrunk by a ridge of "
        f"{' to '.join(f'{rho:.3g}' for rho in rhos)} times the mean eigenvalue of its "
        f"{kernel}kernel{reason}."
    )
    if model.get_params(deep=False).get("constraint") == "subject":
        methods.sentences.append(
            "Shared features were constrained to unit covariance in each subject."
        )


def _add_evaluation(methods: Methods, inputs: Inputs) -> None:
    say, svm = methods.sentences.append, ""
    nus = {f.get("nu") for one in inputs.results for f in one.folds or [{}]}
    if len(nus) == 1 and nus != {None}:
        svm = f" with a ν-SVM (ν = {nus.pop():g}; {methods.cite(NU_SVM)})"
    say(f"Alignment was assessed by between-subject classification{svm}.")
    for protocol, members in inputs.panels:
        n_folds = len(members[0].scores)
        listed = _join(_accuracy(methods, one, one.shown(members)) for one in members)
        folds = "fold" if n_folds == 1 else "folds"
        found = f"mean accuracy over {n_folds} {folds} was {listed}"
        how = TEXTS["protocols"].get(protocol)
        if how:
            say(f"In the {protocol} protocol, {how}; {found}.")
        else:
            say(f"{found[0].upper()}{found[1:]}.")
    say(f"Chance is {_join(sorted({percent(one.chance) for one in inputs.results}))}.")


def _accuracy(methods: Methods, one: Scored, shown: str) -> str:
    details = []
    if len(one.scores) > 1:
        details.append(f"SD {percent(float(one.scores.std()))}")
    if one.p is not None:
        details.append(f"permutation p = {one.p:.3g}")
    _, short = TEXTS["methods"].get(one.method, ("", ""))
    if short and TEXTS["references"][short] not in methods.references:
        details.append(methods.cite(short))
    extra = f" ({'; '.join(details)})" if details else ""
    label = shown if one.aligns_nothing else f"with {shown}"
    return f"{percent(one.mean)} {label}{extra}"


def _join(phrases: Iterable[str]) -> str:
    *head, last = list(phrases)
    return f"{', '.join(head)} and {last}" if head else last
