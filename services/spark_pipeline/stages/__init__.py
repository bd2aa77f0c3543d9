"""What each stage computes: one file and one function from DataFrame to DataFrame per stage.

`ingest` and `parse` take rows as they come from Kafka (topic, key, value); `join`, `tumbling` and
`sliding` take the observations that `parse` gives. The same functions serve static DataFrames,
micro-batches and real-time mode, so none of them may use a join operator: real-time mode has none
for two streams.

A group's aggregate changes with every record of the group, and update mode publishes each change;
a stage lets only the change through that completes the group. A record that comes again later
completes nothing in `tumbling` and `sliding` (there are then more records than lanes) and repeats
the output of `join`.
"""
