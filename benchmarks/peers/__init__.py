"""One workload over flue_py and over the stores of other agent runtimes: `python benchmarks/peers/run.py`.

The other stores come with the extra `bench`. Each is imported by its own module alone, in a process of its own.
"""

from __future__ import annotations
