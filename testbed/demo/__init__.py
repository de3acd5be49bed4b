"""`make demo`: runs two orders on this machine, prints what happens, and waits for the user.

parts     the servers, the operator and the example's workers, as processes
watching  prints what the API server and the workers report, as it happens
story     the printed lines: pure functions
outcome   the expected ends of the two orders: pure functions
kind      `make demo-kind`: the same orders on a kind cluster
screen    output with colours on a terminal
picture   docs/demo.svg, drawn from what the demo prints
"""
