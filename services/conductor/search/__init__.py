"""The search for the sustainable rate. Pure but for `searching.py`:

observing.py  what the bus says of one step → an Observation
policies.py   an Observation → why the rate is not sustained
bisection.py  the steps so far → the next one, or the result
searching.py  carries the steps out
"""
