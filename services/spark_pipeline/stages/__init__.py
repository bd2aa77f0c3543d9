"""What each kind of stage computes: one function from DataFrame to DataFrame per kind.

No function knows a domain: columns, keys and windows are in the stage's spec. `copy` and `decode`
take rows as they come from Kafka (topic, key, value); the others take the records that `decode`
gives as columns (see `inputs`). The functions here serve static DataFrames, micro-batches and
real-time mode, so none of them may use a join of two streams: real-time mode has none.

A group's aggregate changes with every record of the group, and update mode publishes each change;
a stage lets only the change through that completes the group. A record that comes again later
completes nothing in a window (there are then more records than due) and repeats the output of a
`join`.
"""
