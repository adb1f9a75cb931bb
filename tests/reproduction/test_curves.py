"""Curves of accuracy, a panel per data set."""

import numpy as np
from numpy.testing import assert_allclose

from reproduction.curves import CurvePanel, plot_curve_panels


def test_curve_panels_hold_curves_bands_and_lines():
    lines = {"without alignment": 0.3, "best of others": 0.5, "guess": 0.125}
    panels = [
        CurvePanel(name, [0, 10, 20], y, [0.1] * 3, lines)
        for name, y in (("DS105", [0.6, 0.55, np.nan]), ("Raider", [0.5, 0.4, 0.3]))
    ]
    figure = plot_curve_panels(panels, "incompleteness (%)")
    assert [ax.get_title(loc="left") for ax in figure.axes] == ["DS105", "Raider"]
    curve, *levels = figure.axes[1].get_lines()
    assert_allclose(curve.get_ydata(), [50, 40, 30], rtol=1e-12)
    assert_allclose([v.get_ydata()[0] for v in levels], [30, 50, 12.5], rtol=1e-12)
    legend = [t.get_text() for t in figure.legends[0].get_texts()]
    assert legend == ["GDM", *lines]


def test_curve_panels_leave_no_empty_axes():
    panels = [CurvePanel(str(i), [0], [0.5], [0.1], {}) for i in range(4)]
    assert len(plot_curve_panels(panels, "energy (%)").axes) == 4
