"""The structure of a paper's claim, and its comparison with our result. Runs no simulation."""

import dataclasses
import math
import statistics
import typing

REPRODUCED, DIRECTION, DISAGREES, FAILED = "reproduced", "direction only", "disagrees", "not measured"


@dataclasses.dataclass(frozen=True)
class Sim:
    """One `tactus sim` command. In `flags` {seed}, {requests} and the names of files (files.py) are filled in. `steps`:
    also stores the step log as `steps_out` of the result, or the named columns of it. `also`: names of figures that
    come from a file of the run instead of its result (simulations.ALSO)."""

    flags: str
    requests: int = 1000
    quick_requests: int = 300
    steps: bool | tuple = False
    also: tuple = ()


@dataclasses.dataclass(frozen=True)
class Capacity:
    """The largest rate of `sim` at which `keeps(result)` holds, requests/s, to 3 %; 0 if it holds nowhere on the
    grid."""

    sim: Sim
    keeps: typing.Callable[[dict], bool]
    says: str  # of `keeps`, as an option of `tactus sim`


@dataclasses.dataclass(frozen=True)
class AtLoad:
    """`sim` at `load` times the requests/s that `probe` completes with all requests present at once: with the same seed
    and step times."""

    sim: Sim
    probe: Sim
    load: float


def sim_of(run):
    """The simulation of a run's result."""
    return run if isinstance(run, Sim) else run.sim


# --- What is expected. `holds(x)`: reproduced; `direction(x)`: on the paper's side of no effect, by a tenth of the
# paper's effect at least. --

SHARE = 0.1


def points_alike(x, edge, neutral):
    return (x - neutral) * (edge - neutral) > 0 and abs(x - neutral) >= SHARE * abs(edge - neutral)


@dataclasses.dataclass(frozen=True)
class Near:
    """Within `within` of the paper's value: a share of it, absolute, or a share of the effect, which is its distance
    from `neutral`. `neutral` is the value without effect: 1 for a ratio, 0 for a difference."""

    value: float
    within: float
    neutral: float | None = 1
    absolute: bool = False
    of_effect: bool = False

    def margin(self):
        return (
            self.within
            if self.absolute
            else self.within * abs(self.value - self.neutral if self.of_effect else self.value)
        )

    def aim(self):
        """The paper's value, and the range in which ours counts as reproduced."""
        return {"value": self.value, "low": self.value - self.margin(), "high": self.value + self.margin()}

    def holds(self, x):
        return abs(x - self.value) <= self.margin()

    def direction(self, x):
        return self.neutral is not None and points_alike(x, self.value, self.neutral)

    def difference(self, x):
        return f"{x - self.value:+.3g}" if self.absolute or self.value == 0 else f"{100 * (x / self.value - 1):+.0f} %"


@dataclasses.dataclass(frozen=True)
class Between:
    """From `low` to `high`, either may be None. `neutral` as in Near; None: no direction outside the range."""

    low: float | None
    high: float | None
    neutral: float | None = None

    def edge(self):
        """The end of the range that is the paper's value, seen from no effect."""
        if self.low is None or self.high is None:
            return self.high if self.low is None else self.low
        return self.low if self.neutral is None or self.low >= self.neutral else self.high

    def aim(self):
        return {"value": self.edge(), "low": self.low, "high": self.high}

    def holds(self, x):
        return (self.low is None or x >= self.low) and (self.high is None or x <= self.high)

    def direction(self, x):
        if self.neutral is None:
            return self.holds(x)
        return points_alike(x, self.edge(), self.neutral)

    def difference(self, x):
        edge = (
            self.low
            if self.low is not None and x < self.low
            else self.high
            if self.high is not None and x > self.high
            else None
        )
        return "within" if edge is None else f"{100 * (x / edge - 1):+.0f} %" if edge else f"{x - edge:+.3g}"


Expectation = Near | Between

# For ratios, if a paper states the direction but not the size: an effect of one percent counts.
ABOVE_ONE, BELOW_ONE = Between(1.01, None, 1), Between(None, 0.99, 1)


