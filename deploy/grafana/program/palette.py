"""Colours distinguishable by colour-blind people (Okabe and Ito, 2008), and their meanings.

A stage, a pipeline or a percentile has the same colour everywhere. Good is blue and bad is
vermilion, never green and red. A name also matches at the end of a series: `PIPELINE STAGE`.
"""

from typing import Final

from services.definitions.domains import domain_names, load_domain

ORANGE: Final = "#E69F00"
SKY: Final = "#56B4E9"
GREEN: Final = "#009E73"
YELLOW: Final = "#F0E442"
BLUE: Final = "#0072B2"
VERMILION: Final = "#D55E00"
PURPLE: Final = "#CC79A7"
GREY: Final = "#999999"

GOOD, DOUBTFUL, BAD = BLUE, ORANGE, VERMILION

# From the domains; other stages get one of Grafana's colours, by name.
STAGES: Final = {
    stage.name: stage.colour
    for name in reversed(domain_names())
    for stage in load_domain(name).spec.stages
    if stage.colour
}
PERCENTILES: Final = {"p50": SKY, "p90": GREEN, "p99": ORANGE, "p99.9": PURPLE, "max": VERMILION}
VERDICTS: Final = {
    "exact": BLUE,
    "wrong": VERMILION,
    "missing": ORANGE,
    "late": YELLOW,
    "duplicate": PURPLE,
    "unexpected": SKY,
}
SERVICES: Final = {
    "kafka": ORANGE,
    "store": PURPLE,
    "evaluator": SKY,
    "generator": GREEN,
    "collector": YELLOW,
    "conductor": GREY,
    "machine": VERMILION,
    "runner": BLUE,
}
