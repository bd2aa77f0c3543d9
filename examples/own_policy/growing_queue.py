"""A policy of one's own: a rate is sustained while the queue does not grow (Karimov et al. 2018,
definition 5), with a tolerance of one percent of the input."""

from schemas.observation import StepObservation

TOLERATED = 0.01


def judge(step: StepObservation) -> str | None:
    """Compare the mean queue of the first and the last third of a step, stage by stage."""
    for stage in step.stages:
        queues = [second.queue for second in stage.seconds if second.queue is not None]
        if len(queues) < 3:
            return f"{stage.name}: its queue length is unknown."
        third = len(queues) // 3
        grown = (sum(queues[-third:]) - sum(queues[:third])) / third
        pushed = sum(second.pushed for second in stage.seconds)
        if grown > TOLERATED * pushed:
            return f"{stage.name}: the queue grew by {grown:.0f} of {pushed} records."
    return None
