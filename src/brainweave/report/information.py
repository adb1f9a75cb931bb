"""The chapter on information maps: pictures with one colour scale, and the places."""

from typing import Any

import numpy as np
from markupsafe import Markup

from brainweave._core.exceptions import BrainweaveError
from brainweave.evaluation.information_map import SHOWN
from brainweave.report.elements import MOST_PLACES, Element, Section, Table, brain_png

PICTURES = ("excess", "baseline_excess", "difference")


def information_section(found: Any) -> Section | None:
    """Draw scores above chance, with and without alignment, and list the places."""
    if found is None:
        return None
    table = found.to_frame()
    ranked = table.sort_values(["p", "score"], ascending=[True, False])
    columns = ["place", "n_voxels", "score", "chance", "p", "p_fdr", "p_max"]
    if np.isfinite(table["baseline"]).any():
        columns += ["baseline", "difference", "difference_p_fdr"]
    data = Table.of({c: ranked[c].tolist() for c in ranked})
    shown, cut = Table.of({c: ranked[c].tolist() for c in columns}).first(MOST_PLACES)
    told = {"shown": cut}
    elements = [
        _pictures(found, table),
        Element.make("information-places", told, table=shown, data=data, wide=True),
    ]
    text = str(found)
    summary = f"{text[:1].upper()}{text[1:]}."
    return Section.make("information", elements, summary=summary)


def _pictures(found: Any, table: Any) -> Element | None:
    """Draw all maps with one colour scale."""
    if found.spaces[0] is None:
        return None
    known = PICTURES if np.isfinite(table["baseline"]).any() else PICTURES[:1]
    sizes = [np.nanmax(np.abs(found.voxel_values(what)), initial=0.0) for what in known]
    limit = float(max(sizes)) or 1.0
    try:
        drawn = [
            Markup("<h4>{}</h4>").format(SHOWN[what].capitalize())
            + brain_png(found.plot(what, limit=limit, title=None), SHOWN[what])
            for what in known
        ]
    except BrainweaveError as error:  # a space without a picture
        return Element.make("maps-note", {"error": str(error)})
    return Element.make("information-maps", figure=Markup("").join(drawn))
