"""How near an attacker comes to a home after weeks of nights and commutes, by how the vehicle reports.

Run `python -m benchmarks.home ROADS [WALKS]` with a road graph, and walks between places 250 m apart, a step every 30 s
(`geoblanket match --spacing 250`): these add the error on the road and at rest. `--quick` takes a fifth of everything,
`--picture FILE` draws the error against nights. `benchmarks.home_cabs` has real cabs.

*Commuters.* Homes are points of residential streets, 25 m apart, drawn from the attacker's own prior, which follows the
density of junctions. Each day a vehicle comes home from each known place and leaves for it again, by the fastest way,
and stays for the night. It reports every 30 s on the road and every minute at rest. The attacker keeps a probability of
each home and guesses the point of least expected distance. It is told more than it could know: the mechanism, the
fence's centre and radius, which reports were drawn and which were repeated. About each known place it knows the second
of every departure and arrival there, the way and the speed.
"""
