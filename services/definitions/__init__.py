"""What a run is made of: domains, engines, pipelines, workloads, suites, studies and watches, read
from files and checked, and the requests that name them."""
