"""A methods paragraph that can be pasted into a manuscript, with its references."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from brainweave._version import __version__
from brainweave.plotting.results import (
    aligns_nothing,
    is_baseline,
    method_of,
    protocol_of,
)
from brainweave.plotting.style import percent
from brainweave.report.facts import ordered_protocols, spoken_name
from brainweave.report.inputs import Inputs


@dataclass(frozen=True)
class Citation:
    """How a publication is named in the text, and in the list of references."""

    short: str
    full: str


@dataclass(frozen=True)
class Methods:
    """The paragraph and the references it cites, in order."""

    paragraph: str
    references: list[str]


GDM_PAPER = Citation(
    "Li et al., 2020",
    "Li, W., Liu, M., Chen, F., & Zhang, D. (2020). Graph-based decoding model for "
    "functional alignment of unaligned fMRI data. Proceedings of the AAAI Conference "
    "on Artificial Intelligence, 34.",
)
HAUFE = Citation(
    "Haufe et al., 2014",
    "Haufe, S., Meinecke, F., Görgen, K., Dähne, S., Haynes, J.-D., Blankertz, B., & "
    "Bießmann, F. (2014). On the interpretation of weight vectors of linear models in "
    "multivariate neuroimaging. NeuroImage, 87, 96–110.",
)
NU_SVM = Citation(
    "Schölkopf et al., 2000",
    "Schölkopf, B., Smola, A. J., Williamson, R. C., & Bartlett, P. L. (2000). New "
    "support vector algorithms. Neural Computation, 12(5), 1207–1245.",
)
SKLEARN = Citation(
    "Pedregosa et al., 2011",
    "Pedregosa, F., Varoquaux, G., Gramfort, A., Michel, V., Thirion, B., Grisel, O., "
    "Blondel, M., Prettenhofer, P., Weiss, R., Dubourg, V., Vanderplas, J., Passos, "
    "A., Cournapeau, D., Brucher, M., Perrot, M., & Duchesnay, É. (2011). "
    "Scikit-learn: Machine learning in Python. Journal of Machine Learning Research, "
    "12, 2825–2830.",
)
# class of an aligner -> what it is called, and where it was published
METHODS: dict[str, tuple[str, Citation]] = {
    "GDM": ("the graph-based decoding model (GDM)", GDM_PAPER),
    "Hyperalignment": (
        "hyperalignment",
        Citation(
            "Haxby et al., 2011",
            "Haxby, J. V., Guntupalli, J. S., Connolly, A. C., Halchenko, Y. O., "
            "Conroy, B. R., Gobbini, M. I., Hanke, M., & Ramadge, P. J. (2011). A "
            "common, high-dimensional model of the representational space in human "
            "ventral temporal cortex. Neuron, 72(2), 404–416.",
        ),
    ),
    "RegularizedHyperalignment": (
        "regularized hyperalignment",
        Citation(
            "Xu et al., 2012",
            "Xu, H., Lorbert, A., Ramadge, P. J., Guntupalli, J. S., & Haxby, J. V. "
            "(2012). Regularized hyperalignment of multi-set fMRI data. IEEE "
            "Statistical Signal Processing Workshop, 229–232.",
        ),
    ),
    "KernelHyperalignment": (
        "kernel hyperalignment",
        Citation(
            "Lorbert & Ramadge, 2012",
            "Lorbert, A., & Ramadge, P. J. (2012). Kernel hyperalignment. Advances in "
            "Neural Information Processing Systems, 25.",
        ),
    ),
    "SVDHyperalignment": (
        "joint SVD-hyperalignment",
        Citation(
            "Chen et al., 2014",
            "Chen, P.-H., Guntupalli, J. S., Haxby, J. V., & Ramadge, P. J. (2014). "
            "Joint SVD-hyperalignment for multi-subject fMRI data alignment. IEEE "
            "International Workshop on Machine Learning for Signal Processing.",
        ),
    ),
    "SRM": (
        "the shared response model (SRM)",
        Citation(
            "Chen et al., 2015",
            "Chen, P.-H., Chen, J., Yeshurun, Y., Hasson, U., Haxby, J. V., & Ramadge, "
            "P. J. (2015). A reduced-dimension fMRI shared response model. Advances in "
            "Neural Information Processing Systems, 28.",
        ),
    ),
    "RobustSRM": (
        "the robust shared response model",
        Citation(
            "Turek et al., 2018",
            "Turek, J. S., Ellis, C. T., Skalaban, L. J., Turk-Browne, N. B., & "
            "Willke, T. L. (2018). Capturing shared and individual information in fMRI "
            "data. IEEE International Conference on Acoustics, Speech and Signal "
            "Processing.",
        ),
    ),
    "SemiSupervisedSRM": (
        "the semi-supervised shared response model",
        Citation(
            "Turek et al., 2017",
            "Turek, J. S., Willke, T. L., Chen, P.-H., & Ramadge, P. J. (2017). A "
            "semi-supervised method for multi-subject fMRI functional alignment. IEEE "
            "International Conference on Acoustics, Speech and Signal Processing.",
        ),
    ),
    "Searchlight": (
        "searchlight-wise alignment",
        Citation(
            "Guntupalli et al., 2016",
            "Guntupalli, J. S., Hanke, M., Halchenko, Y. O., Connolly, A. C., "
            "Ramadge, P. J., & Haxby, J. V. (2016). A model of representational spaces "
            "in human cortex. Cerebral Cortex, 26(6), 2919–2934.",
        ),
    ),
    "Parcelwise": (
        "parcel-wise alignment",
        Citation(
            "Bazeille et al., 2021",
            "Bazeille, T., DuPre, E., Richard, H., Poline, J.-B., & Thirion, B. "
            "(2021). An empirical evaluation of functional alignment using "
            "inter-subject decoding. NeuroImage, 245, 118683.",
        ),
    ),
}
METHODS["GDMCV"] = (
    "the graph-based decoding model (GDM) with settings chosen by cross-validation "
    "within the aligning samples",
    GDM_PAPER,
)
METHODS["DetSRM"] = (
    "the deterministic shared response model",
    METHODS["SRM"][1],
)

_PROTOCOLS = {
    "joint": (
        "all subjects' aligning samples, those of the test subjects included, took "
        "part in the alignment, and a classifier trained on the remaining samples of "
        "the other subjects was tested on those of the test subjects"
    ),
    "held-out": (
        "the shared space was learned without the test subjects, who then joined it by "
        "a map of their own, and a classifier trained on the other subjects was tested "
        "on them"
    ),
}


def write_methods(inputs: Inputs, *, shows_maps: bool = False) -> Methods:
    """Describe data, alignment and evaluation as far as they are known."""
    cited: list[Citation] = []
    sentences = [
        *_about_alignment(inputs, cited),
        *_about_evaluation(inputs, cited),
    ]
    if shows_maps:
        cited.append(HAUFE)
        sentences.append(
            "Maps show activation patterns, not weights, of the shared features "
            f"({HAUFE.short})."
        )
    cited.append(SKLEARN)
    sentences.append(
        f"Analyses were run with brainweave {__version__}, which builds on "
        f"scikit-learn ({SKLEARN.short})."
    )
    references = list(dict.fromkeys(c.full for c in cited))
    return Methods(" ".join(sentences), references)


def _about_alignment(inputs: Inputs, cited: list[Citation]) -> list[str]:
    data = _data_phrase(inputs)
    if inputs.model is None:
        return [f"The data are those of {data}."] if data else []
    name, citation = METHODS.get(inputs.method, (inputs.method, None))
    if citation:
        cited.append(citation)
        name = (
            f"{name[:-1]}; {citation.short})"
            if name[-1] == ")"
            else (f"{name} ({citation.short})")
        )
    who = f"The functional data of {data}" if data else "The functional data"
    if is_baseline(inputs.method):
        return [f"{who} were compared voxel by voxel, without functional alignment."]
    inner = METHODS.get(type(getattr(inputs.model, "aligner", None)).__name__)
    if inner is not None:  # region by region
        cited.append(inner[1])
        name += f", each region by {inner[0].replace(')', f'; {inner[1].short})')}"
        if not inner[0].endswith(")"):
            name += f" ({inner[1].short})"
    sentences = [f"{who} were aligned with {name}."]
    if inputs.method.startswith("GDM"):
        sentences.append(_about_graph(inputs))
    sentences += _about_settings(inputs)
    return sentences


def _data_phrase(inputs: Inputs) -> str:
    if not inputs.names:
        return ""
    parts = []
    if inputs.sequences is not None:
        parts.append(_span([len(s) for s in inputs.sequences.labels], "samples"))
    if inputs.study is not None:
        parts.append(_span([s.n_voxels for s in inputs.study], "voxels"))
    detail = f" ({' and '.join(parts)} each)" if parts else ""
    text = f"{len(inputs.names)} subjects{detail}"
    if inputs.sequences is not None and inputs.sequences.categories:
        n = len(inputs.sequences.categories)
        text += " in one category" if n == 1 else f" in {n} categories"
    return text


def _about_graph(inputs: Inputs) -> str:
    graph = getattr(inputs.model, "graph", None)
    rules = {
        "labels": "samples of one category, of whichever subject, lie close together "
        "and samples of different categories apart; subjects need not share a "
        "sequence of stimuli, a number of samples or a mask",
        "time": "samples of the same stimulus or time point of different subjects lie "
        "close together",
        "labels+time": "samples of one category, and even more those of one stimulus "
        "or time point, of whichever subject, lie close together",
    }
    rule = rules.get(
        graph if isinstance(graph, str) else "",
        "samples joined in a given graph lie close together",
    )
    return (
        "It finds, as the global optimum of one eigenvalue problem, a linear map per "
        f"subject into a shared space in which {rule}."
    )


def _about_settings(inputs: Inputs) -> list[str]:
    params = inputs.model.get_params(deep=False)
    sentences = []
    if params.get("standardize") is True:
        sentences.append(
            "Every voxel was standardised to zero mean and unit variance over the "
            "aligning samples."
        )
    elif params.get("standardize") == "reliability":
        sentences.append(
            "Every voxel was centred and scaled by how reliably it answered to the "
            "groups of the aligning samples (a one-way analysis of variance)."
        )
    k = getattr(inputs.model, "n_components_", None)
    kept = f"{k} shared features were kept" if k else ""
    kernel = params.get("kernel")
    kernel = f"{kernel} " if isinstance(kernel, str) else ""
    energy = params.get("energy")
    if isinstance(energy, (int, float)) and energy < 1:
        cut = (
            f"Each subject was restricted to the leading components of its {kernel}"
            f"kernel that hold {percent(float(energy))} of the summed singular values"
        )
        if inputs.bases:
            cut += f" ({_span([b.n_kept for b in inputs.bases], 'components')})"
        sentences.append(f"{cut}; {kept}." if kept else f"{cut}.")
    elif getattr(inputs.model, "shrinkage_", None):
        sentences.append(_about_shrinkage(inputs.model, kernel))
        sentences += [f"{kept}."] if kept else []
    elif kept:
        sentences.append(f"{kept}.")
    gaining = getattr(inputs.model, "n_informative_", None)
    if k and gaining is not None and gaining < k:
        sentences.append(
            f"Of these, {gaining} gain from the graph; the others are arbitrary "
            "directions of a degenerate eigenspace."
        )
    check = inputs.check
    if check is not None and check.available:
        many = f"{check.n_permutations} " if check.n_permutations else ""
        sentences.append(
            "Half of the aligning samples were held out in turn: subjects agreed there "
            f"in {check.n_holding} of {k} shared features (p < .05 by {many}"
            "permutations of held-out labels, corrected for the number of features)."
        )
    return sentences


def _about_shrinkage(model: Any, kernel: str) -> str:
    """Say how far the maps were shrunk, and by what that was chosen."""
    chosen = ", chosen as that which predicts the groups of a subject's own samples "
    reasons = {
        "runs": f"{chosen}best when whole runs are left out",
        "blocks": f"{chosen}best when blocks of them are left out",
        "ledoit-wolf": " (Ledoit-Wolf)",
        "oas": " (oracle approximating shrinkage)",
    }
    rhos = sorted(set(model.shrinkage_))
    span = f"{rhos[0]:.3g}" + (f" to {rhos[-1]:.3g}" if len(rhos) > 1 else "")
    text = (
        f"The map of each subject was shrunk by a ridge of {span} times the mean "
        f"eigenvalue of its {kernel}kernel{reasons.get(model.shrinkage_by_, '')}."
    )
    if model.get_params(deep=False).get("constraint") == "subject":
        text += " Shared features were constrained to unit covariance in each subject."
    return text


def _about_evaluation(inputs: Inputs, cited: list[Citation]) -> list[str]:
    if not inputs.results:
        return []
    protocols = ordered_protocols(inputs.results)
    sentences = ["Alignment was assessed by between-subject classification"]
    nu = _nu([result for _, result in inputs.results])
    if nu is not None:
        cited.append(NU_SVM)
        sentences[0] += f" with a ν-SVM (ν = {nu:g}; {NU_SVM.short})"
    sentences[0] += "."
    for protocol in protocols:
        members = [r for r in inputs.results if protocol_of(r[1]) == protocol]
        n_folds = np.size(members[0][1].scores)
        how = _PROTOCOLS.get(protocol)
        listed = _join(_accuracy_phrase(name, r, members, cited) for name, r in members)
        found = f"mean accuracy over {n_folds} {_plural('fold', n_folds)} was {listed}"
        if how:
            sentences.append(f"In the {protocol} protocol, {how}; {found}.")
        else:
            sentences.append(f"{found[0].upper()}{found[1:]}.")
    chances = sorted({percent(float(r.chance)) for _, r in inputs.results})
    sentences.append(f"Chance is {_join(chances)}.")
    return sentences


def _nu(results: Iterable[Any]) -> float | None:
    """Return the nu of the classifier, if all folds used one and the same."""
    found = set()
    for result in results:
        folds = getattr(result, "folds", None) or [{}]
        found |= {fold.get("nu") for fold in folds if isinstance(fold, Mapping)}
    return found.pop() if len(found) == 1 else None


def _plural(noun: str, n: int) -> str:
    return noun if n == 1 else f"{noun}s"


def _accuracy_phrase(
    name: str, result: Any, members: list[tuple[str, Any]], cited: list[Citation]
) -> str:
    scores = np.asarray(result.scores, dtype=float)
    details = [f"SD {percent(float(scores.std()))}"] if len(scores) > 1 else []
    p = getattr(result, "p_value", None)
    if p is not None:
        details.append(f"permutation p = {p:.3g}")
    known = METHODS.get(method_of(name, result))
    if known is not None and known[1] not in cited:
        cited.append(known[1])
        details.append(known[1].short)
    extra = f" ({'; '.join(details)})" if details else ""
    shown = spoken_name(name, result, members)
    label = shown if aligns_nothing(name, result) else f"with {shown}"
    return f"{percent(float(scores.mean()))} {label}{extra}"


def _span(values: Sequence[int], what: str) -> str:
    low, high = min(values), max(values)
    return f"{low:,} {what}" if low == high else f"{low:,}–{high:,} {what}"


def _join(phrases: Iterable[str]) -> str:
    *head, last = list(phrases)
    return f"{', '.join(head)} and {last}" if head else last
