"""Guarantee phi by angle and axis: section 5.3.2, Figure 8."""

from benchmarks.papers.experiments import Chart, Data, Experiment, Figures, Series, Table, Verdict
from benchmarks.papers.pabidot.tables import labelled
from benchmarks.papers.runs import Matrix
from providers.progress import no_progress
from providers.rotation.fit import fit_numbers
from providers.rotation.transform import ANGLES, least_variances

PAPER = {"angle": 35, "axis": 4, "phi": 0.7786}
"""Angle in degrees, axis from 1, and the guarantee."""


def curves(data: Data, name: str) -> Matrix:
    """Return phi of each angle and axis of reflection; shape (angles, fields)."""
    source = labelled(data, name)
    return least_variances(
        fit_numbers(source.table, source.fields, True, no_progress).correlation, no_progress
    )


def run(data: Data) -> Figures:
    """Compute phi of WCDS by angle and axis, and the selected transform."""
    phi = curves(data, "WCDS")
    worst = phi.min(axis=1)
    angle = int(worst.argmax())
    axis = int(phi[angle].argmin())
    best_angle, best_axis = divmod(int(phi.argmax()), phi.shape[1])
    selected = Table(
        "selected",
        "Selected transform of WCDS.",
        ("rule", "angle, degrees", "axis", "phi"),
        (
            ("paper's figure", PAPER["angle"], PAPER["axis"], PAPER["phi"]),
            ("equations 16 and 17", ANGLES[angle], axis + 1, float(phi[angle, axis])),
            ("Definition 3.1", ANGLES[best_angle], best_axis + 1, float(phi.max())),
        ),
    )
    charts = (
        Chart(
            "axes", "line", "phi of WCDS by axis of reflection", "angle, degrees", "phi",
            [Series(f"axis {each + 1}", ANGLES, phi[:, each].tolist()) for each in range(phi.shape[1])],
        ),
        Chart(
            "least", "line", "Least phi of WCDS over the axes", "angle, degrees", "phi",
            [Series("least over axes", ANGLES, worst.tolist())],
        ),
    )  # fmt: skip
    return Figures([selected], charts)


def judge(figures: Figures) -> tuple[Verdict, str]:
    """Reproduced if angle, axis and phi (four decimals) are the paper's."""
    table = figures.table("selected")
    angles, axes, phi = table.column("angle, degrees"), table.column("axis"), table.numbers("phi")
    same = (angles[1], axes[1], round(phi[1], 4)) == (angles[0], axes[0], phi[0])
    return ("reproduced" if same else "differs"), (
        f"Angle {angles[1]}, axis {axes[1]} and phi {phi[1]:.4f}. The rule takes the worst axis at the "
        f"chosen angle: the largest phi over all angles and axes is {phi[2]:.4f}, at angle {angles[2]} and "
        f"axis {axes[2]}."
    )


FIGURE_8 = Experiment(
    "figure-8",
    "Figure 8",
    "phi by angle and axis",
    ("PABIDOT",),
    "one angle and axis of WCDS maximise the least guarantee: 35 degrees, axis 4, phi 0.7786",
    "All fields but the class, z-scores, all 172 angles.",
    run,
    judge,
)
