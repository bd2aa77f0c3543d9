"""The search for the sustainable rate. Pure except `searching.py`:

observing.py  events of one step → an Observation
policies.py   an Observation → why the rate is not sustained
bisection.py  the steps so far → the next one, or the result
requests.py   the next step → the request of its run
searching.py  carries the steps out
"""