@dataclasses.dataclass(frozen=True)
class Claim:
    id: str
    section: str  # in the paper
    says: str  # the claim in our words
    paper: str  # the paper's value, as text
    expects: Expectation
    runs: dict  # name -> Sim | Capacity | AtLoad
    value: typing.Callable[[dict], float]  # of one seed's results by name: a result object, or the rate of a Capacity
    unit: str = ""
    seeds: tuple = (1, 2)
    why: str = ""  # if ours disagrees: the reason, as far as known
    derived: str = ""  # how `paper` was derived from a rounded number, if the paper does not print it
    stands_in: str = ""  # replacements for data that the paper does not publish
    model: str = ""  # deployment, a key of calibration.ERRORS: the cost model's error here
    perturb: bool = True  # whether calibration repeats it with perturbed step times
    # The same runs with this project's variant of the paper's algorithm, under the same names; empty: the claim has no
    # such algorithm, or the shipped one is the paper's. The verdict is that of `runs`; the variant's is shown next to
    # it.
    shipped: dict = dataclasses.field(default_factory=dict)
    shipped_why: str = ""  # like `why`, if the variant disagrees; empty: the same

    def __post_init__(self):
        if not self.runs or not self.seeds:
            raise ValueError(f"claim {self.id} measures nothing")
        if self.shipped and self.shipped.keys() != self.runs.keys():
            raise ValueError(f"claim {self.id}: what ships has other runs ({', '.join(self.shipped)}) than the paper's")

    def measured_runs(self, shipped):
        """The runs of the paper's algorithm, or of the shipped one."""
        return self.shipped if shipped else self.runs


def verdict(claim, value):
    """reproduced, direction only, disagrees; not measured for None or NaN."""
    if value is None or not math.isfinite(value):
        return FAILED
    if claim.expects.holds(value):
        return REPRODUCED
    return DIRECTION if claim.expects.direction(value) else DISAGREES


def side(claim, value):
    """The side of no effect on which a value is: 1, -1, or 0 within one percent of none. Without a neutral value: 1 if
    the claim holds, else -1."""
    neutral = claim.expects.neutral
    if neutral is None:
        return 1 if claim.expects.holds(value) else -1
    near = {"x": 0.01, "%": 1, "points": 1}.get(claim.unit, 0)
    return (value > neutral + near) - (value < neutral - near)


def measured(values):
    """Median, least and largest of the seeds' values; None if there is no number."""
    values = [v for v in values if v is not None and math.isfinite(v)]
    return (statistics.median(values), min(values), max(values)) if values else None


def check(claims):
    """Errors in a table of claims, as text; [] if there are none."""
    faults, seen = [], set()
    for c in claims:
        if c.id in seen:
            faults.append(f"{c.id}: the id is taken")
        seen.add(c.id)
        for name in ("id", "section", "says", "paper"):
            if not getattr(c, name).strip():
                faults.append(f"{c.id}: {name} is empty")
        if any(ch in c.id for ch in " |") or not c.id.isascii():
            faults.append(f"{c.id}: an id is typed on a command line")
        for name, run in [*c.runs.items(), *c.shipped.items()]:
            flags = sim_of(run).flags
            if not isinstance(run, Sim) and "--rate" in flags:
                faults.append(f"{c.id}, {name}: its rate is found, not stated")
            if "--json" in flags:
                faults.append(f"{c.id}, {name}: --json is added to every command")
        edges = [c.expects.value] if isinstance(c.expects, Near) else [c.expects.low, c.expects.high]
        if all(e is None for e in edges):
            faults.append(f"{c.id}: it expects nothing")
        if isinstance(c.expects, Near) and c.expects.neutral is not None and c.expects.holds(c.expects.neutral):
            faults.append(f"{c.id}: no effect at all would be reproduced")
        if (
            isinstance(c.expects, Between)
            and c.expects.neutral is not None
            and c.expects.low is None
            and (c.expects.high or 0) > c.expects.neutral
        ):
            faults.append(f"{c.id}: no effect at all would be reproduced")
    return faults
