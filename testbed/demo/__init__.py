"""`make demo`: two orders on this machine, told as they happen, and then it is yours to try.

parts    the real servers, the operator and the example's workers, as processes
watching what the API server and the workers tell, as it comes
story    what changed, in lines for a person: pure functions
outcome  how the two orders must end: pure functions
kind     `make demo-kind`: the same orders on a kind cluster
screen   colours, where somebody looks
picture  docs/demo.svg, made of what the demo prints
"""
