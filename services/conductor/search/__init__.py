"""The search for the sustainable rate. Pure except `searching.py`:

policies.py   an observation of a step → why the rate is not sustained
bisection.py  the steps so far → the next one and the request of its run, or the result
searching.py  carries the steps out, and observes them
"""
