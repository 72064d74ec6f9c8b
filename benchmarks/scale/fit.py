"""Lines through measured steps: costs per row of the job and per row of the task, none of them negative."""

from collections.abc import Callable, Sequence

import numpy as np
from scipy.optimize import nnls

from app.capacity.costs import EACH, ONE, Line, StepCosts
from benchmarks.scale.tasks import Figures, Measured

_DESTINATION_BYTES = 32
"""Bytes that the destination takes per row."""


def line(points: Sequence[tuple[float, float, float]]) -> Line:
    """Fit a line by least squares of relative errors, with coefficients of at least 0.

    Parameters
    ----------
    points
        Rows of the job, rows of the task, measured value.
    """
    values = np.array([value for _, _, value in points])
    if not values.any():
        return Line(0.0, 0.0, 0.0)
    weights = 1 / np.maximum(values, 0.01 * values.max())
    terms = np.array([(1.0, job, task) for job, task, _ in points])
    if len({job == task for job, task, _ in points}) == 1 and points[0][0] == points[0][1]:
        terms[:, 1] = 0.0  # a step of one task: its rows are those of the job
    largest = terms.max(axis=0)
    scales = np.where(largest > 0, largest, 1.0)
    found, _ = nnls(terms / scales * weights[:, None], values * weights)
    fixed, of_job, of_task = (found / scales).tolist()
    return Line(fixed, of_job, of_task)


def step(name: str, measured: Sequence[Measured]) -> StepCosts:
    """Return the costs of the step of this name, from jobs of several sizes and numbers of units.

    The tasks of a job count by their mean: a unit that begins late in the table reads more than the others.
    Pieces count as if there were as many as units, because the model has as many.
    """
    several = any(len(job.steps[name]) > 1 for job in measured)

    def through(value: Callable[[Figures], float]) -> Line:
        points = []
        for job in measured:
            tasks = job.units if name == "piece" else len(job.steps[name])
            points.append((job.rows, job.rows / tasks, sum(map(value, job.steps[name])) / tasks))
        return line(points)

    written = through(lambda task: task.written)
    if name in ("prepare", "piece", "unit"):
        scratch = written
    elif name == "whole":
        scratch = Line(0.0, 0.0, max(0.0, written.of_job + written.of_task - _DESTINATION_BYTES))
    else:
        scratch = Line(0.0, 0.0, 0.0)
    tasks = EACH if several else ONE
    return StepCosts(
        name, tasks, through(lambda task: task.processor), through(lambda task: task.read), written, scratch
    )


def steps(measured: Sequence[Measured]) -> tuple[StepCosts, ...]:
    """Return the costs of all steps of divided jobs."""
    return tuple(step(name, measured) for name in measured[0].steps)
