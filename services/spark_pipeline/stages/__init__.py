"""The computation of each stage kind: one function from DataFrame to DataFrame per kind.

Functions are independent of the domain: columns, keys and windows come from the stage's spec.
`copy` and `decode` take Kafka rows (topic, key, value); the others take decoded records as columns
(see `inputs`). The functions here work on static DataFrames, micro-batches and real-time mode, so
none of them uses a stream-stream join, which real-time mode does not support.

A group's aggregate changes with every record of the group, and update mode publishes each change;
a stage passes only the change that completes the group. A record repeated later completes nothing
in a window (there are then more records than due) and repeats the output of a `join`.
"""
