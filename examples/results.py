"""Results in pandas: run it, or open it as a notebook (each `# %%` is a cell).

.venv/bin/python examples/results.py
"""

# %% Connect: to the running stack, or to the results in the data folder.
import sys
from pathlib import Path

try:
    import tidegauge
except ModuleNotFoundError:  # not installed: this is a checkout
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    import tidegauge

results = tidegauge.connect()

# %% Which runs are there, and which of them are valid?
runs = results.runs().pandas()
print(runs[["run_id", "workload", "valid", "clean"]].tail(10).to_string(index=False))

# %% What does each stage cost, by pipeline? A row of figures() is a run, pipeline and stage.
figures = results.figures().pandas()
valid = figures[figures.valid.eq(True)]  # unknown while a run is open
print(
    valid.groupby(["workload", "rate_per_second", "pipeline", "stage"])[["p50_ms", "p99_ms"]]
    .median()
    .to_string()
)

# %% Every latency of the newest valid run, second by second.
newest = valid.run_id.iloc[-1]
counts = results.latencies(newest).pandas()
measured = counts[counts.phase == "measure"]


def percentile(values, share):
    """The nearest rank among counted latencies."""
    ordered = values.sort_values("latency_ms")
    reached = ordered["count"].cumsum() >= share * ordered["count"].sum()
    return ordered.latency_ms[reached.idxmax()]


for (pipeline, stage), part in measured.groupby(["pipeline", "stage"]):
    tail = [percentile(second, 0.99) for _, second in part.groupby("second")]
    print(f"{pipeline} {stage}: p99 {percentile(part, 0.99)} ms,"
          f" of single seconds {min(tail)} to {max(tail)} ms")  # fmt: skip

# %% Any other query, in SQL, and as Arrow.
table = results.sql(
    "SELECT pipeline, stage, exact, late, missing FROM figures WHERE run_id = {run:String}"
    " ORDER BY pipeline, position",
    run=newest,
).arrow
print(table.to_pylist())

# %%
results.close()
